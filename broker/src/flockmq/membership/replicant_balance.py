"""Which core a replicant writes through, and how replicants spread over cores again when there are more of them.

A replicant stays with its core until the link ends or that core asks it to move. A core with clearly more replicants
than another (MOVE_DIFFERENCE) asks one of them, no more than one every MOVE_EVERY_S: after a core came back they return
one by one. The replicant moves when none of its appends is under way; and its transactions are numbered, so whatever
happens between two cores the log takes each once and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from zlib import crc32

from flockmq.bounds import MOVE_DIFFERENCE, MOVE_EVERY_S
from flockmq.membership.frames import Status
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.link import Link
from flockmq.membership.mesh import Mesh

NOTE: Final = "log.move"


def load(status: Status) -> tuple[bool, int, int]:
    """What is compared of two cores: the least is written through."""
    return status.draining, status.replicants, status.weight


def moving(statuses: Mapping[str, Status], cores: Mapping[str, Status], me: str) -> tuple[str, str] | None:
    """The replicant that this core asks to move, and to which other core; None: all is balanced.

    `statuses`: what each linked node said; `cores`: those of them that are other cores.
    """
    mine = [incarnation for incarnation, status in statuses.items() if status.core == me]
    able = [core for core, status in cores.items() if status.settled and not status.draining]
    target = min(able, key=lambda core: (*load(cores[core]), core), default=None)
    if target is None or len(mine) - cores[target].replicants < MOVE_DIFFERENCE:
        return None
    return min(mine), target


class ReplicantBalance:
    """`me` tells this node's incarnation."""

    def __init__(self, me: Callable[[], str], mesh: Mesh, beats: Heartbeats) -> None:
        self._me = me
        self._mesh = mesh
        self._beats = beats
        self._moved_at = 0.0

    def choose(self, unable: Link | None = None) -> Link | None:
        """The link to the core with the least load, but to that one only if there is no other. Of equal ones different
        nodes choose different ones."""
        links = self._mesh.core_links()
        others = [link for link in links if unable is None or link.peer != unable.peer]
        return min(others or links, key=self._load, default=None)

    def replicants(self) -> int:
        """How many write through this core."""
        me = self._me()
        return sum(status.core == me for status in self._beats.statuses.values())

    def look(self, now: float) -> None:
        """A core's: ask a replicant to move, if it is time and one should."""
        if now - self._moved_at < MOVE_EVERY_S:
            return
        cores, statuses = self._mesh.linked_cores(), self._beats.statuses
        move = moving(statuses, {core: statuses[core] for core in cores if core in statuses}, self._me())
        link = None if move is None else self._mesh.link_of(move[0])
        if move is not None and link is not None:
            self._moved_at = now
            link.note(NOTE, move[1].encode())

    def _load(self, link: Link) -> tuple[bool, int, int, int]:
        core = link.peer.incarnation
        return *load(self._beats.of(core)), crc32(f"{self._me()} {core}".encode())
