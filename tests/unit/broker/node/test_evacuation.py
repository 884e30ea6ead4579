"""What an evacuation believes of the other nodes, and for how long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from flockmq.bounds import EVICTION_LOOK_S
from flockmq.management.view import ClusterState, Member
from flockmq.node.evacuation import Evacuation
from flockmq.node.eviction_pace import Draining

ANOTHER = Member(
    name="other", incarnation="other@1", role="replicant", version="", host="", slots=0, heard=True, ready=True
)


class Asked:
    """A core that answers when it is told to."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[ClusterState] = asyncio.get_running_loop().create_future()
        self.times = 0

    async def state(self) -> ClusterState:
        self.times += 1
        return await asyncio.shield(self.answer)


def answer(*nodes: Member) -> ClusterState:
    return ClusterState(told_by="core", stale=False, leader=None, slots_without_owner=0, nodes=list(nodes))


def evacuation(asked: Asked) -> tuple[Evacuation, Any]:
    access = SimpleNamespace(sends_away=False)
    clients: Any = SimpleNamespace(by_id={}, attaching=set(), hold_s=0.0)
    reactor: Any = SimpleNamespace(
        channels=list, end_turn=lambda: None, router=SimpleNamespace(counters=SimpleNamespace(evictions=0))
    )
    cluster: Any = SimpleNamespace(
        is_core=False,
        incarnation="me@1",
        settings=SimpleNamespace(name="me"),
        version=SimpleNamespace(at_least=lambda version: True),
    )
    as_access: Any = access
    return Evacuation(clients, as_access, reactor, cluster, asked.state, Draining()), access


async def _soon() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_heard_as_an_evacuation_stops_counts_for_no_later_one() -> None:
    asked = Asked()
    evacuated, access = evacuation(asked)
    evacuated.start()
    await _soon()
    asked.answer.set_result(answer(ANOTHER))
    await asyncio.sleep(0)
    evacuated.stop()
    await _soon()
    asked.answer = asyncio.get_running_loop().create_future()
    evacuated.start()
    await _soon()
    assert not access.sends_away, "nobody has said since that another node takes clients"
    evacuated.stop()


async def test_an_answer_that_cant_be_read_is_none_and_the_next_one_counts() -> None:
    asked = Asked()
    evacuated, access = evacuation(asked)
    asked.answer.set_exception(ValueError("of a later release"))
    evacuated.start()
    await asyncio.sleep(EVICTION_LOOK_S / 2)
    asked.answer = asyncio.get_running_loop().create_future()
    asked.answer.set_result(answer(ANOTHER))
    await asyncio.sleep(EVICTION_LOOK_S)
    assert asked.times >= 2
    assert access.sends_away
    evacuated.stop()
    assert not access.sends_away
