"""Who is there, as one node sees it, and whom the leader may purge. Pure: the monotonic clock is passed in.

A node is unreachable when it left; when another incarnation of its name is there; when its last link ended more than
MEMBER_UNLINKED_MAX_S ago (a link that is silent for LINK_SILENT_MAX_S was closed before); and when it never had one
for MEMBER_UNHEARD_MAX_S: a core that just started waits until the others have found it. The longer time also holds
for replicants while a core has no link at all: then it is more likely itself that is cut off.

Majorities are of the *configured* cores, so two sides of a split never both have one, whoever died before. Where
there are two, or four, a split in halves would leave nobody to decide; so the lease in Redis, which one core holds at
a time, is worth a tie-break: exactly half of the cores suffice for its holder, where no core of the other half says
otherwise. Nothing is counted anew after an election: each core judges by links that it saw end itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from flockmq import bounds
from flockmq.entropy import SYSTEM, Entropy
from flockmq.routing.message_id import process_of

CORE_ROLES: Final = frozenset({"core", "single"})


class Reachability:
    """Links and departures, by incarnation."""

    def __init__(self, my_name: str, now: float) -> None:
        self._links: Counter[str] = Counter()
        self._linked_names: Counter[str] = Counter([my_name])
        self._unlinked_at: dict[str, float] = {}
        self._missed_since: dict[str, float] = {}
        self._strange_since: dict[str, float] = {}
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

    def has_left(self, incarnation: str) -> bool:
        return incarnation in self._left

    def is_linked(self, incarnation: str) -> bool:
        return incarnation in self._links

    def count_anew(self, now: float) -> None:
        """This node's own loop stood still: what it didn't hear until now proves nothing."""
        self._counted_from = now

    def forget(self, incarnation: str) -> None:
        """Its rows are gone."""
        self._unlinked_at.pop(incarnation, None)
        self._missed_since.pop(incarnation, None)
        self._left.discard(incarnation)

    def unreachable(self, replicants: Iterable[str], cores: Iterable[str], now: float) -> set[str]:
        """Which of the registered incarnations, without this node's own, this node can't reach."""
        patient = not self._links
        return {incarnation for incarnation in cores if self._is_unreachable(incarnation, now, False)} | {
            incarnation for incarnation in replicants if self._is_unreachable(incarnation, now, patient)
        }

    def missing(self, strangers: Collection[str], now: float) -> set[str]:
        """Which of these, no members, weren't linked for MEMBER_UNHEARD_MAX_S, for as long as they were asked for."""
        unlinked = (stranger for stranger in strangers if stranger not in self._links)
        self._strange_since = {stranger: self._strange_since.get(stranger, now) for stranger in unlinked}
        horizon = now - bounds.MEMBER_UNHEARD_MAX_S
        return {who for who, since in self._strange_since.items() if max(since, self._counted_from) <= horizon}

    def is_gone(self, incarnation: str) -> bool:
        """It left, or its name has a newer incarnation: no vote is needed."""
        return incarnation in self._left or (
            incarnation not in self._links and name_of(incarnation) in self._linked_names
        )

    def _is_unreachable(self, incarnation: str, now: float, patient: bool) -> bool:
        if self.is_gone(incarnation):
            return True
        if incarnation in self._links:
            return False
        unlinked_at = self._unlinked_at.get(incarnation)
        if unlinked_at is None or patient:
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


def new_incarnation(name: str, former: str = "", entropy: Entropy = SYSTEM) -> str:
    """`name@`, 16 hex digits for the process, 4 for which of its lives: it has another after it was purged."""
    process = process_of(former) if former else f"{name}@{entropy.token_bytes(8).hex()}"
    life = int(former[-4:], 16) + 1 if former else 0
    return f"{process}{life % 0x10000:04x}"


def electorate(configured: int, cores: Collection[str]) -> int:
    """How many cores majorities are of: as many as are configured, or as the members' table names, if it has more."""
    if len(cores) <= configured:  # as many names at most
        return max(configured, 1)
    return max(configured, len({name_of(core) for core in cores}), 1)


def may_lead(voices: int, electorate: int) -> bool:
    """Whether a core that hears so many, itself included, may run for the lease: not from a minority."""
    return 2 * voices >= electorate


def is_settled(voices: int, electorate: int, holds_lease: bool) -> bool:
    """Whether a core belongs to the side of a split that goes on."""
    return 2 * voices > electorate or (holds_lease and 2 * voices == electorate)


def outvoted(mine: Collection[str], votes: Mapping[str, Collection[str]], electorate: int) -> set[str]:
    """Who is unreachable for this core (`mine`) and for more than half of all cores, the lease aside.

    `votes`: each other core that was heard lately → the incarnations it can't reach. A core that is itself
    unreachable has no vote.
    """
    heard = [unreachable for core, unreachable in votes.items() if core not in mine]
    return {accused for accused in mine if 2 * (1 + sum(accused in said for said in heard)) > electorate}


def condemned(
    mine: Collection[str], gone: Collection[str], votes: Mapping[str, Collection[str]], electorate: int
) -> set[str]:
    """Whom the leader purges: the outvoted; of those whom half can't reach, whom nobody reaches; who is `gone`."""
    heard = [unreachable for core, unreachable in votes.items() if core not in mine]
    halved = {
        accused
        for accused in mine
        if 2 * (1 + len(heard)) == electorate and all(accused in unreachable for unreachable in heard)
    }
    return outvoted(mine, votes, electorate) | halved | (set(mine) & set(gone))
