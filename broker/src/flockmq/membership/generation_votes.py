"""How cores report their log positions to each other, over their links, before a generation of the log begins.

`GenerationVotes` asks all linked cores and returns the answers that arrive within BALLOT_WAIT_S. `serve` is the other
end. rlog/generation.py explains reports and promises. A replicant may ask for reports only; a core of the release
before refuses that, but sends heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from flockmq import bounds, tasks
from flockmq.membership.link import Link
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.membership.reachability import name_of
from flockmq.redis.errors import StorageError
from flockmq.rlog.core import Core
from flockmq.rlog.entry import StreamId
from flockmq.rlog.generation import Report, has_reached

ASK: Final = "log.ballot"


class VoteRequest(msgspec.Struct, array_like=True, frozen=True):
    """`generation` 0: only report, don't promise."""

    shard: str
    generation: int


class VoteAnswer(msgspec.Struct, array_like=True, frozen=True):
    position: StreamId
    promised: int
    granted: bool


_encode: Final = msgspec.msgpack.Encoder().encode
_ask: Final[msgspec.msgpack.Decoder[VoteRequest]] = msgspec.msgpack.Decoder(VoteRequest)
_answer: Final[msgspec.msgpack.Decoder[VoteAnswer]] = msgspec.msgpack.Decoder(VoteAnswer)


class GenerationVotes:
    """The rlog.ports.VotePort of a cluster. `links`: to the other cores. `cores`: how many are configured, this one
    included. `known`: the position in a shard that a core told by itself last."""

    def __init__(
        self, links: Callable[[], Iterable[Link]], cores: Callable[[], int], known: Callable[[str, str], StreamId]
    ) -> None:
        self._links = links
        self._cores = cores
        self._known = known

    @property
    def cores(self) -> int:
        return self._cores()

    async def ask(self, shard: str, generation: int) -> list[Report]:
        body = _encode(VoteRequest(shard, generation))
        answers = await asyncio.gather(*(self._ask_one(name, link, body) for name, link in self._by_name().items()))
        return [report for report in answers if report is not None]

    async def have_reached(self, shard: str, position: StreamId, needed: int) -> bool:
        body, asked = _encode(VoteRequest(shard, 0)), list[asyncio.Task[Report | None]]()
        for name, link in self._by_name().items():
            if has_reached(self._known(link.peer.incarnation, shard), position):
                needed -= 1
            else:
                asked.append(asyncio.create_task(self._ask_one(name, link, body)))
        try:
            while needed > 0 and len(asked) >= needed:
                await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                reports = [task.result() for task in asked if task.done()]
                needed -= sum(report is not None and has_reached(report.position, position) for report in reports)
                asked = [task for task in asked if not task.done()]
        finally:
            await tasks.end(*asked)
        return needed <= 0

    def _by_name(self) -> dict[str, Link]:
        return {name_of(link.peer.incarnation): link for link in self._links()}

    async def _ask_one(self, name: str, link: Link, body: bytes) -> Report | None:
        """None: it can't be reached now, or hasn't loaded its tables."""
        try:
            async with asyncio.timeout(bounds.BALLOT_WAIT_S):
                answer = _answer.decode(await link.request(ASK, body))
        except (LinkLost, Refusal, TimeoutError, msgspec.MsgspecError):
            return None
        return Report(name, answer.position, answer.promised, answer.granted)


async def serve(core: Core, body: bytes, *, to_core: bool) -> bytes:
    """Answer an `ASK` request. Raises Refusal."""
    try:
        ask = _ask.decode(body)
        if ask.generation and not to_core:
            raise Refusal("unavailable", "generations are promised to cores")
        report = await core.report(ask.shard, ask.generation)
    except StorageError as error:
        raise Refusal(error.code, str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refusal("corrupt", str(error)) from None
    return _encode(VoteAnswer(report.position, report.promised, report.granted))
