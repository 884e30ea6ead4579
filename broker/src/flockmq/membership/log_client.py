"""How a node reaches the log: through the link to one core.

`LogClient` stays with one core, so that writes arrive in order. It changes the core if the link is lost, if the core
can't do what it is asked, or if it is told to move (replicant_balance.py) and no request is under way. If the link is
lost or the core can't reach Redis, the caller gets StorageUnavailable. Its next call goes to another core, if there is
one: the log recognizes a repeated write by its number. `log_server` is the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

import msgspec

from flockmq import bounds
from flockmq.membership.link import Link
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogUntried, from_code

REGISTER: Final = "log.register"
APPEND: Final = "log.append"
BOOTSTRAP: Final = "log.bootstrap"


class Register(msgspec.Struct, array_like=True, frozen=True):
    shard: str
    incarnation: str


class Append(msgspec.Struct, array_like=True, frozen=True):
    shard: str
    incarnation: str
    first: int
    transactions: Sequence[bytes]


_encode: Final = msgspec.msgpack.Encoder().encode
_stream_id: Final[msgspec.msgpack.Decoder[tuple[int, int]]] = msgspec.msgpack.Decoder(tuple[int, int])


class LogClient:
    """An rlog.ports.CorePort. `choose_core(unable)` returns the link to the least loaded core, if there is any. It
    returns the core that was unable to do what it was asked only if there is no other."""

    def __init__(self, choose_core: Callable[[Link | None], Link | None]) -> None:
        self._choose_core = choose_core
        self._link: Link | None = None
        self._unable: Link | None = None
        self._unable_at = 0.0
        self._next: Link | None = None
        self._under_way = 0

    @property
    def core(self) -> str:
        """The incarnation of the core that this node writes through; "" for none."""
        return self._link.peer.incarnation if self._link is not None and self._link.up else ""

    def move(self, link: Link) -> None:
        """Change to this core as soon as no request is under way. Not if it was unable a moment ago."""
        if link is self._unable and asyncio.get_running_loop().time() - self._unable_at < bounds.CORE_UNABLE_S:
            return
        self._next = link
        self._change_over()

    async def register(self, shard: str, incarnation: str) -> StreamId:
        """Register the incarnation in the shard. Raises StorageError."""
        return await self._ask(REGISTER, _encode(Register(shard, incarnation)))

    async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
        """Returns the Stream ID of the last transaction. Raises StorageError; StorageUnavailable if no core answers."""
        return await self._ask(APPEND, _encode(Append(shard, incarnation, first, transactions)))

    async def bootstrap(self, shard: str) -> AsyncGenerator[bytes, None]:
        """The frames of a core's tables of a shard. Raises StorageError."""
        link = await self._core()
        try:
            async for piece in link.stream(BOOTSTRAP, shard.encode()):
                yield piece
        except LinkLost as error:
            raise StorageUnavailable(str(error)) from None
        except Refusal as refused:
            raise self._refused(link, refused) from None

    async def _ask(self, method: str, body: bytes) -> StreamId:
        link = await self._core()
        self._under_way += 1
        try:
            return StreamId(*_stream_id.decode(await link.request(method, body)))
        except LinkLost as error:
            raise StorageUnavailable(str(error)) from None
        except Refusal as refused:
            raise self._refused(link, refused) from None
        finally:
            self._under_way -= 1
            self._change_over()

    def _refused(self, link: Link, refused: Refusal) -> StorageError:
        """After StorageUnavailable forget this core: another one may reach what it can't."""
        error = from_code(refused.code, str(refused))
        if isinstance(error, StorageUnavailable) and self._link is link:
            self._link, self._unable, self._unable_at = None, link, asyncio.get_running_loop().time()
        return error

    def _change_over(self) -> None:
        if self._next is not None and self._under_way == 0:
            self._link, self._next = self._next, None

    async def _core(self) -> Link:
        """Raises StorageUnavailable if there is none within CORE_WAIT_MAX_S."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + bounds.CORE_WAIT_MAX_S
        while self._link is None or not self._link.up:
            self._link = self._choose_core(self._unable)
            if self._link is None:
                if loop.time() >= deadline:
                    raise LogUntried("no core of the cluster is linked to this node")
                await asyncio.sleep(bounds.CORE_RETRY_S)
        return self._link
