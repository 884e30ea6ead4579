"""What a campaign comes to: faults and findings by kind, and how long each kind of fault kept publishers waiting."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from judges import judge as checker
from judges.judge import Verdict
from load.history import Acknowledged, AnyEvent, FaultBegan, FaultEnded, Published


class Tally:
    """What a campaign comes to."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.acknowledged = 0
        self.found: Counter[str] = Counter()
        self.pauses_s: defaultdict[str, float] = defaultdict(float)
        self.spent_s: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.spent_s[what] += time.monotonic() - started

    def add(self, events: Sequence[AnyEvent], verdict: Verdict) -> None:
        self.acknowledged += verdict.acknowledged
        self.found += verdict.by_kind()
        for kind, pause_s in pauses(events):
            self.faults[kind] += 1
            self.pauses_s[kind] = max(self.pauses_s[kind], pause_s)

    def table(self) -> list[str]:
        lines = [f"{'fault':<26}{'times':>6}  longest pause of a publisher"]
        lines += [f"{kind:<26}{n:>6}  {self.pauses_s[kind]:.1f} s" for kind, n in sorted(self.faults.items())]
        others = {kind: n for kind, n in self.found.items() if kind not in LAST_LINE}
        spent = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in self.spent_s.items())
        return [*lines, *(f"{kind}: {n}" for kind, n in sorted(others.items())), f"time: {spent}"]

    def last_line(self) -> str:
        counts = " ".join(f"{kind}={self.found[kind]}" for kind in LAST_LINE)
        return f"faults={self.faults.total()} acked={self.acknowledged} {counts}"


WAITED_MIN_S: Final = 0.1
LAST_LINE: Final = (checker.LOST, checker.DUPLICATED, checker.REORDERED)


def pauses(events: Sequence[AnyEvent]) -> list[tuple[str, float]]:
    """Of each fault: its kind, and the longest that a publisher waited for an acknowledgement while it lasted."""
    faults: list[tuple[str, float, float]] = []
    running: dict[tuple[str, tuple[str, ...]], float] = {}
    gaps: list[tuple[float, float]] = []
    sent: dict[tuple[str, int], float] = {}
    for event in events:
        match event:
            case FaultBegan():
                running[event.kind, event.nodes] = event.at
            case FaultEnded():
                faults.append((event.kind, running.pop((event.kind, event.nodes)), event.at))
            case Published() if event.qos and not event.again:
                sent[event.client, event.number] = event.at
            case Acknowledged():
                since = sent.pop((event.client, event.number), event.at)
                if event.at - since > WAITED_MIN_S:
                    gaps.append((since, event.at))
            case _:
                pass
    return [
        (kind, max((end - begin for begin, end in gaps if begin <= ended and end >= began), default=0.0))
        for kind, began, ended in faults
    ]
