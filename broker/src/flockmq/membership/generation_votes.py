"""How cores report their log positions to each other, over their links, before a generation of the log begins.

`GenerationVotes` asks all linked cores and returns the answers that arrive within BALLOT_WAIT_S. `serve` is the other
end. rlog/generation.py explains reports and promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from flockmq import bounds
from flockmq.membership.link import Link
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.membership.reachability import name_of
from flockmq.redis.errors import StorageError
from flockmq.rlog.core import Core
from flockmq.rlog.entry import StreamId
from flockmq.rlog.generation import Report

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
    included."""

    def __init__(self, links: Callable[[], Iterable[Link]], cores: Callable[[], int]) -> None:
        self._links = links
        self._cores = cores

    @property
    def cores(self) -> int:
        return self._cores()

    async def ask(self, shard: str, generation: int) -> list[Report]:
        body = _encode(VoteRequest(shard, generation))
        by_name = {name_of(link.peer.incarnation): link for link in self._links()}
        answers = await asyncio.gather(*(self._ask_one(name, link, body) for name, link in by_name.items()))
        return [report for report in answers if report is not None]

    async def _ask_one(self, name: str, link: Link, body: bytes) -> Report | None:
        """None: it can't be reached now, or hasn't loaded its tables."""
        try:
            async with asyncio.timeout(bounds.BALLOT_WAIT_S):
                answer = _answer.decode(await link.request(ASK, body))
        except (LinkLost, Refusal, TimeoutError, msgspec.MsgspecError):
            return None
        return Report(name, answer.position, answer.promised, answer.granted)


async def serve(core: Core, body: bytes) -> bytes:
    """Answer an `ASK` request. Raises Refusal."""
    try:
        ask = _ask.decode(body)
        report = await core.report(ask.shard, ask.generation)
    except StorageError as error:
        raise Refusal(error.code, str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refusal("corrupt", str(error)) from None
    return _encode(VoteAnswer(report.position, report.promised, report.granted))
