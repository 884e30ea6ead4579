"""Which nodes this node can reach, and which nodes the leader may purge. No I/O; the monotonic clock is passed in.

A node is unreachable in these cases:

- It left, or another incarnation of its name is linked and it isn't the latest one of that name: a link to a former one
  may be dead without this node knowing it yet.
- Its last link ended more than MEMBER_UNLINKED_MAX_S ago. (A link that is silent for LINK_SILENT_MAX_S is closed
  first.)
- It never had a link, and MEMBER_UNHEARD_MAX_S have passed: the other nodes need this time to find a core that just
  started. A core without any link uses this longer time for replicants too, because it is probably cut off itself.

When a node that had lost all its links has one again all times restart: what it didn't hear while it was cut off proves
nothing.

Majorities are of the *configured* cores, so the two sides of a split never both have one, whichever nodes died before.
With two or four cores a split in halves would leave no majority. So the lease in Redis, which one core holds at a time,
breaks the tie: for its holder exactly half of the cores are enough, if no core of the other half contradicts. A change
of the leader doesn't restart any timer: each core counts from when it saw its own links end.
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
        self._latest: dict[str, str] = {}
        """Name → of its incarnations the one whose first link came last; only of other nodes that are linked."""
        self._my_name = my_name
        self._unlinked_at: dict[str, float] = {}
        self._missed_since: dict[str, float] = {}
        self._non_member_since: dict[str, float] = {}
        self._left: set[str] = set()
        self._counted_from = now

    def linked(self, incarnation: str, now: float) -> None:
        if not self._links and self._unlinked_at:
            self.restart_timers(now)
        name = name_of(incarnation)
        is_first = incarnation not in self._links and incarnation not in self._unlinked_at
        if name != self._my_name and (is_first or name not in self._latest):
            self._latest[name] = incarnation
        self._links[incarnation] += 1
        self._linked_names[name] += 1

    def unlinked(self, incarnation: str, now: float) -> None:
        """One of its links ended."""
        name = name_of(incarnation)
        _take_one(self._links, incarnation)
        _take_one(self._linked_names, name)
        if name not in self._linked_names:
            self._latest.pop(name, None)
        if incarnation not in self._links:
            self._unlinked_at[incarnation] = now

    def left(self, incarnation: str) -> None:
        """It announced that it leaves for good."""
        self._left.add(incarnation)

    def has_left(self, incarnation: str) -> bool:
        return incarnation in self._left

    def is_linked(self, incarnation: str) -> bool:
        return incarnation in self._links

    def restart_timers(self, now: float) -> None:
        """This process was paused, or cut off, so what it didn't hear until now proves nothing."""
        self._counted_from = now

    def forget(self, incarnation: str) -> None:
        """Its rows are deleted."""
        self._unlinked_at.pop(incarnation, None)
        self._missed_since.pop(incarnation, None)
        self._left.discard(incarnation)

    def unreachable(self, replicants: Iterable[str], cores: Iterable[str], now: float) -> set[str]:
        """Which of these incarnations this node can't reach. Its own isn't among them."""
        waits_longer = not self._links
        return {incarnation for incarnation in cores if self._is_unreachable(incarnation, now, False)} | {
            incarnation for incarnation in replicants if self._is_unreachable(incarnation, now, waits_longer)
        }

    def missing(self, non_members: Collection[str], now: float) -> set[str]:
        """Which of these non-members had no link for MEMBER_UNHEARD_MAX_S. The time restarts if a call doesn't name the
        node."""
        unlinked = (non_member for non_member in non_members if non_member not in self._links)
        self._non_member_since = {non_member: self._non_member_since.get(non_member, now) for non_member in unlinked}
        horizon = now - bounds.MEMBER_UNHEARD_MAX_S
        return {
            incarnation
            for incarnation, since in self._non_member_since.items()
            if max(since, self._counted_from) <= horizon
        }

    def is_gone(self, incarnation: str) -> bool:
        """It left, or its name has a newer incarnation: no vote is needed to purge it."""
        name = name_of(incarnation)
        return incarnation in self._left or (
            incarnation not in self._links and name in self._linked_names and self._latest.get(name) != incarnation
        )

    def _is_unreachable(self, incarnation: str, now: float, waits_longer: bool) -> bool:
        if self.is_gone(incarnation):
            return True
        if incarnation in self._links:
            return False
        unlinked_at = self._unlinked_at.get(incarnation)
        if unlinked_at is None or waits_longer:
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
    """`name@`, 16 hex digits for the process, and 4 for its count of incarnations: it gets a new one after each
    purge."""
    process = process_of(former) if former else f"{name}@{entropy.token_bytes(8).hex()}"
    life = int(former[-4:], 16) + 1 if former else 0
    return f"{process}{life % 0x10000:04x}"


def electorate(configured: int, cores: Collection[str]) -> int:
    """The number of cores of which a majority is needed: the configured number, or the number in the members' table if
    that is higher."""
    if len(cores) <= configured:  # there can't be more names than that
        return max(configured, 1)
    return max(configured, len({name_of(core) for core in cores}), 1)


def may_lead(reachable: int, electorate: int) -> bool:
    """Whether a core may try to get the lease: not in a minority. `reachable`: the cores that it hears, itself
    included."""
    return 2 * reachable >= electorate


def is_in_majority(reachable: int, electorate: int, holds_lease: bool) -> bool:
    """Whether a core is on the side of a split that continues."""
    return 2 * reachable > electorate or (holds_lease and 2 * reachable == electorate)


def unreachable_by_majority(mine: Collection[str], votes: Mapping[str, Collection[str]], electorate: int) -> set[str]:
    """Nodes that this core (`mine`) and more than half of all cores can't reach. The lease doesn't count here.

    `votes`: each other core that was heard lately → the incarnations that it can't reach. A core that is itself
    unreachable has no vote.
    """
    heard = [unreachable for core, unreachable in votes.items() if core not in mine]
    return {accused for accused in mine if 2 * (1 + sum(accused in unreachable for unreachable in heard)) > electorate}


def nodes_to_purge(
    mine: Collection[str], gone: Collection[str], votes: Mapping[str, Collection[str]], electorate: int
) -> set[str]:
    """The nodes that the leader purges: those that a majority can't reach; if only half of the cores are heard, those
    that none of them reaches; and those that are `gone`."""
    heard = [unreachable for core, unreachable in votes.items() if core not in mine]
    halved = {
        accused
        for accused in mine
        if 2 * (1 + len(heard)) == electorate and all(accused in unreachable for unreachable in heard)
    }
    return unreachable_by_majority(mine, votes, electorate) | halved | (set(mine) & set(gone))
