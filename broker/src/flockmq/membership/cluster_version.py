"""The cluster version: the formats, on links, in the log, in Redis and on disk, that every node understands. No I/O.

A release speaks the versions OLDEST to NEWEST. A cluster starts at version 1. Its leader raises it to the lowest NEWEST
of all nodes: at once in a new cluster, otherwise when the rollout of a release is over. The version is then a row of
the log (table `versions`). Invariants:

- The version never falls, on a node or in the cluster.
- Code that writes a format of version N checks `at_least(N)` first. Code that reads doesn't check, because another node
  may learn of the raise earlier. So before the raise, no node gets a format that it doesn't understand.
- After the raise a node that doesn't speak N is refused at the handshake, with the reason (handshake.py), and links to
  such nodes are closed. A node of an older release doesn't join. One of the first release stops when it reads the row,
  because it doesn't know the table.

CONTRIBUTING.md, "What two releases share", tells how to add a field, a table, a message or a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

FIRST: Final = 1
"""The version of a cluster whose log has no version row."""
OLDEST: Final = 1
NEWEST: Final = 2


class ClusterVersion:
    """This node's view of the version. `newest`: the highest that this node speaks."""

    def __init__(self, newest: int = NEWEST) -> None:
        self.current = OLDEST
        self.newest = newest
        self.is_passed = False
        """The cluster is at a version that this node doesn't speak, so it must not join."""
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def at_least(self, version: int) -> bool:
        """True if all nodes understand the formats of this version, so they may be written."""
        return self.current >= version

    def gate(self, version: int) -> Callable[[], bool]:
        """`at_least(version)` as a callable, for parts that know nothing of clusters."""
        return partial(self.at_least, version)

    def when(self, version: int, callback: Callable[[], None]) -> None:
        """Call back once, as soon as all nodes understand this version; at once if they do already."""
        if self.at_least(version):
            callback()
        else:
            self._waiting.append((version, callback))

    def raised(self, version: int) -> None:
        """The log's row has this version."""
        self.is_passed = version > self.newest
        if self.is_passed or version <= self.current:
            return
        self.current = version
        due = [callback for of, callback in self._waiting if of <= version]
        self._waiting = [(of, callback) for of, callback in self._waiting if of > version]
        for callback in due:
            callback()


class Rollout:
    """Decides, on the leader, when the rollout of a release is over, so that its formats may be used.

    It is over when all linked nodes have spoken a higher version for `settle_s` and no node is missing. Until then a
    rollback is possible: a node that was rolled back speaks the lower version again, and the time starts again. A new
    cluster has nothing to go back to.
    """

    def __init__(self, newest: int, settle_s: float) -> None:
        self.newest = newest
        self._settle_s = settle_s
        self._lowest = 0
        self._since = 0.0

    def begin(self) -> None:
        """This core is the leader from now on. The former leader may have seen other nodes, so the time starts
        again."""
        self._lowest = 0

    def version_to_raise(
        self, now: float, logged: int, spoken: Iterable[int], missing: bool, *, is_new: bool = False
    ) -> int:
        """The version to raise the cluster to; 0: none yet. `logged`: the version in the log. `spoken`: the highest
        version of each linked node. `missing`: a member isn't linked, or a configured core is no member."""
        lowest = min([self.newest, *spoken])
        if lowest != self._lowest:
            self._lowest, self._since = lowest, now
        settled = is_new or now - self._since >= self._settle_s
        return lowest if settled and not missing and lowest > logged else 0
