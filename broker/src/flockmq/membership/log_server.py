"""How a core serves its log to other nodes, over their links. `log_client` is the other end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import msgspec

from flockmq.membership import generation_votes
from flockmq.membership.handshake import Identity
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.link import LinkHandlers
from flockmq.membership.link_requests import Refusal
from flockmq.membership.log_client import APPEND, BOOTSTRAP, REGISTER, Append, Register
from flockmq.membership.reachability import CORE_ROLES
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.rlog.core import Core
from flockmq.rlog.entry import PURGE, PUT, StreamId, decode_batch, encode_batch
from flockmq.rlog.errors import LogUntried
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import CLUSTER, NODES, SLOTS, VERSIONS

WRITTEN_BY_CORES: Final = frozenset((SLOTS.number, VERSIONS.number))

_encode: Final = msgspec.msgpack.Encoder().encode
_registration: Final[msgspec.msgpack.Decoder[Register]] = msgspec.msgpack.Decoder(Register)
_appending: Final[msgspec.msgpack.Decoder[Append]] = msgspec.msgpack.Decoder(Append)


class LogServer:
    """`heartbeats` report this core's load. `is_untried_known`: all nodes know the error code of LogUntried."""

    def __init__(self, core: Core, rlog: Rlog, heartbeats: Heartbeats, is_untried_known: Callable[[], bool]) -> None:
        self._core = core
        self._rlog = rlog
        self._heartbeats = heartbeats
        self._is_untried_known = is_untried_known

    def listen(self, handlers: LinkHandlers) -> None:
        handlers.requests[REGISTER] = self._register
        handlers.requests[APPEND] = self._append
        handlers.requests[generation_votes.ASK] = self._vote
        handlers.streams[BOOTSTRAP] = self._bootstrap

    async def _register(self, peer: Identity, body: bytes) -> bytes:
        return await self._answer(self._registered(body))

    async def _registered(self, body: bytes) -> StreamId:
        asked = _registration.decode(body)
        return await self._core.register(asked.shard, asked.incarnation)

    async def _append(self, peer: Identity, body: bytes) -> bytes:
        return await self._answer(self._appended(peer, body))

    async def _appended(self, peer: Identity, body: bytes) -> StreamId:
        asked = _appending.decode(body)
        if peer.role not in CORE_ROLES:
            check_replicants(asked)
        position = await self._core.append(asked.shard, asked.incarnation, asked.first, asked.transactions)
        self._rlog.note_log_end(asked.shard, position)
        return position

    async def _answer(self, work: Awaitable[StreamId]) -> bytes:
        self._heartbeats.appends += 1
        try:
            return _encode(await work)
        except LogUntried as error:
            raise Refusal(error.code if self._is_untried_known() else StorageUnavailable.code, str(error)) from None
        except StorageError as error:
            raise Refusal(error.code, str(error)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Refusal("corrupt", str(error)) from None

    async def _vote(self, peer: Identity, body: bytes) -> bytes:
        return await generation_votes.serve(self._core, body, to_core=peer.role in CORE_ROLES)

    async def _bootstrap(self, body: bytes) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in self._core.bootstrap(body.decode(errors="replace")):
                yield piece
        except StorageError as error:
            raise Refusal(error.code, str(error)) from None


def check_replicants(append: Append) -> None:
    """A replicant may join only as a replicant. It may not move slots, raise the version, or purge. Raises Refusal."""
    if append.shard != CLUSTER:
        return
    for _, _, runs in decode_batch(encode_batch(append.transactions)):
        for table, kind, _, _, values in runs:
            joining = values if (table, kind) == (NODES.number, PUT) else ()
            joins_as_core = any(NODES.decode(value).role in CORE_ROLES for value in joining)
            if kind == PURGE or table in WRITTEN_BY_CORES or joins_as_core:
                raise Refusal("refused", "a replicant doesn't write what is cores' to write")
