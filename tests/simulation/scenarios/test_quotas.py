"""What a user has is counted right wherever its sessions run, and whoever died."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from flockmq.config.schema import QuotasSettings
from flockmq.durable.session import DurableSession
from flockmq.durable.session_service import SessionService
from flockmq.quotas import NOTHING, Held
from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import ANSWER_MAX_S, Client, Refused, scenario

ANONYMOUS: Final = b""
"""The one user here."""
SESSIONS: Final = 12
IDENTIFYING: Final = (
    ("AUTHENTICATION__CHAIN", '[{"mechanism": "password_based:built_in_database"}]'),
    ("QUOTAS__MAX_SESSIONS", str(SESSIONS)),
)


def counted_anew(service: SessionService) -> Held:
    """What the sessions at one owner take, gone through one by one."""
    total = NOTHING
    for session in service.sessions.by_id.values():
        assert isinstance(session, DurableSession)
        filters = [subscription.filter for subscription in session.subscriptions.all()]
        total = total.plus(Held(1, session.quota.stored_bytes(), len(filters), sum(map(len, filters))))
    return total


def check(cluster: SimulatedCluster) -> Held:
    """Each owner counts what it has; the sum."""
    total = NOTHING
    for core in cluster.cores:
        if core.is_ready:
            node = core.running.node
            assert node.durable_host is not None
            here = node.quotas.quotas.of(ANONYMOUS).here()
            assert here == counted_anew(node.durable_host.session_service), core.name
            total = total.plus(here)
    return total


def all_know(cluster: SimulatedCluster, sessions: int) -> bool:
    nodes = [node.running.node for node in cluster.nodes.values() if node.is_ready]
    return all(node.quotas.quotas.total(ANONYMOUS).sessions == sessions for node in nodes)


async def until_all_know(cluster: SimulatedCluster, sessions: int) -> None:
    async with asyncio.timeout(2 * ANSWER_MAX_S):
        while not all_know(cluster, sessions):  # noqa: ASYNC110 - simulated time
            await asyncio.sleep(0.1)


@scenario(Shape(settings=IDENTIFYING))
async def test_what_a_user_has_is_counted_by_the_next_owner(cluster: SimulatedCluster) -> None:
    names = [name for core in cluster.cores for name in cluster.clients_of(core.name, SESSIONS // len(cluster.cores))]
    assert len(names) == SESSIONS
    clients = [await Client.connect(cluster, name, at="replicant-1", expiry_s=600) for name in names]
    for client in clients:
        assert await client.subscribe("t/#") == 1
    for client in clients[::2]:
        client.drop()
    publisher = await Client.connect(cluster, "publisher", at="replicant-2", clean=True)
    for number in range(10):
        assert await publisher.publish("t/a", b"%d" % number * 50) < 0x80
    await until_all_know(cluster, SESSIONS)
    before = check(cluster)
    assert before.queued_bytes > 10 * 50 * SESSIONS // 2
    with pytest.raises(Refused, match="0x97"):
        await Client.connect(cluster, "one-more", at="replicant-2", expiry_s=600)

    await cluster.hosts["core-1"].kill()
    await cluster.until_moved(names[0], "core-1")
    await until_all_know(cluster, SESSIONS)
    assert check(cluster).sessions == SESSIONS
    for client in clients[::2]:
        back = await Client.connect(cluster, client.name, at="replicant-2", expiry_s=600)
        assert back.present
        assert await back.receives(b"9" * 50)
        back.link.end(b"")
    for client in clients[1::2]:
        assert await client.receives(b"9" * 50)
    await asyncio.sleep(1.0)
    after = check(cluster)
    assert after.queued_bytes < before.queued_bytes // 2, "what was acknowledged is given back"

    ended = await Client.connect(cluster, names[1], at="replicant-1", expiry_s=0, clean=True)
    ended.drop()
    await until_all_know(cluster, SESSIONS - 1)
    await Client.connect(cluster, "one-more", at="replicant-2", expiry_s=600)
    await until_all_know(cluster, SESSIONS)
    check(cluster)


@scenario(Shape(settings=(("MQTT__CLIENT_ID_BINDING", "user"), ("QUOTAS__MAX_SESSIONS", "1"))))
async def test_where_client_ids_are_bound_clients_are_who_they_say_they_are(cluster: SimulatedCluster) -> None:
    await Client.connect(cluster, "first", at="replicant-1", expiry_s=600)
    await until_all_know(cluster, 1)
    with pytest.raises(Refused, match="0x97"):
        await Client.connect(cluster, "second", at="replicant-2", expiry_s=600)


@scenario(Shape(settings=(("MQTT__CLIENT_ID_BINDING", "user"), ("QUOTAS__MAX_SESSIONS", "2"))))
async def test_one_users_own_quota_holds_on_every_node_whoever_dies(cluster: SimulatedCluster) -> None:
    """Nobody made these users: quotas belong to a name, whoever lets it in."""

    async def begins(client: str, user: bytes, at: str) -> bool:
        try:
            await Client.connect(cluster, client, at=at, expiry_s=600, user=user)
        except Refused:
            return False
        await asyncio.sleep(1.5)  # owners tell one another, of a user's first session each second
        return True

    admin = cluster.cores[0].running.node.quotas.admin
    await admin.put("large", QuotasSettings(max_sessions=4))
    await admin.put("small", QuotasSettings(max_sessions=1))
    await asyncio.sleep(1.0)  # all nodes have read it
    for user, most in ((b"large", 4), (b"small", 1), (b"other", 2)):
        began = [await begins(f"{user.decode()}-{number}", user, "replicant-1") for number in range(5)]
        assert began == [True] * most + [False] * (5 - most), user

    (moved,) = cluster.clients_of("core-1", 1)
    await cluster.hosts["core-1"].kill()
    await cluster.until_moved(moved, "core-1")
    await cluster.hosts["core-1"].start()
    await cluster.until_ready()
    await asyncio.sleep(2.0)  # owners tell one another
    for user, most in ((b"large", 4), (b"small", 1), (b"other", 2)):
        assert await begins(f"{user.decode()}-0", user, "replicant-2"), "one that is there goes on"
        assert not await begins(f"{user.decode()}-{most}", user, "replicant-2")

    admin = cluster.nodes["core-1"].running.node.quotas.admin
    await admin.remove("small")
    await admin.put("large", QuotasSettings(max_sessions=5))
    await asyncio.sleep(1.0)
    assert [await begins(f"small-{number}", b"small", "replicant-1") for number in (1, 2)] == [True, False]
    assert [await begins(f"large-{number}", b"large", "replicant-1") for number in (4, 5)] == [True, False]


SUBSCRIPTIONS: Final = 320
SUBSCRIBING: Final = (
    ("AUTHENTICATION__CHAIN", '[{"mechanism": "password_based:built_in_database"}]'),
    ("QUOTAS__MAX_SUBSCRIPTIONS", str(SUBSCRIPTIONS)),
)


async def subscribed(client: Client, filters: int) -> int:
    """How many of them it was granted, asked for all at once."""
    asked = [client.subscribe(f"{client.name}/{number}") for number in range(filters)]
    return sum(reason < 0x80 for reason in await asyncio.gather(*asked))


async def begun(cluster: SimulatedCluster, at: str, names: list[str], clean: bool) -> list[Client]:
    expiry_s = 0 if clean else 600
    return [await Client.connect(cluster, name, at=at, clean=clean, expiry_s=expiry_s) for name in names]


@pytest.mark.parametrize("clean", [True, False])
@scenario(Shape(settings=SUBSCRIBING))
async def test_a_burst_at_all_nodes_passes_a_quota_by_a_sixteenth_for_each(
    cluster: SimulatedCluster, clean: bool
) -> None:
    names = {node: [f"{node}-{number}" for number in range(4)] for node in cluster.nodes}
    clients = [client for node in cluster.nodes for client in await begun(cluster, node, names[node], clean)]
    granted = sum(await asyncio.gather(*(subscribed(client, 40) for client in clients)))
    assert SUBSCRIPTIONS <= granted <= SUBSCRIPTIONS * (1 + len(cluster.nodes) / 16)


@pytest.mark.parametrize("clean", [True, False])
@scenario(Shape(settings=SUBSCRIBING))
async def test_a_fleet_that_comes_back_elsewhere_at_once_is_not_refused(cluster: SimulatedCluster, clean: bool) -> None:
    here, there = ("replicant-1", "replicant-2") if clean else ("core-1", "replicant-2")
    names = [f"fleet-{number}" for number in range(30)]
    clients = await begun(cluster, here, names, clean)
    assert await asyncio.gather(*(subscribed(client, 10) for client in clients)) == [10] * 30
    await asyncio.sleep(2.0)  # all nodes know
    await cluster.hosts[here].kill()
    back = await begun(cluster, there, [f"new-{name}" for name in names] if clean else names, clean)
    assert await asyncio.gather(*(subscribed(client, 10) for client in back)) == [10] * 30


RETAINED_BYTES: Final = 64 * 1024
RETAINING: Final = (
    ("AUTHENTICATION__CHAIN", '[{"mechanism": "password_based:built_in_database"}]'),
    ("QUOTAS__MAX_RETAINED_BYTES", str(RETAINED_BYTES)),
)


async def retained(client: Client, messages: int) -> int:
    """How many of them it was granted, sent all at once."""
    asked = [client.publish(f"{client.name}/{number}", b"x" * 500, retain=True) for number in range(messages)]
    return sum(reason < 0x80 for reason in await asyncio.gather(*asked))


@pytest.mark.parametrize("messages", [4, 30])
@scenario(Shape(settings=RETAINING))
async def test_what_all_nodes_retain_at_once_passes_a_quota_by_a_sixteenth_for_each(
    cluster: SimulatedCluster, messages: int
) -> None:
    names = {node: [f"{node}-{number}" for number in range(4)] for node in cluster.nodes}
    clients = [client for node in cluster.nodes for client in await begun(cluster, node, names[node], True)]
    granted = sum(await asyncio.gather(*(retained(client, messages) for client in clients)))
    stored = cluster.cores[0].running.node.quotas.quotas.stored_bytes(ANONYMOUS)
    assert stored <= RETAINED_BYTES * (1 + len(cluster.nodes) / 16)
    assert granted == len(clients) * messages or stored > RETAINED_BYTES * 0.9


@pytest.mark.parametrize("sessions", [2, 20])
@scenario(Shape(settings=(IDENTIFYING[0], ("QUOTAS__MAX_SESSIONS", "50"))))
async def test_sessions_that_begin_at_all_nodes_at_once_pass_a_quota_by_a_sixteenth_for_each(
    cluster: SimulatedCluster, sessions: int
) -> None:
    async def begins(node: str, number: int) -> bool:
        try:
            await Client.connect(cluster, f"{node}-{number}", at=node, expiry_s=600)
        except Refused:
            return False
        return True

    asked = [begins(node, number) for node in cluster.nodes for number in range(sessions)]
    began = sum(await asyncio.gather(*asked))
    assert min(50, len(asked)) <= began <= 50 * (1 + len(cluster.cores) / 16)
