"""Which server counts now: the primary that sentinels name, the master of a hash slot of a cluster.

All that can be asked are asked at once, and what most of them say counts: so one that is dead, slow or cut off from the
rest neither delays nor misleads. Who connects checks the answer: a primary says itself whether it is one, and a node of
a cluster refuses keys that it doesn't have, and names the node that has them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from flockmq import bounds
from flockmq.redis.connection import Argument, RedisConfig, RedisConnection, Reply, ask, unreachable
from flockmq.redis.errors import RedisRefused, RedisUnreachable
from flockmq.redis.url import RedisPlace, RedisServer

Said = TypeVar("Said", bound=Hashable)


class SlotRange(NamedTuple):
    """Hash slots of a cluster, both ends included, and their master."""

    first: int
    last: int
    master: RedisServer


class SlotMap(NamedTuple):
    """Who has which hash slots."""

    ranges: tuple[SlotRange, ...]

    def find(self, key: str) -> RedisServer | None:
        """None: no master has the key's slot."""
        slot = key_slot(key.encode())
        return next((each.master for each in self.ranges if each.first <= slot <= each.last), None)

    def master_of(self, key: str) -> RedisServer:
        """Raises RedisUnreachable if no master has the key's slot."""
        if (master := self.find(key)) is None:
            raise RedisUnreachable(f"no master of the Redis cluster has the hash slot of {key}")
        return master


async def open_primary(config: RedisConfig) -> tuple[RedisServer, RedisConnection]:
    """The primary that the sentinels name, and that says itself that it is one. Raises RedisUnreachable."""
    loop = asyncio.get_running_loop()
    named, said_at = await _named(config), loop.time()
    errors = []
    for server in named:
        try:
            connection = await config.open(server)
        except RedisUnreachable as error:
            errors.append(error)
            continue
        try:
            await _check_primary(connection, server)
            if loop.time() - said_at > bounds.SENTINELS_WORD_MAX_S:
                await _check_named(config, server)
        except RedisUnreachable as error:
            errors.append(error)
            await connection.close()
        except BaseException:
            await connection.close()
            raise
        else:
            return server, connection
    raise _all_failed(config.place, "has no primary that can be used", errors)


async def slot_map(config: RedisConfig) -> SlotMap:
    """The slots as most of those nodes see them that the URL names. Raises RedisUnreachable."""
    return (await _most_said(config, ("CLUSTER", "SLOTS"), _slots))[0]


async def _named(config: RedisConfig) -> list[RedisServer]:
    """The primaries that sentinels name; the one that most of them name is first."""
    return await _most_said(config, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", config.place.primary), _named_primary)


async def _check_named(config: RedisConfig, server: RedisServer) -> None:
    """Ask again: a primary that couldn't be reached may have been replaced meanwhile, and not know when it is back."""
    if (await _named(config))[0] != server:
        raise RedisUnreachable(f"Redis at {server}: the sentinels name another primary by now")


async def _check_primary(connection: RedisConnection, server: RedisServer) -> None:
    try:
        async with asyncio.timeout(bounds.REDIS_CONNECT_MAX_S):
            (info,) = await connection.exchange([("INFO", "replication")])
    except (RedisError, OSError, TimeoutError) as error:
        raise unreachable(server, error) from None
    if isinstance(info, ResponseError):
        raise unreachable(server, info)
    if not isinstance(info, bytes) or b"role:master" not in info.splitlines():
        raise RedisUnreachable(f"Redis at {server}: the sentinels name it, but it is no primary (any more, or yet)")


async def _most_said(
    config: RedisConfig, command: Sequence[Argument], parse: Callable[[RedisServer, Reply], Said]
) -> list[Said]:
    """What the URL's servers answer; what most of them say comes first. Returns as soon as more than half of them
    agree, or all were heard. Raises RedisUnreachable if none answers."""
    place = config.place

    async def one(server: RedisServer) -> Said:
        return parse(server, await ask(config, server, *command, to_sentinel=place.kind == "sentinel"))

    said: Counter[Said] = Counter()
    errors: list[RedisUnreachable] = []
    asked = [asyncio.ensure_future(one(server)) for server in place.servers]
    waiting = set(asked)
    try:
        while waiting and max(said.values(), default=0) * 2 <= len(asked):
            answered, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in [each for each in asked if each in answered]:
                try:
                    said[each.result()] += 1
                except RedisUnreachable as error:
                    errors.append(error)
    finally:
        for each in asked:
            each.cancel()
    if not said:
        raise _all_failed(place, "nobody can be asked where it is", errors)
    return [answer for answer, _ in said.most_common()]


def _all_failed(place: RedisPlace, what: str, errors: Sequence[RedisUnreachable]) -> RedisUnreachable:
    refused = [error for error in errors if isinstance(error, RedisRefused)]
    kind = RedisRefused if refused and len(refused) == len(errors) else RedisUnreachable
    return kind(f"Redis at {place}: {what}: {'; '.join(dict.fromkeys(map(str, errors)))}")


def _named_primary(sentinel: RedisServer, reply: Reply) -> RedisServer:
    match reply:
        case [bytes(host), bytes(port)]:
            return RedisServer(host.decode(), int(port))
        case None:
            raise RedisUnreachable(f"the sentinel at {sentinel}: it knows no primary of that name")
    raise RedisUnreachable(f"the sentinel at {sentinel}: not an answer of a sentinel: {reply!r}")


def _slots(node: RedisServer, reply: Reply) -> SlotMap:
    ranges = []
    assert isinstance(reply, list)
    for each in reply:
        match each:
            case [int(first), int(last), [bytes() | None as host, int(port), *_], *_]:
                ranges.append(SlotRange(first, last, RedisServer(host.decode() if host else node.host, port)))
            case _:
                raise RedisUnreachable(f"Redis at {node}: not an answer of a cluster's node: {each!r}")
    return SlotMap(tuple(sorted(ranges)))
