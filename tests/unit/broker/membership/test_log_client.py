"""Whom a node writes through: one core, until that can't do it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

import msgspec
import pytest

from flockmq import bounds
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link
from flockmq.membership.link_requests import Refusal
from flockmq.membership.log_client import LogClient
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogGap


class Core:
    """The link to one, which answers or refuses."""

    def __init__(self, name: str) -> None:
        self.peer = Identity(f"{name}@00000001", "core")
        self.up = True
        self.refuses = ""
        self.asked = 0

    async def request(self, method: str, body: bytes) -> bytes:
        self.asked += 1
        if self.refuses:
            raise Refusal(self.refuses, "7")
        return msgspec.msgpack.encode((1, self.asked))

    async def stream(self, method: str, body: bytes) -> AsyncGenerator[bytes]:
        self.asked += 1
        if self.refuses:
            raise Refusal(self.refuses, "7")
        yield b"frame"


class Cores:
    """Two, the first of which has less to do."""

    def __init__(self) -> None:
        self.first, self.second = Core("core-0"), Core("core-1")
        self.port = LogClient(self.choose)

    def choose(self, unable: Link | None) -> Link | None:
        linked = [core for core in (self.first, self.second) if core.up]
        others = [core for core in linked if core is not unable]
        return cast(Link, next(iter(others or linked), None))

    async def append(self) -> StreamId:
        return await self.port.append("route", "replicant@00000001", 1, [b""])


@pytest.fixture
def cores() -> Cores:
    return Cores()


@pytest.mark.parametrize("code", ["unavailable", "redis_unreachable", "redis_refused"])
async def test_a_core_that_does_not_reach_redis_is_left_for_another(cores: Cores, code: str) -> None:
    await cores.append()
    cores.first.refuses = code
    with pytest.raises(StorageUnavailable):
        await cores.append()
    await cores.append()
    await cores.append()
    assert (cores.first.asked, cores.second.asked) == (2, 2)
    assert cores.port.core == cores.second.peer.incarnation


async def test_a_core_that_gives_no_tables_is_left_for_another(cores: Cores) -> None:
    cores.first.refuses = "unavailable"
    with pytest.raises(StorageUnavailable):
        [frame async for frame in cores.port.bootstrap("route")]
    assert [frame async for frame in cores.port.bootstrap("route")] == [b"frame"]
    assert (cores.first.asked, cores.second.asked) == (1, 1)


async def test_the_only_core_is_asked_again(cores: Cores) -> None:
    cores.second.up = False
    cores.first.refuses = "redis_unreachable"
    with pytest.raises(StorageUnavailable):
        await cores.append()
    cores.first.refuses = ""
    await cores.append()
    assert cores.first.asked == 2


async def test_what_the_log_refuses_it_refuses_everywhere(cores: Cores) -> None:
    cores.first.refuses = "gap"
    for _ in range(2):
        with pytest.raises(LogGap):
            await cores.append()
    assert (cores.first.asked, cores.second.asked) == (2, 0)


async def test_nobody_moves_back_to_a_core_that_was_unable_a_moment_ago(
    cores: Cores, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores.first.refuses = "redis_unreachable"
    with pytest.raises(StorageUnavailable):
        await cores.append()
    await cores.append()
    cores.port.move(cast(Link, cores.first))
    await cores.append()
    assert (cores.first.asked, cores.second.asked) == (1, 2)
    monkeypatch.setattr(bounds, "CORE_UNABLE_S", 0.0)
    cores.first.refuses = ""
    cores.port.move(cast(Link, cores.first))
    await cores.append()
    assert (cores.first.asked, cores.second.asked) == (2, 2)
