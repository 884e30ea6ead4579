"""How many clients a node has beyond its share, and when it sends them to other nodes. No I/O: the caller passes time.

Every node decides for itself, from what heartbeats say of all nodes. So no coordinator can be lost, and a wrong guess
costs reconnects only.

Invariants of the automatic one (ClientBalance): a node begins after it had too many clients for `wait_s` while the same
nodes took clients, and goes on until it has no more than the mean. A node that comes or goes makes every node wait
again. Clients may always come back to the same node: it sends away at most REBALANCE_TRIES times its excess, and if it
soon has too many again it waits twice as long, up to REBALANCE_WAIT_MAX_S.

One that an operator asked for (AskedBalance) has no wait, and an end: when no node has sent clients away for
REBALANCE_SETTLED_S, or when this one has sent away REBALANCE_TRIES times its excess and still has too many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from flockmq.bounds import REBALANCE_SETTLED_S, REBALANCE_TRIES, REBALANCE_WAIT_MAX_S
from flockmq.management.rebalance_rows import AskedProgress, AskedRebalance, AskedState
from flockmq.management.view import Member
from flockmq.node.eviction_pace import accepts


class Balancing(NamedTuple):
    """When a node has too many clients: more than the mean times `relative`, and more than `absolute` above it."""

    relative: float = 1.1
    absolute: int = 100
    wait_s: float = 30.0

    def begins_above(self, mean: float) -> float:
        return max(mean * self.relative, mean + self.absolute)

    def asked(self, asked: AskedRebalance) -> Balancing:
        """The thresholds that `asked` has, and these where it has none."""
        relative, absolute = asked.relative_threshold, asked.absolute_threshold
        return Balancing(
            self.relative if relative is None else relative,
            self.absolute if absolute is None else absolute,
            self.wait_s,
        )


class Excess(NamedTuple):
    clients: int
    """How many clients to send away."""
    share: float
    """This node's part of the cluster's eviction rate, at most 1."""


NONE: Final = Excess(0, 1.0)


class KnownClients:
    """The clients of all nodes that take clients. While this node sends some away none is forgotten: those that are on
    their way to another node are seen nowhere."""

    def __init__(self) -> None:
        self._total = 0

    def mean(self, clients: int, others: Sequence[int], *, is_shedding: bool) -> float:
        self._total = max(sum(others, clients), self._total if is_shedding else 0)
        return self._total / (1 + len(others))


class ClientBalance:
    """Decides for this node how many clients it sends away."""

    def __init__(self, settings: Balancing) -> None:
        self.is_shedding = False
        self._settings = settings
        self._takers: frozenset[str] = frozenset()
        self._even_at_s = -math.inf
        """When this node last had no more than it may have, or the nodes that take clients changed."""
        self._wait_s = settings.wait_s
        self._known = KnownClients()
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
        mean = self._known.mean(clients, counts, is_shedding=self.is_shedding)
        is_over = clients > _limit(self._settings, mean, is_shedding=self.is_shedding)
        if not takers or not is_over or (self.is_shedding and not self._may_send):
            self.pause(now_s)
        elif not self.is_shedding and now_s - self._even_at_s >= self._wait_s:
            self._begin(now_s, _excess(clients, counts, mean).clients)
        if not self.is_shedding:
            return NONE
        return _excess(clients, counts, mean, self._may_send)

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


class AskedBalance:
    """Decides how many clients this node sends away because an operator, `name`, asked for it at `now_s`."""

    def __init__(self, name: str, settings: Balancing, now_s: float) -> None:
        self.is_shedding = False
        self._name = name
        self._state: AskedState = "running"
        self._moved = 0
        self._settings = settings
        self._known = KnownClients()
        self._most = 0
        """The largest excess that it had."""
        self._busy_at_s = now_s
        """When it, or another node, was last seen to send clients away."""

    @property
    def is_over(self) -> bool:
        return self._state != "running"

    def progress(self) -> AskedProgress:
        return AskedProgress(name=self._name, state=self._state, moved=self._moved)

    def look(self, now_s: float, members: Sequence[Member], me: str, clients: int) -> Excess:
        """As ClientBalance.look; NONE when it is over."""
        if self.is_over:
            return NONE
        counts = [member.connections for member in takers_beside(me, members)]
        mean = self._known.mean(clients, counts, is_shedding=self.is_shedding)
        self.is_shedding = bool(counts) and clients > _limit(self._settings, mean, is_shedding=self.is_shedding)
        if self.is_shedding:
            self._busy_at_s = now_s
            self._most = max(self._most, _excess(clients, counts, mean).clients)
            if may_send := REBALANCE_TRIES * self._most - self._moved:
                return _excess(clients, counts, mean, may_send)
            if clients > _limit(self._settings, mean, is_shedding=False):
                self.end("gave_up")
            self.is_shedding = False
        elif any(member.rebalancing for member in members if member.incarnation != me and member.heard):
            self._busy_at_s = now_s
        elif now_s - self._busy_at_s >= REBALANCE_SETTLED_S:
            self.end("balanced")
        return NONE

    def sent(self, number: int) -> None:
        """So many of the `Excess` have been sent away."""
        self._moved += number

    def pause(self, now_s: float) -> None:
        """All clients of this node go, so it has no share any more."""
        self.end("stopped")

    def end(self, state: AskedState) -> None:
        """It is over, unless it was before."""
        self.is_shedding = False
        if not self.is_over:
            self._state = state


def _limit(settings: Balancing, mean: float, *, is_shedding: bool) -> float:
    """How many clients a node may have: a node that sends clients away goes on to the mean."""
    return math.ceil(mean) if is_shedding else settings.begins_above(mean)


def _excess(clients: int, others: Sequence[int], mean: float, at_most: float = math.inf) -> Excess:
    """What a node sends away to get down to the mean, and its part of the rate among the nodes above it."""
    fair = math.ceil(mean)
    return Excess(int(min(clients - fair, at_most)), 1 / (1 + sum(count > fair for count in others)))


def takers_beside(me: str, members: Iterable[Member]) -> list[Member]:
    """The other nodes that take clients now. `me` is this node's incarnation."""
    return [member for member in members if member.incarnation != me and member.heard and accepts(member)]


def mean_of(clients: int, others: Sequence[int]) -> float:
    """The mean over a node with `clients` and the other nodes that take clients."""
    return (sum(others) + clients) / (1 + len(others))
