"""When faults ran, and on whom: what a judge must not count as time.

What always holds: a fault that never ended runs for ever; two that follow one another within TOGETHER_S are one, for
what one kept from being heard the other may keep still. A node's clock that is wrong is no fault: the cluster's time is
that of most cores (`membership/cluster_time.py`). Only where most of them are wrong at once it counts, and so does
Redis' clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from judges.verdict import FOREVER

TOGETHER_S: Final = 1.0
PATH_FAULTS: Final = ("cut", "isolate")
"""What the kinds begin with by which nodes don't hear one another."""
APART_FAULTS: Final = ("isolate", "stop", "strain", "slow", "lossy")
"""By which what a node sends to another one may be under way for long; and a cut of the two."""
LINKED_MAX_S: Final = 6.0
"""How long two nodes may have no link when nothing keeps them apart any more."""
RESENT_MAX_S: Final = 6.0
"""How long what was lost, and all behind it, may be under way when nothing is lost any more: TCP waits longer each time
until it sends again."""
READ_MAX_S: Final = 1.0
"""A node that stood still has read by then what came meanwhile."""
DRAINS: Final = ("drain", "upgrade")
"""By which a node ends in order."""
CLOCK_FAULTS: Final = ("clock", "drift")
"""What the kinds begin with by which a clock is wrong."""
CLOCKED: Final = ("core", "replicant")
"""What they go on with where it is a node's."""
OF_CORES: Final = ("core", "cores", "leader")
"""What kinds go on with by which slots move."""
OWNS_AGAIN_MAX_S: Final = 10.0
"""How long a core may take, when such a fault is over, until it owns slots again: a busy machine starts it late."""
CLOCKS_SET_MAX_S: Final = 6.0
"""How long the cluster's time may stay wrong when the clocks of most cores are right again."""


class Fault(NamedTuple):
    began: float
    ended: float
    kind: str
    nodes: tuple[str, ...]


class Spans:
    """Times that are joined where they meet, or nearly."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []
        for fault in sorted(faults):
            if self._ends and fault.began <= self._ends[-1] + TOGETHER_S:
                self._ends[-1] = max(self._ends[-1], fault.ended)
            else:
                self._begins.append(fault.began)
                self._ends.append(fault.ended)

    def over(self, at: float) -> float:
        """The first time, at or after this one, at which none runs, or begins within TOGETHER_S."""
        i = bisect_right(self._begins, at + TOGETHER_S) - 1
        return self._ends[i] if i >= 0 and self._ends[i] >= at else at

    def quiet_for(self, at: float, seconds: float) -> float:
        """The first time, at or after this one, at which none ran for so long."""
        for i in range(bisect_right(self._ends, at), len(self._ends)):
            if self._begins[i] >= at + seconds:
                break
            at = self._ends[i]
        return at + seconds

    def before(self, at: float) -> float:
        """The last time, at or before this one, at which none runs, or ended within TOGETHER_S."""
        i = bisect_left(self._ends, at - TOGETHER_S)
        return self._begins[i] if i < len(self._begins) and self._begins[i] <= at else at

    def overlap(self, since: float, until: float) -> bool:
        i = bisect_left(self._ends, since)
        return i < len(self._begins) and self._begins[i] <= until

    def overlap_for(self, seconds: float, since: float, until: float) -> bool:
        """One that runs for so long."""
        first, end = bisect_left(self._ends, since), bisect_right(self._begins, until)
        return any(self._ends[i] - self._begins[i] >= seconds for i in range(first, end))

    def first(self, since: float) -> float:
        """The first time, at or after this one, at which one runs."""
        i = bisect_left(self._ends, since)
        return max(since, self._begins[i]) if i < len(self._begins) else FOREVER


class Faults:
    """`any`: of all nodes; `but_drains`: all but those by which a node ends in order; `of_time`: that made the
    cluster's time wrong, which is that of so many `cores`; `of_loss`: that lost packets, until these are there;
    `of_lateness`: those, and those that had a node stand still; `of_nodes`: not of Redis alone; `of_cores`: of cores;
    `of_owners`: those, until slots are owned as before; `of_memory`: that had nodes refuse more; `unheard`: `any`, and
    until what a path held back is there.
    """

    def __init__(self, faults: Sequence[Fault], cores: int) -> None:
        clocks = [fault for fault in faults if _is_of_clock(fault)]
        wrong = list(_of_most([fault for fault in clocks if fault.kind.split()[1] == "core"], 1 + cores // 2))
        faults = [*(fault for fault in faults if not _is_of_clock(fault)), *wrong]
        self.any = Spans(faults)
        self.but_drains = Spans(fault for fault in faults if not _is_drain(fault))
        self.unheard = Spans(map(_until_heard, faults))
        self.of_time = Spans(wrong)
        lossy = [fault for fault in faults if fault.kind.startswith("lossy")]
        self.of_memory = Spans(fault for fault in faults if fault.kind.startswith("crowd"))
        self.of_owners = Spans(
            fault._replace(ended=fault.ended + OWNS_AGAIN_MAX_S) for fault in faults if is_of_cores(fault)
        )
        resent = [fault._replace(ended=fault.ended + RESENT_MAX_S) for fault in lossy]
        stood_still = [fault._replace(ended=fault.ended + READ_MAX_S) for fault in faults if _is_of_stops(fault)]
        self.of_cores = Spans(fault for fault in (*faults, *stood_still) if is_of_cores(fault))
        self.of_loss = Spans(resent)
        self.of_nodes = Spans(fault for fault in faults if not {*OF_CORES, "replicant"}.isdisjoint(fault.kind.split()))
        self.of_lateness = Spans([*resent, *stood_still])
        of: dict[str, list[Fault]] = {}
        for fault in faults:
            for node in fault.nodes:
                of.setdefault(node, []).append(fault)
        self._all = faults
        self._of = {node: Spans(some) for node, some in of.items()}
        self._of_paths = {
            node: Spans(fault for fault in some if fault.kind.split()[0] in PATH_FAULTS) for node, some in of.items()
        }
        self._of_stops = {
            node: Spans(fault for fault in some if fault.kind.split()[0] == "stop") for node, some in of.items()
        }
        self._drains = {node: Spans(filter(_is_drain, some)) for node, some in of.items()}
        self._none = Spans(())

    def of(self, node: str) -> Spans:
        """Those that it could feel itself."""
        return self._of.get(node, self._none)

    def drains(self, node: str) -> Spans:
        """When it ended in order."""
        return self._drains.get(node, self._none)

    def drain_began(self, node: str, at: float) -> float:
        """When the last one of these began until then; `at` if none did."""
        began = [fault.began for fault in self._all if node in fault.nodes and _is_drain(fault) and fault.began <= at]
        return max(began, default=at)

    def kept_away(self, node: str, since: float, until: float) -> bool:
        """Whether others may have taken its clients for away between these times: a fault of its ran, or it hadn't a
        link again yet."""
        return self.of(node).overlap(since - LINKED_MAX_S, until)

    def met(self, node: str, apart_s: float, since: float, until: float) -> bool:
        """Whether between these times a fault of its and one that another node could feel were so near, or one was of
        both."""
        near = [fault for fault in self._all if fault.began <= until and fault.ended >= since]
        own = [fault for fault in near if node in fault.nodes]
        others = [fault for fault in near if any(other != node for other in fault.nodes)]
        return any(
            theirs.began <= fault.ended + apart_s and fault.began <= theirs.ended + apart_s
            for fault in own
            for theirs in others
        )

    def died_with_it(self, node: str, other: str, since: float, until: float) -> bool:
        """Whether what `node` had for `other` between these times may have: they were apart then, or had no link again
        yet, and it was killed before they can have had one."""
        apart = [
            fault.ended + LINKED_MAX_S
            for fault in self._all
            if fault.began <= until and fault.ended + LINKED_MAX_S >= since and _keeps_apart(fault, node, other)
        ]
        killed = [fault.began for fault in self._all if fault.kind.startswith("kill") and node in fault.nodes]
        return any(since <= at <= max(apart, default=since) for at in killed)

    def ran_alone(self, what: str, nodes: Sequence[str], since: float, until: float) -> bool:
        """Whether a fault of that kind and of one of the nodes ran all the time, and no other did."""
        near = [fault for fault in self._all if fault.began <= until and fault.ended >= since]
        return len(near) == 1 and (
            near[0].kind.startswith(what)
            and near[0].began <= since
            and until <= near[0].ended
            and not set(nodes).isdisjoint(near[0].nodes)
        )

    def of_paths(self, node: str) -> Spans:
        """Those that kept it from hearing others, or being heard, though it ran."""
        return self._of_paths.get(node, self._none)

    def of_stops(self, node: str) -> Spans:
        """When it stood still, and went on."""
        return self._of_stops.get(node, self._none)

    def kept_apart(self, node: str, since: float, until: float) -> bool:
        """Whether what it had for others waited at these times: they didn't hear it, or hadn't a link again yet."""
        return self.of_paths(node).overlap(since - LINKED_MAX_S, until)

    def over_for(self, at: float, nodes: Iterable[str]) -> float:
        """From when on, at or after `at`, none kept one of the nodes from hearing."""
        while (later := max(self.of(node).over(at) for node in nodes)) > at:
            at = later
        return at


def _until_heard(fault: Fault) -> Fault:
    holds_back = fault.kind.split()[0] in (*PATH_FAULTS, "lossy")
    return fault._replace(ended=fault.ended + RESENT_MAX_S) if holds_back else fault


def _keeps_apart(fault: Fault, node: str, other: str) -> bool:
    what = fault.kind.split()[0]
    if what == "cut":
        return {node, other} == set(fault.nodes)
    return what in APART_FAULTS and (node in fault.nodes or other in fault.nodes)


def _is_drain(fault: Fault) -> bool:
    return fault.kind.split()[0] in DRAINS


def _is_of_clock(fault: Fault) -> bool:
    """Of a node's."""
    what, *whose = fault.kind.split()
    return what in CLOCK_FAULTS and whose[0] in CLOCKED


def is_of_cores(fault: Fault) -> bool:
    return any(word in OF_CORES for word in fault.kind.split())


def _of_most(clocks: Sequence[Fault], most: int) -> Iterator[Fault]:
    """When so many cores' clocks were wrong at once: from where one more is, until enough of them are right."""
    for last in clocks:
        ends: dict[str, float] = {}
        for fault in clocks:
            if fault.began <= last.began <= fault.ended:
                ends[fault.nodes[0]] = max(fault.ended, ends.get(fault.nodes[0], fault.ended))
        if len(ends) >= most:
            ended = sorted(ends.values())[-most] + CLOCKS_SET_MAX_S
            yield Fault(last.began, ended, last.kind, tuple(ends))


def _is_of_stops(fault: Fault) -> bool:
    return fault.kind.startswith(("stop ", "strain ")) and fault.kind != "stop redis"
