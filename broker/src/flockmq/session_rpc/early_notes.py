"""What nodes say of a slot before this core can hear it: its sessions are on their way, or the node saw the slot's new
row before this one, or the node's own row is on its way. Pure.

What always holds: notes of a slot stay in their order. Of those that find no room, or wait for more than EARLY_KEPT_S,
the node is remembered, and asked again what it has of the slot once it can be heard (`missed`), unless its link ended
meanwhile: with another it says all again by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flockmq import bounds
from flockmq.session_rpc import messages


class EarlyNote(NamedTuple):
    """A REGISTER, a DETACH or an EVICT."""

    incarnation: str
    method: str
    item: messages.Register | messages.Detach | messages.Evict
    came_at: float


class EarlyNotes:
    """One per core; `now` is in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.dropped = 0
        """Notes that found no room."""
        self._now = now
        self._notes: dict[int, list[EarlyNote]] = {}
        self._count = 0
        self._missed: dict[int, dict[str, None]] = {}
        """By slot: nodes there are links to."""

    def __len__(self) -> int:
        return self._count

    def put(
        self,
        slot: int,
        incarnation: str,
        method: str,
        item: messages.Register | messages.Detach | messages.Evict,
    ) -> None:
        if self._count < bounds.REGISTERS_EARLY_MAX:
            self._count += 1
            self._notes.setdefault(slot, []).append(EarlyNote(incarnation, method, item, self._now()))
        else:
            self.dropped += 1
            self.miss(slot, incarnation)

    def put_back(self, slot: int, note: EarlyNote) -> None:
        """It was taken, and can't be heard yet: it waits as long as if it had not been taken."""
        self._count += 1
        self._notes.setdefault(slot, []).append(note)

    def has(self, slot: int) -> bool:
        return slot in self._notes

    def slots(self) -> list[int]:
        return [*self._notes]

    def take(self, slot: int) -> list[EarlyNote]:
        """What was said of the slot, to be heard now, or put back."""
        notes = self._notes.pop(slot, [])
        self._count -= len(notes)
        return notes

    def missed_slots(self) -> list[int]:
        return [*self._missed]

    def missed(self, slot: int, is_heard: Callable[[int, str], bool]) -> list[str]:
        """Who is to be asked again what it has of the slot, now that it is heard."""
        missed = self._missed.get(slot, {})
        heard = [incarnation for incarnation in missed if is_heard(slot, incarnation)]
        for incarnation in heard:
            del missed[incarnation]
        if not missed:
            self._missed.pop(slot, None)
        return heard

    def node_gone(self, incarnation: str) -> None:
        self._keep_those(lambda _, note: note.incarnation != incarnation)
        self.link_lost(incarnation)

    def link_lost(self, incarnation: str) -> None:
        """It says by itself again what it has."""
        for slot, nodes in list(self._missed.items()):
            nodes.pop(incarnation, None)
            if not nodes:
                del self._missed[slot]

    def sweep(self, may_be_heard: Callable[[int, str], bool], is_linked: Callable[[str], bool]) -> None:
        """Forget what waited for too long; `may_be_heard(slot, incarnation)`: only the slot's sessions are missing."""
        horizon = self._now() - bounds.EARLY_KEPT_S
        for slot, note in self._keep_those(
            lambda slot, note: note.came_at >= horizon or may_be_heard(slot, note.incarnation)
        ):
            if is_linked(note.incarnation):
                self.miss(slot, note.incarnation)

    def miss(self, slot: int, incarnation: str) -> None:
        """It is to be asked again what it has of the slot, when that is heard."""
        self._missed.setdefault(slot, {})[incarnation] = None

    def _keep_those(self, is_kept: Callable[[int, EarlyNote], bool]) -> list[tuple[int, EarlyNote]]:
        """Returns those that aren't."""
        dropped: list[tuple[int, EarlyNote]] = []
        for slot, notes in list(self._notes.items()):
            del self._notes[slot]
            for note in notes:
                if is_kept(slot, note):
                    self._notes.setdefault(slot, []).append(note)
                else:
                    dropped.append((slot, note))
        self._count -= len(dropped)
        return dropped
