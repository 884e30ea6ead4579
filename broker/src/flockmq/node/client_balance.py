"""How much load a node has beyond its share, and when it sends clients to other nodes. No I/O: the caller passes time.

Every node decides for itself, from what heartbeats say of all nodes. So no coordinator can be lost, and a wrong guess
costs reconnects only. What load is says node_load.py: where all clients are alike, the number of clients.

Invariants of the automatic one (ClientBalance): a node begins after it had too much for `wait_s` while the same nodes
took clients, and goes on until it has no more than the mean. A node that comes or goes makes every node wait again.
Clients may always come back to the same node: it sends away at most REBALANCE_TRIES times its excess, and if it soon
has too much again it waits twice as long, up to REBALANCE_WAIT_MAX_S.

One that an operator asked for (AskedBalance) begins at once, or after the wait that it was asked with, and has an end:
when no node has sent clients away for as long as those that went may need to come back, or when this one has sent away
REBALANCE_TRIES times its excess and still has too much.

No client is sent away twice in a run, in which any node sends clients away: only those go that are connected since
before it began.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from flockmq.bounds import REBALANCE_LOOK_S, REBALANCE_SETTLED_S, REBALANCE_TRIES, REBALANCE_WAIT_MAX_S
from flockmq.management.rebalance_rows import AskedProgress, AskedRebalance, AskedState
from flockmq.management.view import Member
from flockmq.node.eviction_pace import accepts
from flockmq.node.node_load import ROUNDING, Figures, LoadScale, Weights, most_of, scale_of, total_of

_ONE: Final = 1.0 - ROUNDING
"""The load of a client among clients that are alike. With less beyond the mean nobody need go."""
_ABSOLUTE_MOST: Final = 100.0
_BY_CHANCE: Final = 2.0
"""If clients choose nodes by chance, few nodes have this many times the square root of the mean beyond it."""


class Balancing(NamedTuple):
    """When a node has too much load: more than the mean times `relative`, and more than `absolute` above it."""

    relative: float = 1.1
    absolute: int = 0
    """0: what chance makes, and 100 at most."""
    wait_s: float = 30.0

    def begins_above(self, mean: float) -> float:
        above = self.absolute or min(_BY_CHANCE * math.sqrt(mean), _ABSOLUTE_MOST)
        return max(mean * self.relative, mean + above)

    def asked(self, asked: AskedRebalance) -> Balancing:
        """The thresholds that `asked` has, and these where it has none."""
        relative, absolute = asked.relative_threshold, asked.absolute_threshold
        return Balancing(
            self.relative if relative is None else relative,
            self.absolute if absolute is None else absolute,
            self.wait_s,
        )


class Excess(NamedTuple):
    load: float
    """How much load to send away, in clients."""
    share: float
    """This node's part of the cluster's eviction rate, at most 1."""
    scale: LoadScale = LoadScale()
    """What the load of a client is now."""
    steady_s: float = 0.0
    """Only clients go that have been connected for so long."""


NONE: Final = Excess(0.0, 1.0)


class Comparison(NamedTuple):
    """This node beside the others that take clients."""

    load: float
    mean: float
    others: Sequence[float]
    scale: LoadScale

    def excess(self, at_most: float, steady_s: float) -> Excess:
        """What it sends away to get down to the mean, and its part of the rate among the nodes above it."""
        share = 1 / (1 + sum(load - self.mean >= _ONE for load in self.others))
        return Excess(min(self.load - self.mean, at_most), share, self.scale, steady_s)


class KnownLoad:
    """The load of all nodes that take clients. While this node sends clients away nothing is forgotten: those that are
    on their way to another node are seen nowhere."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._total = Figures(0)

    def compared(self, own: Figures, others: Sequence[Figures], *, all_tell: bool, is_shedding: bool) -> Comparison:
        """`all_tell`: each node tells more than its connections."""
        now = total_of([own, *others])
        if is_shedding:
            now = most_of(now, self._total)
        self._total = now
        weights = self._weights if all_tell else Weights(1.0, 0.0, 0.0)
        scale, nodes = scale_of(weights, now, 1 + len(others)), 1 + len(others)
        return Comparison(scale.load(own), now.connections / nodes, [scale.load(other) for other in others], scale)


def compared(known: KnownLoad, own: Figures, takers: Sequence[Member], *, is_shedding: bool) -> Comparison:
    others = [figures_of(taker) for taker in takers]
    all_tell = all(taker.durable_clients is not None for taker in takers)
    return known.compared(own, others, all_tell=all_tell, is_shedding=is_shedding)


def figures_of(member: Member) -> Figures:
    """One of an older release tells its connections alone."""
    return Figures(member.connections, member.durable_clients or 0, member.messages_per_s or 0.0)


class ClientBalance:
    """Decides for this node how much load it sends away."""

    def __init__(self, settings: Balancing, weights: Weights = Weights()) -> None:  # noqa: B008 - it never changes
        self.is_shedding = False
        self.has_too_much = False
        """Whether it begins when it has waited."""
        self._settings = settings
        self._takers: frozenset[str] = frozenset()
        self._even_at_s = -math.inf
        """When this node last had no more than it may have, or the nodes that take clients changed."""
        self._wait_s = settings.wait_s
        self._known = KnownLoad(weights)
        self._may_send = 0.0
        """How much more load it may send away before it waits again."""
        self._ended_s = -math.inf
        """When it last stopped sending clients away."""
        self._run_began_s = self._run_seen_s = -math.inf

    def look(self, now_s: float, members: Sequence[Member], me: str, own: Figures) -> Excess:
        """`me` is this node's incarnation, `own` what it has now. Whoever acts on the answer says what came of it:
        `found`, `sent`."""
        takers = takers_beside(me, members)
        names = frozenset(member.incarnation for member in takers)
        if names != self._takers:
            self._takers = names
            self.pause(now_s)
            self._wait_s, self._ended_s = self._settings.wait_s, -math.inf
        here = compared(self._known, own, takers, is_shedding=self.is_shedding)
        self.has_too_much = bool(takers) and _has_too_much(self._settings, here, is_shedding=self.is_shedding)
        if not self.has_too_much or (self.is_shedding and self._may_send < _ONE):
            self.pause(now_s)
        elif not self.is_shedding and now_s - self._even_at_s >= self._wait_s:
            self._begin(now_s, here.load - here.mean)
        self._note_run(now_s, is_elsewhere=others_shed(me, members))
        return here.excess(self._may_send, now_s - self._run_began_s) if self.is_shedding else NONE

    def found(self, now_s: float, clients: int, *, came_back: bool) -> None:
        """So many clients can go for the last `Excess`. `came_back`: others would, but came in this run."""
        if not clients:
            self.pause(now_s)

    def sent(self, number: int, load: float) -> None:
        """So many clients, with so much of the `Excess`, have been sent away."""
        self._may_send -= load

    def pause(self, now_s: float) -> None:
        """Stop sending clients away, and begin again after `wait_s` at the earliest."""
        if self.is_shedding:
            self._ended_s = now_s
        self.is_shedding = False
        self._even_at_s = now_s

    def _begin(self, now_s: float, excess: float) -> None:
        """Too much again soon after the last time: those clients came back, so wait longer next time."""
        is_again, first_s = now_s - self._ended_s < 2 * self._wait_s, self._settings.wait_s
        self._wait_s = max(first_s, min(2 * self._wait_s, REBALANCE_WAIT_MAX_S)) if is_again else first_s
        self.is_shedding, self._may_send = True, REBALANCE_TRIES * excess

    def _note_run(self, now_s: float, *, is_elsewhere: bool) -> None:
        """A run lasts while any node sends clients away. Of another node this one learns a little late."""
        if not (self.is_shedding or is_elsewhere):
            return
        if now_s - self._run_seen_s > REBALANCE_SETTLED_S:
            self._run_began_s = now_s - (2 * REBALANCE_LOOK_S if is_elsewhere else 0.0)
        self._run_seen_s = now_s


class AskedBalance:
    """Decides how much load this node sends away because an operator asked for it at `now_s`."""

    def __init__(
        self,
        asked: AskedRebalance,
        settings: Balancing,
        now_s: float,
        weights: Weights = Weights(),  # noqa: B008 - it never changes
    ) -> None:
        self.is_shedding = False
        self._name = asked.name
        self._state: AskedState = "running"
        self._moved = 0
        self._moved_load = 0.0
        self._settings = settings
        self._known = KnownLoad(weights)
        self._most = 0.0
        """The largest excess that it had."""
        self._is_beyond = False
        """Whether it has more than the thresholds allow."""
        self._began_s = now_s
        self._sends_at_s = now_s + (asked.wait or 0.0)
        self._settle_s = REBALANCE_SETTLED_S if asked.settle is None else asked.settle
        self._busy_at_s = now_s
        """When it, or another node, was last seen to send clients away."""

    @property
    def is_over(self) -> bool:
        return self._state != "running"

    @property
    def has_too_much(self) -> bool:
        return self.is_shedding

    def progress(self) -> AskedProgress:
        return AskedProgress(name=self._name, state=self._state, moved=self._moved)

    def look(self, now_s: float, members: Sequence[Member], me: str, own: Figures) -> Excess:
        """As ClientBalance.look; NONE when it is over, and while it waits."""
        if self.is_over:
            return NONE
        takers = takers_beside(me, members)
        here = compared(self._known, own, takers, is_shedding=self.is_shedding)
        self._is_beyond = bool(takers) and _has_too_much(self._settings, here, is_shedding=False)
        self.is_shedding = bool(takers) and _has_too_much(self._settings, here, is_shedding=self.is_shedding)
        if self.is_shedding:
            self._most = max(self._most, here.load - here.mean)
            may_send = REBALANCE_TRIES * self._most - self._moved_load
            if now_s < self._sends_at_s:
                self._busy_at_s = now_s
            elif may_send >= _ONE:
                return here.excess(may_send, now_s - self._began_s)
            else:
                self.found(now_s, 0, came_back=True)
        elif others_shed(me, members) or now_s < self._sends_at_s:
            self._busy_at_s = now_s
        else:
            self._settle(now_s)
        return NONE

    def found(self, now_s: float, clients: int, *, came_back: bool) -> None:
        """As ClientBalance.found. It has given up where clients came back; it has done what it can where each client
        that is left has more load than is too much."""
        if clients:
            self._busy_at_s = now_s
            return
        self.is_shedding = False
        if self._is_beyond and came_back:
            self.end("gave_up")
        self._settle(now_s)

    def sent(self, number: int, load: float) -> None:
        """As ClientBalance.sent."""
        self._moved += number
        self._moved_load += load

    def pause(self, now_s: float) -> None:
        """All clients of this node go, so it has no share any more."""
        self.end("stopped")

    def end(self, state: AskedState) -> None:
        """It is over, unless it was before."""
        self.is_shedding = False
        if not self.is_over:
            self._state = state

    def _settle(self, now_s: float) -> None:
        if now_s - self._busy_at_s >= self._settle_s:
            self.end("balanced")


def _has_too_much(settings: Balancing, here: Comparison, *, is_shedding: bool) -> bool:
    """A node that sends clients away goes on to the mean."""
    if is_shedding:
        return here.load - here.mean >= _ONE
    return here.load > settings.begins_above(here.mean) + ROUNDING


def takers_beside(me: str, members: Iterable[Member]) -> list[Member]:
    """The other nodes that take clients now. `me` is this node's incarnation."""
    return [member for member in members if member.incarnation != me and member.heard and accepts(member)]


def others_shed(me: str, members: Iterable[Member]) -> bool:
    """Whether another node sends clients away."""
    return any(member.rebalancing for member in members if member.incarnation != me and member.heard)
