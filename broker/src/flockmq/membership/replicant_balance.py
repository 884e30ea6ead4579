"""Which core a replicant writes through, and how replicants are balanced over cores when a core comes back.

A replicant stays with its core until the link ends or that core asks it to move. A core with clearly more replicants
than another (MOVE_DIFFERENCE) asks one of them at most every MOVE_EVERY_S. So after a core came back, replicants return
one by one. A replicant moves when none of its appends is under way. Its transactions are numbered, so the log accepts
each once and in order, even if it changes cores.
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
    """A core's load, for comparison. Replicants write through the least loaded core."""
    return status.draining, status.replicants, status.weight


def choose_move(statuses: Mapping[str, Status], cores: Mapping[str, Status], me: str) -> tuple[str, str] | None:
    """The replicant that this core asks to move, and the core that it should move to. None: the load is balanced.

    `statuses`: each linked node's status. `cores`: those of the other cores among them.
    """
    mine = [incarnation for incarnation, status in statuses.items() if status.core == me]
    able = [core for core, status in cores.items() if status.in_majority and not status.draining]
    target = min(able, key=lambda core: (*load(cores[core]), core), default=None)
    if target is None or len(mine) - cores[target].replicants < MOVE_DIFFERENCE:
        return None
    return min(mine), target


class ReplicantBalance:
    """`me` returns this node's incarnation."""

    def __init__(self, me: Callable[[], str], mesh: Mesh, heartbeats: Heartbeats) -> None:
        self._me = me
        self._mesh = mesh
        self._heartbeats = heartbeats
        self._moved_at = 0.0

    def choose(self, unable: Link | None = None) -> Link | None:
        """The link to the least loaded core; `unable` only if there is no other. Among equal cores different nodes
        choose different ones."""
        links = self._mesh.core_links()
        others = [link for link in links if unable is None or link.peer != unable.peer]
        return min(others or links, key=self._load, default=None)

    def replicants(self) -> int:
        """How many replicants write through this core."""
        me = self._me()
        return sum(status.core == me for status in self._heartbeats.statuses.values())

    def look(self, now: float) -> None:
        """On a core: ask a replicant to move, if it is time for it."""
        if now - self._moved_at < MOVE_EVERY_S:
            return
        cores, statuses = self._mesh.linked_cores(), self._heartbeats.statuses
        move = choose_move(statuses, {core: statuses[core] for core in cores if core in statuses}, self._me())
        link = None if move is None else self._mesh.link_of(move[0])
        if move is not None and link is not None:
            self._moved_at = now
            link.note(NOTE, move[1].encode())

    def _load(self, link: Link) -> tuple[bool, int, int, int]:
        core = link.peer.incarnation
        return *load(self._heartbeats.of(core)), crc32(f"{self._me()} {core}".encode())
