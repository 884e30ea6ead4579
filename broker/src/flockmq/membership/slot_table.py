"""Who owns which slot: the one place that says so, at an exact place of the log.

It listens to the table `slots`. Rows are noted amid an entry, when neither the place in the log nor the other rows are
what they will be. When the whole entry is applied, or a bootstrap's tables are in the place of the former ones, the
slots that moved are published, before anybody else hears of the entry. The slots of a purged core are published when
their rows are swept, a moment later. Listeners hear in this order: the former owner lets go, the registry of client ids
changes, the new owner takes, senders put again what isn't accepted, clients register.

What always holds: `owners` is what the log says at `epoch`, which rises with every entry; only slots of a core that was
just purged have no owner in the log before they have none here.
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
    """An rlog Listener. `owners` stays one object: by slot, "" for none."""

    def __init__(self) -> None:
        self.owners: Final = [""] * SLOTS
        self.epoch = 0
        """The place in the log of members and slots, as one integer that only grows."""
        self._noted: dict[int, str] = {}
        self._listeners: list[list[Callable[[list[SlotMove]], None]]] = [[] for _ in range(REGISTER + 1)]

    def listen(self, order: int, listener: Callable[[list[SlotMove]], None]) -> None:
        """Call `listener` with all slots that an entry moves. `order`: LET_GO to REGISTER."""
        self._listeners[order].append(listener)

    def slots_of(self, owner: str) -> list[int]:
        return [slot for slot, of in enumerate(self.owners) if of == owner]

    def count(self) -> dict[str, int]:
        """Owner → how many slots it has; without those that nobody has."""
        return {owner: self.owners.count(owner) for owner in sorted(set(self.owners) - {""})}

    # --- from the log -----------------------------------------------------------------------------------------------

    def put(self, slot: int, owner: str, old: str | None) -> None:
        if slot < SLOTS:  # a row is what a core wrote
            self._noted[slot] = owner

    def delete(self, slot: int, old: str) -> None:
        if slot < SLOTS:
            self._noted[slot] = ""

    def fresh(self) -> Self:
        return type(self)()

    def swap(self, fresh: Self) -> None:
        self._noted = {slot: fresh._noted.get(slot, "") for slot in range(SLOTS)}

    def entry_applied(self, place: StreamId) -> None:
        """The whole entry, or a swap, is applied; or rows of a purged core were swept, which its purge had ended."""
        self.epoch = (place.generation << 48) + place.sequence
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
                except Exception as error:  # nobody says these moves again, and parts would differ for ever
                    vital_failed(f"following {len(moves)} slots that moved", error)
