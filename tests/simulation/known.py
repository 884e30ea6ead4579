"""What random seeds are known to find, and docs/faults.md tells of: it is counted apart, and makes no run fail.

Each is as narrow as the profile and the faults that show it; whoever mends one takes it out of here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from judges.judge import LOST, SHARED_TWICE, Finding
from simulation.case import Case


class Known(NamedTuple):
    kind: str
    profile: str
    faults: tuple[str, ...]
    """One of them is in the case."""


KNOWN: Final = (
    Known(SHARED_TWICE, "shared", ("stop replicant", "isolate replicant", "cut replicant core", "cut replicant redis")),
    Known(LOST, "overflow", ("stop redis", "stall redis", "kill redis", "fsync redis")),
)


def is_known(case: Case, finding: Finding) -> bool:
    kinds = {fault.kind for step in case.steps for fault in step.faults}
    return any(
        finding.kind == known.kind and case.profile == known.profile and kinds & set(known.faults) for known in KNOWN
    )
