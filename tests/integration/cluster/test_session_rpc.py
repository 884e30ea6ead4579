"""One connection holds a client id, wherever it is."""

from __future__ import annotations

import asyncio

import pytest

from flockmq.routing.slots import slot_of
from flockmq.session_rpc.messages import Admission, OwnerUnreachable, Superseded

from .conftest import Node, Nodes, until

IDS = [b"client-%d" % n for n in range(200)]


@pytest.fixture
async def four(nodes: Nodes) -> list[Node]:
    started = [await nodes.start("core-0", "core"), await nodes.start("core-1", "core")]
    started += [await nodes.start("replicant-0", "replicant"), await nodes.start("replicant-1", "replicant")]
    await nodes.settled()
    return started


async def test_a_newer_connection_takes_over_across_nodes(four: list[Node]) -> None:
    _, _, first, second = four
    older = await asyncio.gather(*(first.clients.connect(client_id) for client_id in IDS))
    newer = await asyncio.gather(*(second.clients.connect(client_id) for client_id in IDS))
    assert all(new > old for old, new in zip(older, newer, strict=True))
    assert sorted(first.clients.kicked) == sorted(zip(IDS, older, strict=True))
    assert not first.clients.held
    assert len(second.clients.held) == len(IDS)


async def test_an_owner_answers_its_own_node_at_once(four: list[Node]) -> None:
    core = four[0]
    mine = next(client_id for client_id in IDS if core.cluster.slots.owners[slot_of(client_id)] == core.incarnation)
    answers: list[object] = []
    core.rpc.client.attach(mine, None, answers.append)
    assert len(answers) == 1
    assert isinstance(answers[0], Admission)


async def test_of_connections_that_come_together_one_stays(four: list[Node]) -> None:
    attempts = [node.clients.connect(b"same") for node in four for _ in range(1)]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert all(isinstance(result, int | Superseded) for result in results)
    await until(lambda: sum(b"same" in node.clients.held for node in four) == 1)
    (holder,) = [node for node in four if b"same" in node.clients.held]
    assert holder.clients.held[b"same"] == max(result for result in results if isinstance(result, int))


async def test_a_detached_client_leaves_nothing_behind(four: list[Node]) -> None:
    replicant = four[2]
    tokens = await asyncio.gather(*(replicant.clients.connect(client_id) for client_id in IDS))
    assert sum(len(node.rpc.server.registry) for node in four) == len(IDS)
    for client_id, token in zip(IDS, tokens, strict=True):
        replicant.clients.detach(client_id, token)
    await until(lambda: sum(len(node.rpc.server.registry) for node in four) == 0)


async def test_the_death_of_an_owner_keeps_the_one_connection(nodes: Nodes, four: list[Node]) -> None:
    core, dying, first, second = four
    older = await asyncio.gather(*(first.clients.connect(client_id) for client_id in IDS))
    await nodes.crash(dying)
    await nodes.settled()
    await until(lambda: len(core.rpc.server.registry) == len(IDS))
    newer = await asyncio.gather(*(second.clients.connect(client_id) for client_id in IDS))
    assert all(new > old for old, new in zip(older, newer, strict=True))
    await until(lambda: not first.clients.held)
    assert len(second.clients.held) == len(IDS)


async def test_a_new_owner_is_told_who_is_connected(nodes: Nodes, four: list[Node]) -> None:
    _, _, first, second = four
    await asyncio.gather(*(first.clients.connect(client_id) for client_id in IDS))
    third = await nodes.start("core-2", "core")
    await nodes.settled()
    moved = sum(third.cluster.slots.owners[slot_of(client_id)] == third.incarnation for client_id in IDS)
    assert moved
    await until(lambda: len(third.rpc.server.registry) == moved)
    await asyncio.gather(*(second.clients.connect(client_id) for client_id in IDS))
    await until(lambda: not first.clients.held)


async def test_connections_of_a_dead_node_are_not_waited_for(nodes: Nodes, four: list[Node]) -> None:
    _, _, dying, other = four
    await asyncio.gather(*(dying.clients.connect(client_id) for client_id in IDS))
    await nodes.crash(dying)
    await asyncio.gather(*(other.clients.connect(client_id) for client_id in IDS))
    assert len(other.clients.held) == len(IDS)


async def test_without_an_owner_an_attach_ends_in_an_error(nodes: Nodes, four: list[Node]) -> None:
    *cores, replicant, _ = four
    for core in cores:
        await nodes.crash(core)
    with pytest.raises(OwnerUnreachable, match="did not answer in time"):
        await replicant.clients.connect(b"somebody")


async def test_cut_links_delay_attaches_and_lose_none(four: list[Node]) -> None:
    *_, first, second = four
    attempts = [asyncio.ensure_future(first.clients.connect(client_id)) for client_id in IDS]
    await asyncio.sleep(0)
    first.cut_links()
    await asyncio.gather(*attempts)
    attempts = [asyncio.ensure_future(second.clients.connect(client_id)) for client_id in IDS]
    await asyncio.sleep(0)
    first.cut_links()
    await asyncio.gather(*attempts)
    await until(lambda: not first.clients.held)
    assert len(second.clients.held) == len(IDS)
