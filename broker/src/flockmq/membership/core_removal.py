"""Whether a core may go: one rule for a core that leaves, and for a dead one that is forgotten. No I/O.

A core may go only while a majority and every core that stays is ready, because the one that goes may be all that holds
the tables; and only when no core that stays counts more cores (`cluster.cores`) than stay. Otherwise majorities would
still be of the former number, and too few cores would be there while one of them restarts. So the number is lowered
first, where cores stay. That is safe at any time: majorities are of the members while these are more
(`reachability.electorate`).

The operator follows the same rule with pods (`fewer_cores.py` there).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flockmq.membership.reachability import may_lead


class StayingCore(NamedTuple):
    name: str
    is_ready: bool
    """It is heard, ready, reaches Redis, and doesn't drain."""
    counts: int | None
    """Its `cluster.cores`; 0: as many as there are members. None: it doesn't say."""


def obstacle(going: str, staying: Sequence[StayingCore]) -> str:
    """Why the core `going` can't go now, and what to do first; "" if it can. `staying`: all other cores that are
    members."""
    number = len(staying)
    if not staying:
        return f"{going} is the only core, and a cluster needs one: start another core first"
    ready = [core.name for core in staying if core.is_ready]
    unready = [core.name for core in staying if not core.is_ready]
    counted = max(number, *(core.counts or 0 for core in staying))
    if not may_lead(len(ready), counted):
        those = f"only {_listed(ready)}" if ready else "none"
        return f"a majority would be lost: of {counted} cores {those} would be ready and reach Redis"
    if unready:
        return (
            f"{_listed(unready)} isn't ready, and {going} may be all that holds the tables: wait until all others are"
        )
    if silent := [core.name for core in staying if core.counts is None]:
        return f"{_listed(silent)} doesn't say what its cluster.cores is: it doesn't answer, or is of an older release"
    if counted > number:
        counting = [core.name for core in staying if (core.counts or 0) > number]
        return (
            f"cluster.cores is {counted} on {_listed(counting)}: set it to {number} or fewer there, restart one after "
            "the other, each when all cores that stay are ready, then try again"
        )
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
