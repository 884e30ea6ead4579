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
        self._of = {node: Spans(some) for node, some in of.items()}
        self._none = Spans(())

    def of(self, node: str) -> Spans:
        """Those that it could feel itself."""
        return self._of.get(node, self._none)

    def over_for(self, at: float, nodes: Iterable[str]) -> float:
        """From when on, at or after `at`, none kept one of the nodes from hearing."""
        while (later := max(self.of(node).over(at) for node in nodes)) > at:
            at = later
        return at
