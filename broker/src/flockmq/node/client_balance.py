"""How many clients a node has beyond its share, and when it sends them to other nodes. No I/O: the caller passes time.

Every node decides for itself, from what heartbeats say of all nodes. So no coordinator can be lost, and a wrong guess
costs reconnects only.

Invariants: a node begins after it had too many clients for `wait_s` while the same nodes took clients, and goes on
until it has no more than the mean. A node that comes or goes makes every node wait again. Clients may always come back
to the same node: it sends away at most REBALANCE_TRIES times its excess, and if it soon has too many again it waits
twice as long, up to REBALANCE_WAIT_MAX_S.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from flockmq.bounds import REBALANCE_TRIES, REBALANCE_WAIT_MAX_S
from flockmq.management.view import Member
from flockmq.node.eviction_pace import accepts


class Balancing(NamedTuple):
    """When a node has too many clients: more than the mean times `relative`, and more than `absolute` above it."""

    relative: float = 1.1
    absolute: int = 100
    wait_s: float = 30.0

    def begins_above(self, mean: float) -> float:
        return max(mean * self.relative, mean + self.absolute)


class Excess(NamedTuple):
    clients: int
    """How many clients to send away."""
    share: float
    """This node's part of the cluster's eviction rate, at most 1."""


NONE: Final = Excess(0, 1.0)


class ClientBalance:
    """Decides for this node how many clients it sends away."""

    def __init__(self, settings: Balancing) -> None:
        self.is_shedding = False
        self._settings = settings
        self._takers: frozenset[str] = frozenset()
        self._even_at_s = -math.inf
        """When this node last had no more than it may have, or the nodes that take clients changed."""
        self._wait_s = settings.wait_s
        self._may_send = 0
        """How many more it may send away before it waits again."""
        self._ended_s = -math.inf
        """When it last stopped sending clients away."""

    def look(self, now_s: float, members: Sequence[Member], me: str, clients: int) -> Excess:
        """`me` is this node's incarnation, `clients` the number of its clients now."""
        others = takers_beside(me, members)
        takers = frozenset(member.incarnation for member in others)
        if takers != self._takers:
            self._takers = takers
            self.pause(now_s)
            self._wait_s, self._ended_s = self._settings.wait_s, -math.inf
        counts = [member.connections for member in others]
        mean = mean_of(clients, counts)
        fair = math.ceil(mean)
        if not takers or clients <= self._limit(mean) or (self.is_shedding and not self._may_send):
            self.pause(now_s)
        elif not self.is_shedding and now_s - self._even_at_s >= self._wait_s:
            self._begin(now_s, clients - fair)
        if not self.is_shedding:
            return NONE
        return Excess(min(clients - fair, self._may_send), 1 / (1 + sum(count > fair for count in counts)))

    def sent(self, number: int) -> None:
        """So many of the `Excess` have been sent away."""
        self._may_send -= number

    def pause(self, now_s: float) -> None:
        """Stop sending clients away, and begin again after `wait_s` at the earliest."""
        if self.is_shedding:
            self._ended_s = now_s
        self.is_shedding = False
        self._even_at_s = now_s

    def _begin(self, now_s: float, excess: int) -> None:
        """Too many again soon after the last time: those clients came back, so wait longer next time."""
        is_again, first_s = now_s - self._ended_s < 2 * self._wait_s, self._settings.wait_s
        self._wait_s = max(first_s, min(2 * self._wait_s, REBALANCE_WAIT_MAX_S)) if is_again else first_s
        self.is_shedding, self._may_send = True, REBALANCE_TRIES * excess

    def _limit(self, mean: float) -> float:
        if self.is_shedding:
            return math.ceil(mean)
        return self._settings.begins_above(mean)


def takers_beside(me: str, members: Iterable[Member]) -> list[Member]:
    """The other nodes that take clients now. `me` is this node's incarnation."""
    return [member for member in members if member.incarnation != me and member.heard and accepts(member)]


def mean_of(clients: int, others: Sequence[int]) -> float:
    """The mean over a node with `clients` and the other nodes that take clients."""
    return (sum(others) + clients) / (1 + len(others))
