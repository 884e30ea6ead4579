"""What simulated runs are made of: which load, which faults, on which cluster. A seed chooses one of them."""

from __future__ import annotations

from typing import Final, NamedTuple

from faults import schedule
from flockmq.routing.shared_groups import STRATEGIES
from load.profiles import PROFILES as LOADS
from simulation.cluster import Shape
from simulation.topology import CLUSTER, SENTINEL

RATE: Final = 23.0
"""Messages a second of the base, by which about 200 of QoS 1 and 2 are acknowledged in a run whose faults last as long
as they must."""
KINDS: Final = tuple(schedule.KINDS)
OF_MASTERS: Final = tuple(kind for kind in KINDS if kind not in schedule.ONE_SERVER)
MQUEUE_LEN: Final = 60
"""Of runs that let it overflow."""
CALM_KINDS: Final = ("clock replicant", "drift core")
"""That are no faults: the cluster's time is that of most cores."""
OF_USERS: Final = ("MQTT__CLIENT_ID_BINDING", "user")
"""Client ids are bound to users, and these have quotas."""
STRATEGY: Final = "MQTT__SHARED_SUBSCRIPTION_STRATEGY"
BY_RULES: Final = (
    ("AUTHORIZATION__SOURCES", '[{"type": "built_in_database"}]'),
    ("AUTHORIZATION__NO_MATCH", "allow"),
)


class Profile(NamedTuple):
    """`load`: one of load/profiles.py; a seed chooses one of `shapes`; `weight`: how often one that may choose does;
    `base_rate`: of the base, messages a second; less where features publish much."""

    load: str
    shapes: tuple[Shape, ...] = (Shape(),)
    kinds: tuple[str, ...] = KINDS
    weight: float = 1.0
    base_rate: float = RATE
    max_mqueue_len: int = 1000

    @property
    def rate(self) -> float:
        return self.base_rate * sum(LOADS[self.load].values())


def _with(*settings: tuple[str, str], at_cores: bool = False) -> Shape:
    return Shape(settings=settings, clients_at_cores=at_cores)


def _settling(*old: str) -> Shape:
    """Nodes that are away for as long as a fault lasts aren't left behind by a raise."""
    return Shape(settings=(("CLUSTER__VERSION_SETTLE", "10s"),), old=old)


BY_STRATEGY: Final = tuple(_with((STRATEGY, name)) for name in STRATEGIES)
PROFILES: Final[dict[str, Profile]] = {
    "base": Profile("base", (Shape(), _with(OF_USERS))),
    "cores": Profile("base", (_with(at_cores=True),), weight=0.5),
    "via-core": Profile("base", (_with(("CLUSTER__FORWARDING", "via-core")),), weight=0.5),
    "sentinel": Profile("base", (Shape(redis=SENTINEL),), schedule.mix_for(SENTINEL)),
    "redis-cluster": Profile("base", (Shape(redis=CLUSTER),), OF_MASTERS, weight=0.5),
    "scaled": Profile(
        "base", kinds=(*schedule.SCALE_KINDS, "kill replicant", "kill leader", "kill redis"), weight=0.3, base_rate=21
    ),
    "redis-away": Profile("away", kinds=tuple(schedule.AWAY_KINDS), weight=0.5, base_rate=7),
    "upgraded": Profile(
        "stored",
        (_settling("core-3"), _settling("replicant-2")),
        (*schedule.UPGRADE_KINDS, "kill core", "kill leader", "kill replicant", "kill redis", "isolate core"),
        weight=0.3,
        base_rate=7,
    ),
    "memory": Profile(
        "stored",
        (_with(("NODE__MAX_MEMORY", str(2**40)), OF_USERS),),
        (*schedule.MEMORY_KINDS, "crowd redis", "kill core", "kill leader", "kill replicant", "kill redis"),
        weight=0.4,
        base_rate=7,
    ),
    "flow": Profile("flow", base_rate=9),
    "forms": Profile("forms", base_rate=12, weight=0.8),
    "options": Profile("options", base_rate=12, weight=0.8),
    "anew": Profile("anew", (Shape(), _with(OF_USERS)), base_rate=12, weight=0.8),
    "overflow": Profile(
        "overflow",
        (_with(("MQTT__MAX_MQUEUE_LEN", str(MQUEUE_LEN)), OF_USERS),),
        weight=0.5,
        base_rate=8,
        max_mqueue_len=MQUEUE_LEN,
    ),
    "calm": Profile("calm", BY_STRATEGY, CALM_KINDS, weight=0.8, base_rate=10),
    "shared": Profile(
        "shared",
        BY_STRATEGY,
        weight=1.5,
        base_rate=14,
    ),
    "retained": Profile("retained", (Shape(), _with(OF_USERS)), base_rate=17),
    "wills": Profile("wills", base_rate=19),
    "delayed": Profile("delayed", (Shape(), _with(OF_USERS)), base_rate=15),
    "exclusive": Profile("exclusive", base_rate=18),
    "expiry": Profile("expiry", base_rate=18),
    "takeover": Profile("takeover", (Shape(), _with(OF_USERS)), base_rate=17),
    "rules": Profile("rules", (_with(*BY_RULES),), base_rate=17),
    "owners": Profile("owners", (_with(OF_USERS),), base_rate=15.5),
}
