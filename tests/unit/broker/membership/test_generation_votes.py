"""What cores say about their positions, and to whom."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from flockmq.membership.generation_votes import GenerationVotes, VoteAnswer, VoteRequest, serve
from flockmq.membership.link_requests import Refusal
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.generation import Report
from flockmq.rlog.schema import ROUTE

WANTED = StreamId(2, 5)


class Link:
    """To a core that says where it is; None: it doesn't answer, or refuses."""

    def __init__(self, name: str, answer: StreamId | Refusal | None) -> None:
        self.peer = SimpleNamespace(incarnation=f"{name}@1")
        self.answer = answer
        self.asked: list[VoteRequest] = []
        self.is_given_up = False

    async def request(self, method: str, body: bytes) -> bytes:
        self.asked.append(msgspec.msgpack.decode(body, type=VoteRequest))
        if self.answer is None:
            try:
                await asyncio.sleep(3600)
            finally:
                self.is_given_up = True
        if isinstance(self.answer, Refusal):
            raise self.answer
        return msgspec.msgpack.encode(VoteAnswer(cast(StreamId, self.answer), 0, False))


def votes(*links: Link, told: StreamId = START) -> GenerationVotes:
    return GenerationVotes(lambda: cast(Any, links), lambda: 3, lambda incarnation, shard: told)


async def test_who_has_it_is_enough_though_another_core_stands_still() -> None:
    still, at = Link("a", None), Link("b", WANTED)
    assert await asyncio.wait_for(votes(still, at).have_reached(ROUTE, WANTED, 1), 0.5)
    assert still.is_given_up
    assert at.asked == [VoteRequest(ROUTE, 0)], "nothing is promised"


@pytest.mark.parametrize(
    "answer", [StreamId(2, 4), StreamId(1, 9), StreamId(3, 9), Refusal("unavailable", "not to a replicant")]
)
async def test_who_is_behind_or_elsewhere_or_refuses_does_not_count(answer: StreamId | Refusal) -> None:
    assert not await asyncio.wait_for(votes(Link("a", answer), Link("b", WANTED)).have_reached(ROUTE, WANTED, 2), 10)


async def test_a_heartbeat_that_says_so_is_enough() -> None:
    link = Link("a", None)
    assert await asyncio.wait_for(votes(link, told=StreamId(2, 7)).have_reached(ROUTE, WANTED, 1), 10)
    assert link.asked == []


class Core:
    async def report(self, shard: str, generation: int) -> Report:
        return Report("a", WANTED, generation, granted=bool(generation))


@pytest.mark.parametrize(("generation", "to_core"), [(0, False), (0, True), (7, True)])
async def test_everybody_is_told_where_a_core_is(generation: int, to_core: bool) -> None:
    body = await serve(cast(Any, Core()), msgspec.msgpack.encode(VoteRequest(ROUTE, generation)), to_core=to_core)
    assert msgspec.msgpack.decode(body, type=VoteAnswer) == VoteAnswer(WANTED, generation, bool(generation))


async def test_a_replicant_is_promised_nothing() -> None:
    with pytest.raises(Refusal, match="promised to cores"):
        await serve(cast(Any, Core()), msgspec.msgpack.encode(VoteRequest(ROUTE, 7)), to_core=False)
