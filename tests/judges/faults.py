"""When faults ran, and on whom: what a judge must not count as time.

What always holds: a fault that never ended runs for ever; two that follow one another within TOGETHER_S are one, for
what one kept from being heard the other may keep still.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from judges.verdict import FOREVER

TOGETHER_S: Final = 1.0
PATH_FAULTS: Final = ("cut", "isolate")
"""What the kinds begin with by which nodes don't hear one another."""
CLOCK_FAULTS: Final = ("clock", "drift")
"""What the kinds begin with by which a clock is wrong."""


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
    """`any`: of all nodes."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.any = Spans(faults)
        self.of_clocks = Spans(fault for fault in faults if fault.kind.split()[0] in CLOCK_FAULTS)
        of: dict[str, list[Fault]] = {}
        for fault in faults:
            for node in fault.nodes:
                of.setdefault(node, []).append(fault)
        self._all = faults
        self._of = {node: Spans(some) for node, some in of.items()}
        self._of_others: dict[str, Spans] = {}
        self._of_paths = {
            node: Spans(fault for fault in some if fault.kind.split()[0] in PATH_FAULTS) for node, some in of.items()
        }
        self._none = Spans(())

    def of(self, node: str) -> Spans:
        """Those that it could feel itself."""
        return self._of.get(node, self._none)

    def of_others(self, node: str) -> Spans:
        """Those that another node could feel."""
        if node not in self._of_others:
            others = [fault for fault in self._all if any(other != node for other in fault.nodes)]
            self._of_others[node] = Spans(others)
        return self._of_others[node]

    def of_paths(self, node: str) -> Spans:
        """Those that kept it from hearing others, or being heard, though it ran."""
        return self._of_paths.get(node, self._none)

    def over_for(self, at: float, nodes: Iterable[str]) -> float:
        """From when on, at or after `at`, none kept one of the nodes from hearing."""
        while (later := max(self.of(node).over(at) for node in nodes)) > at:
            at = later
        return at
