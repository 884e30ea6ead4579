"""One run: a load and the faults that it goes through, all from a seed, on a cluster that has started.

    case = case_of(17)                          the profile of its load, its faults, the shape of its cluster
    outcome = await play(cluster, case)         what became of it

What always holds: the same case on the same cluster gives the same outcome, its trace included.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from faults import chapter, schedule
from faults.schedule import Step
from judges.judge import Finding, Rules
from load.clients import Load
from load.history import Acknowledged, Published
from load.stage import Limits, Stage
from simulation.cluster import Shape, SimulatedCluster
from simulation.profiles import PROFILES, STRATEGY
from simulation.topology import NAMES

FAULTS: Final = (2, 3)
FAULTS_LAST_S: Final = 10.8
"""At least."""
DURABLE: Final = 200
"""So many messages of QoS 1 and 2 are acknowledged, at least."""
PATIENCE_S: Final = 40.0
DEFECT: Final = "defect"


class Case(msgspec.Struct, frozen=True):
    seed: int
    profile: str
    shape: Shape
    steps: tuple[Step, ...]
    pace: float = 1.0
    """Of the profile's rate: the longer its faults last, the less. More messages find no more."""
    kinds: tuple[str, ...] = ()
    """Its faults are of these kinds only; (): of the profile's."""


class Outcome(msgspec.Struct, frozen=True):
    seed: int
    profile: str
    faults: int
    acknowledged: int
    durable: int
    """Of QoS 1 and 2."""
    simulated_s: float
    cpu_s: float
    trace: str
    findings: list[Finding]


def case_of(seed: int, profile: str = "", kinds: tuple[str, ...] = (), few: int = 0) -> Case:
    """`profile`: "" for one that the seed chooses; `kinds` of faults: () for the profile's; `few`: only so many of
    these, that the seed chooses. Few kinds meet themselves and one another more often (swarm testing).
    """
    rng = random.Random(f"{seed} case")
    (chosen,) = rng.choices(list(PROFILES), [each.weight for each in PROFILES.values()])
    name = profile or chosen
    shape = rng.choice(PROFILES[name].shapes)
    if few:
        kinds = tuple(random.Random(f"{seed} kinds").sample(kinds or PROFILES[name].kinds, few))
    steps = _steps(rng, kinds or PROFILES[name].kinds, shape)
    return Case(seed, name, shape, tuple(steps), FAULTS_LAST_S / lasts_s(steps), kinds)


def _steps(rng: random.Random, kinds: Sequence[str], shape: Shape) -> list[Step]:
    cores = [f"core-{i}" for i in range(1, shape.cores + 1)]
    replicants = [f"replicant-{i}" for i in range(1, shape.replicants + 1)]
    seed, faults = rng.randrange(2**32), rng.randint(*FAULTS)
    steps = schedule.plan(seed, faults, cores, replicants, kinds, redis=NAMES[shape.redis])
    last = steps[-1]
    return [*steps[:-1], last._replace(pause_s=last.pause_s + max(0.0, FAULTS_LAST_S - lasts_s(steps)))]


def lasts_s(steps: Sequence[Step]) -> float:
    return sum(step.pause_s + max(fault.after_s + fault.hold_s for fault in step.faults) for step in steps)


async def play(cluster: SimulatedCluster, case: Case) -> Outcome:
    cluster.begin(case.seed)
    events, profile = cluster.events, PROFILES[case.profile]
    stage = Stage(cluster.record, cluster.fronts, cluster.chance("load"), cluster.admin, Limits(profile.max_mqueue_len))
    is_new = not any(shape.old for shape in profile.shapes)
    strategy = dict(case.shape.settings).get(STRATEGY, "round_robin")
    rules = Rules(max_mqueue_len=profile.max_mqueue_len, is_one_release=is_new, shared_strategy=strategy)
    load = Load(stage, 1, profile.load, case.pace * profile.rate, at_least=DURABLE)
    began_s, cpu_s = cluster.loop.time(), time.process_time()
    with Defects(cluster):
        verdict = await chapter.play(cluster, load, case.steps, events, PATIENCE_S, rules=rules)
    faults = sum(len(step.faults) for step in case.steps)
    return Outcome(
        case.seed,
        case.profile,
        faults,
        verdict.acknowledged,
        durable_messages(events),
        cluster.loop.time() - began_s,
        time.process_time() - cpu_s,
        f"{cluster.network.trace & 0xFFFF_FFFF:08x}",
        verdict.findings,
    )


class Defects(logging.Handler):
    """What nodes log with a traceback is a defect, wherever they caught it, and whatever else is logged."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(logging.ERROR)
        self._cluster = cluster
        self._logger = logging.getLogger("flockmq")
        self._level_before = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._cluster.unwell(record.name, f"{record.getMessage()}: {record.exc_info[1]!r}")

    def __enter__(self) -> Defects:
        self._logger.addHandler(self)
        self._level_before = self._logger.level
        if not self._logger.isEnabledFor(self.level):
            self._logger.setLevel(self.level)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level_before)


def durable_messages(events: Sequence[object]) -> int:
    """Acknowledged, of QoS 1 and 2."""
    sent = {(event.client, event.number) for event in events if isinstance(event, Published) and event.qos}
    return sum((event.client, event.number) in sent for event in events if isinstance(event, Acknowledged))
