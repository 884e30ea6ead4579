"""Who owns which slot: the only place that keeps it, at an exact log position.

It listens to the table `slots`. Row changes are only recorded, because within an entry neither the log position nor the
other rows are final. When the whole entry, or a bootstrap, is applied, the moved slots are published, before any other
code is told of the entry. The slots of a purged core are published a moment later, when its rows are swept.

Listeners are called in this order: the former owner releases the slot, the registry of client ids changes, the new
owner takes it, senders resend what isn't accepted, nodes register their clients.

Invariant: `owners` is the log's state at `epoch`, which rises with every entry. One exception: the slots of a core that
was just purged have no owner in the log, but still have one here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Self

from flockmq.bounds import SLOTS
from flockmq.rlog.entry import StreamId
from flockmq.tasks import vital_failed

LET_GO: Final = 0
REGISTRY: Final = 1
TAKE: Final = 2
SEND: Final = 3
REGISTER: Final = 4


class SlotMove(NamedTuple):
    """From one owner to another; "" for none."""

    slot: int
    former: str
    owner: str


class SlotTable:
    """A TableListener. `owners` is always the same list: by slot, "" for none."""

    def __init__(self) -> None:
        self.owners: Final = [""] * SLOTS
        self.epoch = 0
        """The log position of the cluster tables, as one growing integer."""
        self._noted: dict[int, str] = {}
        self._listeners: list[list[Callable[[list[SlotMove]], None]]] = [[] for _ in range(REGISTER + 1)]

    def listen(self, order: int, listener: Callable[[list[SlotMove]], None]) -> None:
        """Call `listener` with all slots that an entry moves. `order`: LET_GO to REGISTER."""
        self._listeners[order].append(listener)

    def slots_of(self, owner: str) -> list[int]:
        return [slot for slot, of in enumerate(self.owners) if of == owner]

    def count(self) -> dict[str, int]:
        """Owner → its number of slots."""
        return {owner: self.owners.count(owner) for owner in sorted(set(self.owners) - {""})}

    # --- from the log -----------------------------------------------------------------------------------------------

    def put(self, slot: int, owner: str, old: str | None) -> None:
        if slot < SLOTS:  # rows come from other nodes
            self._noted[slot] = owner

    def delete(self, slot: int, old: str) -> None:
        if slot < SLOTS:
            self._noted[slot] = ""

    def fresh(self) -> Self:
        return type(self)()

    def swap(self, fresh: Self) -> None:
        self._noted = {slot: fresh._noted.get(slot, "") for slot in range(SLOTS)}

    def entry_applied(self, position: StreamId) -> None:
        """A whole entry or a bootstrap was applied, or rows of a purged core were swept."""
        self.epoch = (position.generation << 48) + position.sequence
        if not self._noted:
            return
        owners = self.owners
        noted, self._noted = self._noted, {}
        moves = [SlotMove(slot, owners[slot], owner) for slot, owner in noted.items() if owners[slot] != owner]
        for slot, _, owner in moves:
            owners[slot] = owner
        if moves:
            self._publish(moves)

    def _publish(self, moves: list[SlotMove]) -> None:
        for listeners in self._listeners:
            for listener in listeners:
                try:
                    listener(moves)
                except Exception as error:  # moves aren't repeated: parts of the node would differ for ever
                    vital_failed(f"following {len(moves)} slots that moved", error)
