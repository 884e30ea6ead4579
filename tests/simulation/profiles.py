"""What simulated runs are made of: which load, which faults, on which cluster."""

from __future__ import annotations

from typing import Final, NamedTuple

from faults import schedule
from load.profiles import PROFILES as LOADS
from simulation.cluster import Shape

RATE: Final = 40.0
"""Messages a second, in all."""
DEFAULT_KINDS: Final = tuple(schedule.KINDS)


class Profile(NamedTuple):
    load: str
    """One of load/profiles.py."""
    kinds: tuple[str, ...] = DEFAULT_KINDS
    shape: Shape = Shape()
    rate: float = RATE


PROFILES: Final[dict[str, Profile]] = {name: Profile(name) for name in LOADS}
