"""An operator may be killed after any write: the next one brings the same about."""

import copy
from datetime import datetime, timedelta, tzinfo

import pytest

from flockmq_operator import reconcile
from flockmq_operator.manifest import Manifest, Ref
from unit.operator.crashes import DEMO, Guard, MortalWorld, Walk, state_of
from unit.operator.test_hibernation import BACKUPS
from unit.operator.test_plan import NEWER
from unit.operator.world import mqtt_cluster

EDIT_OF_ALL: Manifest = {"imagePullSecrets": [{"name": "registry"}]}
REDIS_OF_3: Manifest = {"redis": {"replicas": 3}}
LISTENER: Manifest = {"listeners": [{"name": "inside", "port": 1884}]}
BACKUP: Manifest = {"backup": {"schedule": "0 3 * * *", "claimName": "backups"}}
RESTORE: Manifest = {"restore": {"claimName": "backups", "backup": "demo"}}
AUTOSCALING: Manifest = {"autoscaling": {"minReplicas": 4, "maxReplicas": 9}}
FEW, MANY = {"replicants": {"replicas": 3}}, {"replicants": {"replicas": 5}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    return Clock(monkeypatch)


class Clock:
    """Has the operator see a world's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, now: datetime) -> None:
        class Now(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return now

        self._monkeypatch.setattr(reconcile, "datetime", Now)


async def running(walk: Walk, spec: Manifest, guard: Guard, *others: Manifest) -> MortalWorld:
    world = MortalWorld(Guard(is_whole=False), mqtt_cluster(copy.deepcopy(spec)), *copy.deepcopy(others))
    await walk.road(world)
    world.guard, world.count = guard, 0
    return world


@pytest.mark.parametrize(
    ("before", "after", "least"),
    [
        (REDIS_OF_3, REDIS_OF_3 | EDIT_OF_ALL, 2),
        (REDIS_OF_3, {"redis": {"replicas": 5}}, 2),
        ({}, LISTENER, 2),
        (FEW, MANY, 3),
        (MANY, AUTOSCALING, 4),
        ({}, {"replicants": {"replicas": 0}}, 0),
        ({"replicants": {"replicas": 0}}, {}, 0),
        ({}, {"cores": {"replicas": 5}}, 2),
        ({"cores": {"replicas": 5}}, {}, 2),
        ({}, {"cores": {"storage": {"size": "2Gi"}}, "report": {"storage": {"size": "2Gi"}}}, 2),
        ({}, BACKUP, 2),
        (BACKUP, {"report": {"enabled": False}}, 2),
    ],
)
async def test_an_edit_ends_the_same(clock: Clock, before: Manifest, after: Manifest, least: int) -> None:
    walk = Walk(clock)
    world = await running(walk, before, Guard(least), BACKUPS)
    world.edit(after)
    assert await walk.killed_anywhere(await walk.road(world)) > 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, EDIT_OF_ALL | LISTENER),
        ({}, {"cores": {"replicas": 5}}),
        ({"cores": {"replicas": 5}}, {}),
        ({}, {"replicants": {"replicas": 0}}),
        (REDIS_OF_3 | BACKUP, REDIS_OF_3 | BACKUP | {"hibernate": True}),
    ],
)
async def test_an_edit_that_is_taken_back_amid_it_leaves_nothing(
    clock: Clock, before: Manifest, after: Manifest
) -> None:
    walk = Walk(clock)
    world = await running(walk, before, Guard(), BACKUPS)
    began = state_of(world)
    world.edit(after)
    await walk.taken_back_anywhere(await walk.road(world), before, began)


@pytest.mark.parametrize("spec", [{}, REDIS_OF_3 | BACKUP | AUTOSCALING, RESTORE])
async def test_a_new_cluster_ends_the_same(clock: Clock, spec: Manifest) -> None:
    walk = Walk(clock)
    world = MortalWorld(Guard(), mqtt_cluster(spec), copy.deepcopy(BACKUPS))
    assert await walk.killed_anywhere(await walk.road(world)) > 10


@pytest.mark.parametrize(("before", "after"), [({}, {"hibernate": True}), ({"hibernate": True}, {})])
async def test_a_cluster_falls_asleep_and_wakes_the_same(clock: Clock, before: Manifest, after: Manifest) -> None:
    walk = Walk(clock)
    world = await running(walk, REDIS_OF_3 | BACKUP, Guard(), BACKUPS)
    if before:
        world.edit(REDIS_OF_3 | BACKUP | before)
        await walk.road(world)
    world.edit(REDIS_OF_3 | BACKUP | after)
    assert await walk.killed_anywhere(await walk.road(world)) > 3


async def test_an_upgrade_of_the_operator_ends_the_same(clock: Clock) -> None:
    spec: Manifest = {"update": "Automatic"}
    world = await running(Walk(clock), spec, Guard(2))
    newer = Walk(clock, settings=NEWER)
    assert await newer.killed_anywhere(await newer.road(world)) > 5


async def test_a_key_is_replaced_the_same(clock: Clock) -> None:
    walk = Walk(clock)
    world = await running(walk, {}, Guard(2))
    world.edit({"clusterKeyRotation": "1"})
    hourly = Walk(clock, timedelta(minutes=61))
    assert await hourly.killed_anywhere(await hourly.road(world)) > 3


async def test_certificates_and_authorities_are_renewed_the_same(clock: Clock) -> None:
    walk = Walk(clock)
    world = await running(walk, {}, Guard(2))
    world.now += timedelta(days=2 * 365 + 10)
    daily = Walk(clock, timedelta(hours=25))
    assert await daily.killed_anywhere(await daily.road(world)) > 3


async def test_a_secret_that_was_restored_is_adopted_the_same(clock: Clock) -> None:
    walk = Walk(clock)
    world = await running(walk, {}, Guard(2))
    for name in ("demo-cluster-key", "demo-redis"):
        del world.objects[Ref("Secret", name)]["metadata"]["ownerReferences"]
    assert await walk.killed_anywhere(await walk.road(world)) >= 2
    assert "status" in world.objects[DEMO]
