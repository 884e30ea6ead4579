"""Which faults, on whom, for how long: all from one seed, before anything runs; or a script for one hazard. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

LEADER: Final = "leader"
"""Whichever core leads when the fault begins."""
REDIS: Final = "redis"
"""The one server, or any master of a cluster."""
PRIMARY, REPLICA = "primary", "replica"
"""Whichever server is one when the fault begins."""
CORES: Final = "cores"
"""All of them."""
FOR_GOOD: Final = math.inf
"""A hold: until the chapter's last message was judged."""

AT_ONCE_SHARE: Final = 0.35
AT_ONCE_MAX: Final = 3
APART_MAX_S: Final = 1.0
PAUSE_S: Final = (0.2, 2.0)
"""Between the end of a fault and the next: mostly too short for everything to be well again."""


class Planned(NamedTuple):
    """One fault. `targets`: names of hosts; of a cut, between the first and the second."""

    kind: str
    targets: tuple[str, ...]
    hold_s: float
    both_ways: bool = True
    amount: float = 0.0
    """Of a clock: seconds that it jumps, or gains each second; of a slow path: seconds; of a lossy one: percent; of
    a strained node: seconds that each iteration of its event loop takes; of cores: how many there are then."""
    after_s: float = 0.0
    """How much later than the first of its step it begins."""

    def __str__(self) -> str:
        link = " ↔ " if self.both_ways else " → "
        jump = f" by {self.amount:+g}" if self.amount else ""
        hold = "good" if self.hold_s == FOR_GOOD else f"{self.hold_s:.1f} s"
        return f"{self.kind} {link.join(self.targets)}{jump} for {hold}"


class Step(NamedTuple):
    """Faults that overlap, and how long nothing happens after the last of them."""

    faults: tuple[Planned, ...]
    pause_s: float
    calm: bool = False
    """And then until all nodes are ready and all clients connected."""


class Kind(NamedTuple):
    weight: int
    roles: tuple[str, ...]
    """One host of each: `core`, `replicant`, LEADER, REDIS, PRIMARY, REPLICA; or CORES."""
    hold_s: tuple[float, float]
    alone: bool = False
    """Redis loses what it had answered: who wrote it must live to write it anew, or it is gone (a known limit)."""
    amounts: tuple[float, ...] = (0.0,)
    """Planned.amount is one of them."""


WRITTEN_ANEW_S: Final = 2.0
STOPPED_S: Final = (4.5, 7.5)
"""Longer than leases and links live."""
ITERATIONS_S: Final = (0.02, 0.1, 0.4)
CLOCK_JUMPS_S: Final = (-86_400.0, -600.0, -5.0, 5.0, 600.0, 86_400.0)
DRIFTS: Final = (-0.05, 0.05)
DELAYS_S: Final = (0.02, 0.1, 0.4)
LOSSES_PERCENT: Final = (2.0, 10.0, 30.0)
KINDS: Final = {
    "kill replicant": Kind(10, ("replicant",), (0.1, 2.5)),
    "kill core": Kind(10, ("core",), (0.1, 2.5)),
    "kill leader": Kind(8, (LEADER,), (0.1, 2.5)),
    "drain replicant": Kind(5, ("replicant",), (0.1, 2.5)),
    "drain core": Kind(6, ("core",), (0.1, 2.5)),
    "kill redis": Kind(8, (REDIS,), (0.1, 2.5)),
    "stop replicant": Kind(5, ("replicant",), STOPPED_S),
    "stop core": Kind(5, ("core",), STOPPED_S),
    "stop leader": Kind(4, (LEADER,), STOPPED_S),
    "stop redis": Kind(4, (REDIS,), (1.0, 5.0)),
    "strain core": Kind(5, ("core",), (2.0, 6.0), amounts=ITERATIONS_S),
    "strain replicant": Kind(5, ("replicant",), (2.0, 6.0), amounts=ITERATIONS_S),
    "cut core core": Kind(6, ("core", "core"), (1.0, 6.0)),
    "cut core redis": Kind(6, ("core", REDIS), (1.0, 6.0)),
    "cut leader redis": Kind(4, (LEADER, REDIS), (1.0, 6.0)),
    "cut replicant core": Kind(6, ("replicant", "core"), (1.0, 6.0)),
    "cut replicant redis": Kind(5, ("replicant", REDIS), (1.0, 6.0)),
    "cut replicant replicant": Kind(6, ("replicant", "replicant"), (1.0, 6.0)),
    "isolate core": Kind(4, ("core",), (1.0, 8.0)),
    "isolate replicant": Kind(4, ("replicant",), (1.0, 8.0)),
    "fill core": Kind(4, ("core",), (1.0, 4.0)),
    "fill redis": Kind(4, (REDIS,), (1.0, 3.0)),
    "crowd redis": Kind(3, (REDIS,), (1.0, 4.0)),
    "clock core": Kind(3, ("core",), (0.5, 12.0), amounts=CLOCK_JUMPS_S),
    "clock replicant": Kind(3, ("replicant",), (0.5, 12.0), amounts=CLOCK_JUMPS_S),
    "clock redis": Kind(3, (REDIS,), (0.5, 12.0), amounts=CLOCK_JUMPS_S),
    "drift core": Kind(2, ("core",), (4.0, 12.0), amounts=DRIFTS),
    "slow core": Kind(3, ("core",), (1.0, 6.0), amounts=DELAYS_S),
    "slow replicant": Kind(3, ("replicant",), (1.0, 6.0), amounts=DELAYS_S),
    "slow redis": Kind(3, (REDIS,), (1.0, 6.0), amounts=DELAYS_S),
    "lossy core": Kind(3, ("core",), (1.0, 6.0), amounts=LOSSES_PERCENT),
    "lossy replicant": Kind(3, ("replicant",), (1.0, 6.0), amounts=LOSSES_PERCENT),
    "stall redis": Kind(4, (REDIS,), (0.3, 5.0)),
    "fsync redis": Kind(3, (REDIS,), (0.1, 2.0)),
    "corrupt core": Kind(3, ("core",), (0.1, 2.5)),
    "empty redis": Kind(2, (REDIS,), (0.1, 1.0), alone=True),
    "older redis": Kind(2, (REDIS,), (1.0, 3.0), alone=True),
}
"""Kinds of faults, by name, that a cluster has whose Redis is one server, simulated or real; `older`: Redis failed over
to a replica that lacks the last writes."""

FAILED_OVER_S: Final = (9.0, 12.0)
"""Longer than Sentinels look on."""
UNNOTICED_S: Final = (0.5, 4.0)
"""Shorter. A primary that stands still until another one was promoted may have a last second's writes acknowledged when
it goes on: the one loss that is left to Sentinel (ARCHITECTURE.md)."""
SENTINEL_KINDS: Final = {
    "kill primary": Kind(8, (PRIMARY,), FAILED_OVER_S),
    "isolate primary": Kind(6, (PRIMARY,), FAILED_OVER_S),
    "drain primary": Kind(4, (PRIMARY,), UNNOTICED_S),
    "stop primary": Kind(4, (PRIMARY,), UNNOTICED_S),
    "stall primary": Kind(4, (PRIMARY,), UNNOTICED_S),
    "fsync primary": Kind(3, (PRIMARY,), UNNOTICED_S),
    "slow primary": Kind(3, (PRIMARY,), (1.0, 6.0), amounts=DELAYS_S),
    "clock primary": Kind(3, (PRIMARY,), (0.5, 12.0), amounts=CLOCK_JUMPS_S),
    "cut core primary": Kind(6, ("core", PRIMARY), (1.0, 6.0)),
    "cut replicant primary": Kind(5, ("replicant", PRIMARY), (1.0, 6.0)),
    "kill replica": Kind(6, (REPLICA,), (0.1, 5.0)),
    "stop replica": Kind(4, (REPLICA,), (1.0, 8.0)),
    "isolate replica": Kind(4, (REPLICA,), (1.0, 8.0)),
}
REAL_KINDS: Final = {
    "isolate redis": Kind(4, (REDIS,), (1.0, 8.0)),
    "oom redis": Kind(4, (REDIS,), (1.0, 6.0)),
}
"""That a simulated cluster hasn't got; there `fill redis` is its memory."""
MEMORY_PARTS: Final = (0.8, 0.9)
"""Of a node's memory: short, and full."""
MEMORY_KINDS: Final = {
    "crowd core": Kind(6, ("core",), (1.0, 4.0), amounts=MEMORY_PARTS),
    "crowd leader": Kind(3, (LEADER,), (1.0, 4.0), amounts=MEMORY_PARTS),
    "crowd replicant": Kind(6, ("replicant",), (1.0, 4.0), amounts=MEMORY_PARTS),
}
"""Of simulated nodes with NODE__MAX_MEMORY, where they are asked for: real ones are filled by tests/hostile."""
LONG_S: Final = (60.0, 60.0)
LONG_KINDS: Final = {
    f"{name} 60s": kind._replace(hold_s=LONG_S)
    for name, kind in (KINDS | REAL_KINDS | SENTINEL_KINDS).items()
    if name.startswith(("cut", "isolate"))
}
"""That come only where they are asked for."""
AWAY_S: Final = (7.0, 12.0)
"""Longer than nodes let a client wait for what needs Redis."""
AWAY_KINDS: Final = {
    f"{name} 10s": KINDS[name]._replace(hold_s=AWAY_S)
    for name in ("kill redis", "stop redis", "stall redis", "fill redis", "cut core redis", "cut leader redis")
}
"""The like."""
SCALE_KINDS: Final = {"scale cores": Kind(12, (CORES,), (2.0, 8.0), amounts=(5.0,))}
"""The like."""
UPGRADE_KINDS: Final = {
    "upgrade core": Kind(8, ("core",), (0.1, 2.5)),
    "upgrade replicant": Kind(8, ("replicant",), (0.1, 2.5)),
}
"""The like: a node that is of the release before comes back as one of this; another one comes back as it was."""
ASKED_FOR: Final = LONG_KINDS | AWAY_KINDS | SCALE_KINDS | UPGRADE_KINDS | MEMORY_KINDS
ALL_KINDS: Final = KINDS | REAL_KINDS | SENTINEL_KINDS | ASKED_FOR
ONE_SERVER: Final = ("empty redis", "older redis")
"""Of several the others would have to be asked what became of it."""


def kinds_for(shape: str) -> dict[str, Kind]:
    """Those that a real cluster can have whose Redis is a `server`, has `sentinel`s, or is a `cluster`."""
    if shape == "sentinel":
        return {n: kind for n, kind in ALL_KINDS.items() if REDIS not in kind.roles and n not in MEMORY_KINDS}
    others = (*MEMORY_KINDS, *(ONE_SERVER if shape == "cluster" else ()))
    is_other = {PRIMARY, REPLICA}.intersection
    return {name: kind for name, kind in ALL_KINDS.items() if not is_other(kind.roles) and name not in others}


def mix_for(shape: str) -> tuple[str, ...]:
    """Those of them that come unless others are asked for."""
    return tuple(name for name in kinds_for(shape) if name not in ASKED_FOR)


def _deposed(core: str, *others: str) -> tuple[Step, ...]:
    """An owner stands still, with writes in hand, until others have its slots, and have done what it had in hand; then
    it writes. Each slot moves once more after that, so whatever it wrote is read."""
    cut = Planned("cut core redis", (core, REDIS), 8.0, after_s=2.0)
    stop = Planned("stop core", (core,), 6.5, after_s=3.0)
    kills = (Step((Planned("kill core", (other,), 1.0),), 2.0, calm=True) for other in others)
    return Step((cut, stop), 3.0), *kills


def _late(core: str, *replicants: str) -> Step:
    """What replicants write is in the hands of a core that stands still while they are killed and purged; it passes it
    on when it goes on."""
    kills = (Planned("kill replicant", (replicant,), 5.0, after_s=2.0) for replicant in replicants)
    return Step((Planned("stop core", (core,), 7.5), *kills), 1.0, calm=True)


def _unanswered(core: str, *replicants: str) -> Step:
    """An owner takes what slot senders send, and dies before they are told; so they send it again, to the next one."""
    cuts = (Planned("cut replicant core", (core, other), 2.5, both_ways=False, after_s=2.0) for other in replicants)
    return Step((*cuts, Planned("kill core", (core,), 1.0, after_s=2.5)), 1.0, calm=True)


def _at_once(*faults: Planned) -> Step:
    return Step(faults, 1.0)


MANY_KINDS: Final = (
    _at_once(
        Planned("kill replicant", ("replicant-1",), 1.0),
        Planned("lossy core", ("core-1",), 3.0, amount=10.0),
        Planned("clock core", ("core-2",), 3.0, amount=-600.0),
    ),
    _at_once(Planned("stall redis", (REDIS,), 1.5)),
    _at_once(
        Planned("slow replicant", ("replicant-2",), 3.0, amount=0.1),
        Planned("drain replicant", ("replicant-3",), 1.0),
    ),
    _at_once(Planned("fsync redis", (REDIS,), 0.5), Planned("fill core", ("core-3",), 2.0)),
    _at_once(Planned("oom redis", (REDIS,), 1.5)),
    _at_once(Planned("isolate redis", (REDIS,), 2.0), Planned("drift core", ("core-1",), 2.0, amount=0.05)),
    _at_once(Planned("cut replicant core", ("replicant-1", "core-1"), 2.0, both_ways=False)),
    _at_once(Planned("clock redis", (REDIS,), 2.0, amount=86_400.0)),
    _at_once(Planned("fill redis", (REDIS,), 1.5), Planned("strain core", ("core-2",), 2.0, amount=0.1)),
    _at_once(Planned("kill redis", (REDIS,), 1.0)),
)
SCRIPTS: Final = {
    "many-kinds": MANY_KINDS,
    "failover": (
        _at_once(Planned("kill replica", (REPLICA,), 1.0), Planned("kill core", ("core-1",), 1.0))._replace(calm=True),
        _at_once(Planned("kill primary", (PRIMARY,), FAILED_OVER_S[0]))._replace(calm=True),
    ),
    "deposed-owner": (
        *_deposed("core-1", "core-2", "core-3"),
        *_deposed("core-2", "core-3", "core-1"),
        *_deposed("core-3", "core-1", "core-2"),
    ),
    "late-write": tuple(
        _late(core, "replicant-1", "replicant-2", "replicant-3") for core in ("core-1", "core-2", "core-3")
    ),
    "unanswered": (_unanswered("core-1", "replicant-1", "replicant-2", "replicant-3"),),
    "for-good": (
        Step((Planned("cut core redis", ("core-2", REDIS), FOR_GOOD),), 20.0),
        Step((Planned("kill replicant", ("replicant-1",), 1.0),), 20.0),
    ),
}
"""For labs of three cores and three replicants."""


def only(kinds: Collection[str], steps: Sequence[Step]) -> list[Step]:
    """Without faults of other kinds."""
    return [step._replace(faults=tuple(fault for fault in step.faults if fault.kind in kinds)) for step in steps]


def kinds_of(steps: Sequence[Step]) -> list[str]:
    return sorted({fault.kind for step in steps for fault in step.faults})


def plan(
    seed: int,
    faults: int,
    cores: Sequence[str],
    replicants: Sequence[str],
    kinds: Sequence[str] = tuple(KINDS),
    at_once: float = AT_ONCE_SHARE,
    redis: Sequence[str] = (REDIS,),
) -> list[Step]:
    """So many faults in all, of these kinds; `at_once`: the share of the steps that have more than one. Nothing comes
    behind a fault of a Redis that has replicas, before it is one whole again."""
    hosts = {"core": cores, "replicant": replicants, REDIS: redis}
    rng = random.Random(seed)
    steps: list[Step] = []
    left = faults
    while left:
        wanted = rng.randint(2, AT_ONCE_MAX) if rng.random() < at_once else 1
        chosen: list[Planned] = []
        touched: set[str] = set()
        for kind in _some(rng, min(wanted, left), kinds):
            planned = _fault(rng, kind, hosts)
            touches = {PRIMARY if target == REPLICA else target for target in planned.targets}
            if not touched & touches and not (ALL_KINDS[kind].alone and chosen):
                chosen.append(planned._replace(after_s=rng.uniform(0.0, APART_MAX_S) if chosen else 0.0))
                touched |= touches
            if ALL_KINDS[kind].alone:
                break
        pause_s = rng.uniform(*PAUSE_S)
        if any(ALL_KINDS[planned.kind].alone for planned in chosen):
            pause_s = max(pause_s, WRITTEN_ANEW_S)
        steps.append(Step(tuple(chosen), pause_s, calm=PRIMARY in touched))
        left -= len(chosen)
    return steps


def _some(rng: random.Random, count: int, kinds: Sequence[str]) -> list[str]:
    return rng.choices(kinds, weights=[ALL_KINDS[kind].weight for kind in kinds], k=count)


def _fault(rng: random.Random, name: str, hosts: Mapping[str, Sequence[str]]) -> Planned:
    kind = ALL_KINDS[name]
    targets: list[str] = []
    for role in kind.roles:
        if role == CORES:
            targets += hosts["core"]
        else:
            targets.append(rng.choice([host for host in hosts.get(role, (role,)) if host not in targets]))
    if name.startswith("cut"):
        rng.shuffle(targets)
    both_ways = rng.random() < 0.5 if name.startswith(("cut", "isolate")) else True
    amount = rng.choice(kind.amounts) if len(kind.amounts) > 1 else kind.amounts[0]
    return Planned(name, tuple(targets), rng.uniform(*kind.hold_s), both_ways, amount)
