"""What simulated runs are made of: which load, which faults, on which cluster. A seed chooses one of them."""

from __future__ import annotations

from typing import Final, NamedTuple

from faults import schedule
from flockmq.session.groups import STRATEGIES
from load.profiles import PROFILES as LOADS
from simulation.cluster import Shape
from simulation.topology import CLUSTER, SENTINEL

RATE: Final = 25.0
"""Messages a second of the base, by which at least 200 of sessions that last are acknowledged in a run."""
KINDS: Final = tuple(schedule.KINDS)
OF_MASTERS: Final = tuple(kind for kind in KINDS if kind not in schedule.ONE_SERVER)
MQUEUE_LEN: Final = 60
"""Of runs that let it overflow."""
BY_RULES: Final = (
    ("AUTHORIZATION__SOURCES", '[{"type": "built_in_database"}]'),
    ("AUTHORIZATION__NO_MATCH", "allow"),
)


class Profile(NamedTuple):
    """`load`: one of load/profiles.py; a seed chooses one of `shapes`; `weight`: how often one that may choose does."""

    load: str
    shapes: tuple[Shape, ...] = (Shape(),)
    kinds: tuple[str, ...] = KINDS
    weight: float = 1.0
    max_mqueue_len: int = 1000

    @property
    def rate(self) -> float:
        return RATE * sum(LOADS[self.load].values())


def _with(*settings: tuple[str, str], at_cores: bool = False) -> Shape:
    return Shape(settings=settings, clients_at_cores=at_cores)


PROFILES: Final[dict[str, Profile]] = {
    "base": Profile("base"),
    "cores": Profile("base", (_with(at_cores=True),), weight=0.5),
    "via-core": Profile("base", (_with(("CLUSTER__FORWARDING", "via-core")),), weight=0.5),
    "sentinel": Profile("base", (Shape(redis=SENTINEL),), schedule.mix_for(SENTINEL)),
    "redis-cluster": Profile("base", (Shape(redis=CLUSTER),), OF_MASTERS, weight=0.5),
    "scaled": Profile("base", kinds=(*schedule.SCALE_KINDS, "kill replicant", "kill leader", "kill redis"), weight=0.5),
    "flow": Profile("flow"),
    "overflow": Profile(
        "overflow", (_with(("MQTT__MAX_MQUEUE_LEN", str(MQUEUE_LEN))),), weight=0.5, max_mqueue_len=MQUEUE_LEN
    ),
    "shared": Profile(
        "shared", tuple(_with(("MQTT__SHARED_SUBSCRIPTION_STRATEGY", name)) for name in STRATEGIES), weight=1.5
    ),
    "retained": Profile("retained"),
    "wills": Profile("wills"),
    "delayed": Profile("delayed"),
    "exclusive": Profile("exclusive"),
    "expiry": Profile("expiry"),
    "takeover": Profile("takeover"),
    "rules": Profile("rules", (_with(*BY_RULES),)),
}
