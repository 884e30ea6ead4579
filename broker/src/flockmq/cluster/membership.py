"""Who is there, as one node sees it, and whom the leader may purge. Pure: the monotonic clock is passed in.

A node is unreachable when it left; when another incarnation of its name is there; when its last link ended more than
MEMBER_UNLINKED_MAX_S ago (a link that is silent for LINK_SILENT_MAX_S was closed before); and when it never had one
for MEMBER_UNHEARD_MAX_S: a core that just started waits until the others have found it. The longer time also holds
for a core that has no link at all: then it is more likely itself that is cut off.

The leader purges an incarnation that it can't reach itself and that a majority of the cores it hears can't reach
either. The lease in Redis says which side of a split may decide; the clock is counted anew after an election, so that
a new leader judges by what it saw itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from flockmq import bounds


class Membership:
    """Links and departures, by incarnation."""

    def __init__(self, my_name: str, now: float) -> None:
        self._links: Counter[str] = Counter()
        self._linked_names: Counter[str] = Counter([my_name])
        self._unlinked_at: dict[str, float] = {}
        self._missed_since: dict[str, float] = {}
        self._left: set[str] = set()
        self._counted_from = now

    def linked(self, incarnation: str) -> None:
        self._links[incarnation] += 1
        self._linked_names[name_of(incarnation)] += 1

    def unlinked(self, incarnation: str, now: float) -> None:
        """One of its links ended."""
        _take_one(self._links, incarnation)
        _take_one(self._linked_names, name_of(incarnation))
        if incarnation not in self._links:
            self._unlinked_at[incarnation] = now

    def left(self, incarnation: str) -> None:
        """It said that it won't come back."""
        self._left.add(incarnation)

    def is_linked(self, incarnation: str) -> bool:
        return incarnation in self._links

    def count_anew(self, now: float) -> None:
        """This node was just elected, or its own loop stood still: what it didn't hear until now proves nothing."""
        self._counted_from = now

    def forget(self, incarnation: str) -> None:
        """Its rows are gone."""
        self._unlinked_at.pop(incarnation, None)
        self._missed_since.pop(incarnation, None)
        self._left.discard(incarnation)

    def unreachable(self, registered: Iterable[str], now: float) -> set[str]:
        """Which of the registered incarnations, without this node's own, this node can't reach."""
        return {incarnation for incarnation in registered if self._is_unreachable(incarnation, now)}

    def is_gone(self, incarnation: str) -> bool:
        """It left, or its name has a newer incarnation: no vote is needed."""
        return incarnation in self._left or (
            incarnation not in self._links and name_of(incarnation) in self._linked_names
        )

    def _is_unreachable(self, incarnation: str, now: float) -> bool:
        if self.is_gone(incarnation):
            return True
        if incarnation in self._links:
            return False
        unlinked_at = self._unlinked_at.get(incarnation)
        if unlinked_at is None or not self._links:
            since = self._missed_since.setdefault(incarnation, now) if unlinked_at is None else unlinked_at
            return now - max(since, self._counted_from) >= bounds.MEMBER_UNHEARD_MAX_S
        return now - max(unlinked_at, self._counted_from) >= bounds.MEMBER_UNLINKED_MAX_S


def _take_one(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


def name_of(incarnation: str) -> str:
    """`name@hex` → `name`."""
    return incarnation.rpartition("@")[0]


def condemned(mine: Collection[str], left: Collection[str], votes: Mapping[str, Collection[str]]) -> set[str]:
    """Whom the leader purges: unreachable for itself (`mine`) and for more than half of the voters.

    `votes`: each other live core → the incarnations it can't reach. Who left needs no vote.
    """
    voters = len(votes) + 1
    return {
        incarnation
        for incarnation in mine
        if incarnation in left or 2 * (1 + sum(incarnation in unreachable for unreachable in votes.values())) > voters
    }
