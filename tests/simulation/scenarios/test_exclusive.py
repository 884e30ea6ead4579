"""`$exclusive/FILTER` is one client's in the whole cluster; another hears 0x97.

Redis is slow, so that what a node writes is known to the others some time after it, every time.
"""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Final

import pytest

from simulation.cluster import Shape, SimulatedCluster
from simulation.profiles import BY_RULES
from simulation.scenario import Client, scenario

FILTER: Final = "$exclusive/t"
GRANTED, TAKEN = 1, 0x97
SLOW_S: Final = 0.1
ASKED_AGAIN_S: Final = 0.01
RAISED_S: Final = 30.0
"""By then a cluster whose nodes all speak a version is at it, and claims are as they are in that version."""
MOVED_S: Final = 3.0
"""By then the slots of a node that died have another owner, which has their sessions."""
UNUSED_S: Final = 21.0
"""By then a node has looked twice at the filters that it holds."""
GIVEN_UP_S: Final = 8.0
"""By then a node that hears nothing from Redis has left its connection."""
BEGUN_S: Final = 1.0
"""By then cores that reach Redis again have begun another generation of the log."""
BY_PLACES: Final = (
    (
        "AUTHORIZATION__SOURCES",
        '[{"type": "built_in_database"},'
        ' {"type": "file", "rules": [{"permit": "deny", "ipaddr": ["203.0.113.0/24"], "topics": ["none"]}]}]',
    ),
    ("AUTHORIZATION__NO_MATCH", "allow"),
)


async def asked_again(client: Client, filter: str, seconds: float) -> list[int]:
    """What it hears, again and again."""
    now = asyncio.get_running_loop().time
    heard, until_s = [], now() + seconds
    while now() < until_s:
        heard.append(await client.subscribe(filter))
        await asyncio.sleep(ASKED_AGAIN_S)
    return heard


async def keep_writing(cluster: SimulatedCluster, core: str) -> None:
    """What else the core writes to the log waits for what is under way."""
    writer = await Client.connect(cluster, f"writer-{core}", at=core, clean=True)
    while True:
        writer.send("w", b"", 1, retain=True)
        await asyncio.sleep(ASKED_AGAIN_S)


def slow_redis(cluster: SimulatedCluster) -> None:
    for name in cluster.nodes:
        cluster.slow(name, "redis", SLOW_S)


@scenario()
async def test_a_filter_that_its_client_gave_back_is_anothers(cluster: SimulatedCluster) -> None:
    owner = await Client.connect(cluster, "owner", at="replicant-1", expiry_s=60)
    rival = await Client.connect(cluster, "rival", at="replicant-2")
    assert await owner.subscribe(FILTER) == GRANTED
    assert set(await asked_again(rival, FILTER, 0.3)) == {TAKEN}
    assert await owner.unsubscribe(FILTER) == 0
    await asyncio.sleep(1.0)
    assert await rival.subscribe(FILTER) == GRANTED


@pytest.mark.parametrize("end", ["kill", "drain"])
@scenario()
async def test_nobody_gets_the_filter_of_a_session_whose_owner_ends(cluster: SimulatedCluster, end: str) -> None:
    owner = await Client.connect(cluster, "owner", at="replicant-1", expiry_s=60)
    rival = await Client.connect(cluster, "rival", at="replicant-2")
    assert await owner.subscribe(FILTER) == GRANTED
    slow_redis(cluster)
    owner = cluster.hosts[cluster.owner_of("owner")]
    heard, _ = await asyncio.gather(asked_again(rival, FILTER, MOVED_S), getattr(owner, end)())
    assert set(heard) == {TAKEN}


@pytest.mark.parametrize("end", ["kill", "drain"])
@scenario()
async def test_clients_are_granted_their_own_filters_while_slots_move(cluster: SimulatedCluster, end: str) -> None:
    names = cluster.clients_of("core-1", 4)
    busy = [asyncio.create_task(keep_writing(cluster, core)) for core in ("core-2", "core-3")]
    owners = [await Client.connect(cluster, name, at="replicant-1", expiry_s=60) for name in names]
    for owner in owners:
        assert await owner.subscribe(f"$exclusive/{owner.name}") == GRANTED
    slow_redis(cluster)
    *heard, _ = await asyncio.gather(
        *(asked_again(owner, f"$exclusive/{owner.name}", MOVED_S) for owner in owners),
        getattr(cluster.hosts["core-1"], end)(),
    )
    assert not any(task.done() for task in busy)
    assert [set(each) for each in heard] == [{GRANTED}] * len(owners)


@scenario()
async def test_a_clean_session_keeps_its_filter_for_as_long_as_it_lasts(cluster: SimulatedCluster) -> None:
    owner = await Client.connect(cluster, "owner", at="replicant-1", clean=True)
    rival = await Client.connect(cluster, "rival", at="replicant-2")
    assert await owner.subscribe(FILTER) == GRANTED
    await asyncio.sleep(UNUSED_S)
    assert await rival.subscribe(FILTER) == TAKEN


@scenario(Shape(old=("core-3",)))
async def test_who_got_a_filter_from_an_older_release_keeps_it_behind_an_upgrade(cluster: SimulatedCluster) -> None:
    names = [*cluster.clients_of("core-1", 1), *cluster.clients_of("core-3", 1)]
    owners = [await Client.connect(cluster, name, at="replicant-1", expiry_s=600) for name in names]
    rival = await Client.connect(cluster, "rival", at="replicant-2", clean=True)
    for owner in owners:
        assert await owner.subscribe(f"$exclusive/{owner.name}") == GRANTED
    older = cluster.nodes["core-3"]
    await older.drain()
    older.speaks = 2
    await older.start()
    await cluster.until_ready()
    await asyncio.sleep(RAISED_S)
    slow_redis(cluster)
    await cluster.hosts[cluster.owner_of(names[0])].kill()
    for owner in owners:
        assert set(await asked_again(rival, f"$exclusive/{owner.name}", MOVED_S)) == {TAKEN}
        assert await owner.subscribe(f"$exclusive/{owner.name}") == GRANTED
        assert await owner.unsubscribe(f"$exclusive/{owner.name}") == 0
        await asyncio.sleep(1.0)
        assert await rival.subscribe(f"$exclusive/{owner.name}") == GRANTED


@scenario(Shape(old=("core-3",)))
async def test_what_a_session_that_moved_gives_back_is_anothers_amid_an_upgrade(cluster: SimulatedCluster) -> None:
    """Its former owner lives, and claims are nodes'."""
    back = cluster.nodes["core-2"]
    await back.drain()
    await asyncio.sleep(MOVED_S)
    names = [*cluster.clients_of("core-1", 6), *cluster.clients_of("core-3", 6)]
    owners = [await Client.connect(cluster, name, at="replicant-1", expiry_s=600) for name in names]
    rival = await Client.connect(cluster, "rival", at="replicant-2", clean=True)
    for owner in owners:
        assert await owner.subscribe(f"$exclusive/{owner.name}") == GRANTED
    await back.start()
    await asyncio.sleep(MOVED_S)
    moved = [owner for owner in owners if cluster.owner_of(owner.name) == "core-2"]
    assert moved
    for owner in moved:
        assert set(await asked_again(rival, f"$exclusive/{owner.name}", 0.1)) == {TAKEN}
        assert await owner.unsubscribe(f"$exclusive/{owner.name}") == 0
    await asyncio.sleep(1.0)
    for owner in moved:
        assert await rival.subscribe(f"$exclusive/{owner.name}") == GRANTED


@pytest.mark.parametrize("its_owner_dies", [False, True])
@scenario(Shape(settings=BY_RULES))
async def test_a_filter_that_a_client_may_have_no_more_is_anothers_while_it_is_away(
    cluster: SimulatedCluster, its_owner_dies: bool
) -> None:
    owner = await Client.connect(cluster, "owner", at="replicant-1", expiry_s=600)
    rival = await Client.connect(cluster, "rival", at="replicant-2", clean=True)
    for filter in (FILTER, "$exclusive/other", "t"):
        assert await owner.subscribe(filter) == GRANTED
    owner.drop()
    if its_owner_dies:
        await cluster.hosts[cluster.owner_of("owner")].kill()
        await asyncio.sleep(UNUSED_S)
    await cluster.admin.deafen("replicant-2", "owner", "nothing that it has")
    await asyncio.sleep(1.0)
    assert await rival.subscribe(FILTER) == TAKEN
    await cluster.admin.deafen("replicant-2", "owner", "t")
    await asyncio.sleep(2.0)
    assert await rival.subscribe(FILTER) == GRANTED
    assert await rival.subscribe("$exclusive/other") == TAKEN
    back = await Client.connect(cluster, "owner", at="replicant-1", expiry_s=600)
    assert back.present
    assert await rival.publish("other", b"still its own") < 0x80
    assert await back.receives(b"still its own")
    assert await back.unsubscribe(FILTER) == 0x11, "it has ended"


@scenario(Shape(settings=BY_PLACES))
async def test_of_whom_more_must_be_known_it_is_judged_when_it_is_back(cluster: SimulatedCluster) -> None:
    owner = await Client.connect(cluster, "owner", at="replicant-1", expiry_s=600)
    rival = await Client.connect(cluster, "rival", at="replicant-2", clean=True)
    assert await owner.subscribe(FILTER) == GRANTED
    owner.drop()
    await cluster.admin.deafen("replicant-2", "owner", "t")
    await asyncio.sleep(UNUSED_S)
    assert await rival.subscribe(FILTER) == TAKEN
    await Client.connect(cluster, "owner", at="replicant-1", expiry_s=600)
    await asyncio.sleep(2.0)
    assert await rival.subscribe(FILTER) == GRANTED


@pytest.mark.parametrize("expiry_s", [0, 60])
@scenario()
async def test_a_claim_that_redis_lost_before_most_cores_read_it_grants_nothing(
    cluster: SimulatedCluster, expiry_s: int
) -> None:
    """Who wrote it writes it again, behind what others have written by then."""
    (redis,) = cluster.redis
    owner = await Client.connect(cluster, "owner", at="replicant-1", expiry_s=expiry_s, clean=not expiry_s)
    rival = await Client.connect(cluster, "rival", at="replicant-2", clean=True)
    writer = cluster.nodes["replicant-1"].assembly
    assert writer is not None
    core = cluster.owner_of("owner") if expiry_s else writer.cluster.core_port.core.partition("@")[0]
    knowing = (core, "replicant-1")
    others = [name for name in cluster.nodes if name not in knowing]
    for other in others:
        cluster.cut(redis.name, other)
    asked = [asyncio.create_task(owner.subscribe(FILTER))]
    await asyncio.sleep(SLOW_S)
    await redis.kill()
    redis.empty()
    for knows in knowing:
        cluster.cut(knows, redis.name)
    await redis.start()
    await asyncio.sleep(GIVEN_UP_S)
    for knows, other in product(knowing, others):
        cluster.cut(knows, other)
        cluster.cut(other, knows)
    for other in others:
        cluster.mend(redis.name, other)
    await asyncio.sleep(BEGUN_S)
    asked.append(asyncio.create_task(rival.subscribe(FILTER)))
    await asyncio.sleep(BEGUN_S)
    for knows, other in product(knowing, others):
        cluster.mend(knows, other)
        cluster.mend(other, knows)
    for knows in knowing:
        cluster.mend(knows, redis.name)
    heard = await asyncio.gather(*asked, return_exceptions=True)
    assert heard.count(GRANTED) < 2
    again = await Client.connect(cluster, "owner", at="replicant-1", expiry_s=expiry_s, clean=not expiry_s)
    last = [await asked_again(client, FILTER, MOVED_S) for client in (again, rival)]
    assert [GRANTED in each for each in last].count(True) == 1
