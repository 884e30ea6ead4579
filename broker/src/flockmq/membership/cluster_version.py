"""The cluster version: which formats, on links, in the log, in Redis and on disk, every node here understands. Pure.

A release speaks the versions from OLDEST to NEWEST. A cluster is at version 1 until its leader raises it to the lowest
NEWEST of all its nodes: a new one at once, any other when the rollout of a release is over. Then that is a row of the
log (table `versions`). What always holds:
- It never falls, on a node and in the cluster.
- Whoever writes a format of version N asks `at_least(N)` first; whoever reads understands it without asking, for
  another node may know of the raise earlier. So until the raise nobody who doesn't speak N meets it.
- From then on who doesn't speak N is refused at the handshake, with the reason (handshake.py), and links to such nodes
  are closed. A node of an older release doesn't join. One of the first stops at the row: it knows no such table.

ARCHITECTURE.md, "Two versions in one cluster", says how a field, a table, a message, a function is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

FIRST: Final = 1
"""Of a cluster whose log says none."""
OLDEST: Final = 1
NEWEST: Final = 2


class ClusterVersion:
    """What this node knows of it. `newest`: the highest that this node speaks."""

    def __init__(self, newest: int = NEWEST) -> None:
        self.current = OLDEST
        self.newest = newest
        self.is_passed = False
        """The cluster is at a version that this node doesn't speak: it takes no part."""
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def at_least(self, version: int) -> bool:
        """Whether all nodes understand what came with this version: it may be written."""
        return self.current >= version

    def gate(self, version: int) -> Callable[[], bool]:
        """`at_least(version)`, to be handed to parts that know nothing of clusters."""
        return partial(self.at_least, version)

    def when(self, version: int, callback: Callable[[], None]) -> None:
        """Called once, as soon as all nodes understand this version; at once if they do."""
        if self.at_least(version):
            callback()
        else:
            self._waiting.append((version, callback))

    def raised(self, version: int) -> None:
        """The log says so."""
        self.is_passed = version > self.newest
        if self.is_passed or version <= self.current:
            return
        self.current = version
        due = [callback for of, callback in self._waiting if of <= version]
        self._waiting = [(of, callback) for of, callback in self._waiting if of > version]
        for callback in due:
            callback()


class Rollout:
    """The leader's judgement: when is the rollout of a release over, so that its formats may be used?

    When all linked nodes have spoken a higher version for `settle_s`, and nobody is missing. Before that a rollback is
    free; a node that is rolled back speaks the lower version again, and the time begins anew. In a new cluster there is
    nothing to go back to.
    """

    def __init__(self, newest: int, settle_s: float) -> None:
        self.newest = newest
        self._settle_s = settle_s
        self._lowest = 0
        self._since = 0.0

    def begin(self) -> None:
        """This core leads from now on: another one may have heard meanwhile what this one didn't."""
        self._lowest = 0

    def judge(self, now: float, logged: int, spoken: Iterable[int], missing: bool, *, is_new: bool = False) -> int:
        """The version to raise the cluster to; 0: none yet. `logged`: the one that the log has; `spoken`: the highest
        that each linked node speaks; `missing`: a member isn't linked, or a configured core is no member."""
        lowest = min([self.newest, *spoken])
        if lowest != self._lowest:
            self._lowest, self._since = lowest, now
        settled = is_new or now - self._since >= self._settle_s
        return lowest if settled and not missing and lowest > logged else 0
