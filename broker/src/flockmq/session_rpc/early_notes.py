"""Notes about a slot that this core can't handle yet: its sessions aren't loaded, or the sender's or the slot's row in
the cluster tables hasn't arrived here. No I/O.

Invariants: notes about a slot stay in order. If a note finds no room or waits longer than EARLY_KEPT_S, it is dropped,
and its sender is remembered (`missed`). Once notes about the slot can be handled, the sender is asked to register its
connections again. It isn't asked if its link ended meanwhile, because it registers by itself on a new link.
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
    """The early notes of one core. `now` returns seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.dropped = 0
        """Number of notes that found no room."""
        self._now = now
        self._notes: dict[int, list[EarlyNote]] = {}
        self._count = 0
        self._missed: dict[int, dict[str, None]] = {}
        """By slot: the nodes to ask again."""

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
        """Put back a note that was taken and can't be handled yet. Its waiting time isn't restarted."""
        self._count += 1
        self._notes.setdefault(slot, []).append(note)

    def has(self, slot: int) -> bool:
        return slot in self._notes

    def slots(self) -> list[int]:
        return [*self._notes]

    def take(self, slot: int) -> list[EarlyNote]:
        """Remove and return the notes about the slot. The caller handles them or puts them back."""
        notes = self._notes.pop(slot, [])
        self._count -= len(notes)
        return notes

    def forget_registers(self, slot: int) -> None:
        """The slot went to another core, or was lost. What has ended stays so."""
        for note in self.take(slot):
            if note.method != messages.REGISTER:
                self.put_back(slot, note)

    def missed_slots(self) -> list[int]:
        return [*self._missed]

    def missed(self, slot: int, is_accepted: Callable[[int, str], bool]) -> list[str]:
        """Remove and return the nodes to ask again about the slot, as far as `is_accepted` allows."""
        missed = self._missed.get(slot, {})
        heard = [incarnation for incarnation in missed if is_accepted(slot, incarnation)]
        for incarnation in heard:
            del missed[incarnation]
        if not missed:
            self._missed.pop(slot, None)
        return heard

    def node_gone(self, incarnation: str) -> None:
        self._keep_those(lambda _, note: note.incarnation != incarnation)
        self.link_lost(incarnation)

    def link_lost(self, incarnation: str) -> None:
        """The node registers by itself on its next link."""
        for slot, nodes in list(self._missed.items()):
            nodes.pop(incarnation, None)
            if not nodes:
                del self._missed[slot]

    def sweep(self, may_be_accepted: Callable[[int, str], bool], is_linked: Callable[[str], bool]) -> None:
        """Drop notes that have waited too long. A note stays while it waits only until the slot's sessions are loaded
        (`may_be_accepted(slot, incarnation)`).
        """
        horizon = self._now() - bounds.EARLY_KEPT_S
        for slot, note in self._keep_those(
            lambda slot, note: note.came_at >= horizon or may_be_accepted(slot, note.incarnation)
        ):
            if is_linked(note.incarnation):
                self.miss(slot, note.incarnation)

    def miss(self, slot: int, incarnation: str) -> None:
        """Ask this node again about the slot when notes about it can be handled."""
        self._missed.setdefault(slot, {})[incarnation] = None

    def _keep_those(self, is_kept: Callable[[int, EarlyNote], bool]) -> list[tuple[int, EarlyNote]]:
        """Drop and return the notes for which `is_kept` is False."""
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
