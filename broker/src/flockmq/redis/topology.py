"""Finds the current server: the primary that the sentinels name, or the master of a hash slot of a cluster.

It asks all sentinels or cluster nodes at once, and the answer of the majority counts. So one that is dead, slow or cut
off neither delays nor misleads. The caller checks the result: a primary is asked whether it is one, and a cluster node
refuses keys that it doesn't have and names the node that has them.
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
from flockmq.redis.url import RedisServer, RedisUrl

Answer = TypeVar("Answer", bound=Hashable)


class SlotRange(NamedTuple):
    """Redis hash slots of a cluster, both ends included, and their master."""

    first: int
    last: int
    master: RedisServer


class SlotMap(NamedTuple):
    """Which master has which hash slots."""

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
    """Connect to the primary that the sentinels name, if it confirms that it is one. Raises RedisUnreachable."""
    loop = asyncio.get_running_loop()
    named, named_at = await _named(config), loop.time()
    errors = []
    for server in named:
        try:
            connection = await config.open(server)
        except RedisUnreachable as error:
            errors.append(error)
            continue
        try:
            await _check_primary(connection, server)
            if loop.time() - named_at > bounds.SENTINELS_WORD_MAX_S:
                await _check_named(config, server)
        except RedisUnreachable as error:
            errors.append(error)
            await connection.close()
        except BaseException:
            await connection.close()
            raise
        else:
            return server, connection
    raise _all_failed(config.parsed_url, "has no primary that can be used", errors)


async def slot_map(config: RedisConfig) -> SlotMap:
    """The hash slots as most of the nodes in the URL see them. Raises RedisUnreachable."""
    return (await _most_frequent(config, ("CLUSTER", "SLOTS"), _slots))[0]


async def _named(config: RedisConfig) -> list[RedisServer]:
    """The primaries that the sentinels name; the one that most of them name is first."""
    return await _most_frequent(
        config, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", config.parsed_url.primary), _named_primary
    )


async def _check_named(config: RedisConfig, server: RedisServer) -> None:
    """Ask the sentinels again: a primary that was unreachable for a while may have been replaced without knowing it."""
    if (await _named(config))[0] != server:
        raise RedisUnreachable(f"Redis at {server}: the sentinels name another primary by now")


async def _check_primary(connection: RedisConnection, server: RedisServer) -> None:
    try:
        (info,) = await connection.exchange([("INFO", "replication")], bounds.REDIS_CONNECT_MAX_S)
    except (RedisError, OSError, TimeoutError) as error:
        raise unreachable(server, error) from None
    if isinstance(info, ResponseError):
        raise unreachable(server, info)
    if not isinstance(info, bytes) or b"role:master" not in info.splitlines():
        raise RedisUnreachable(f"Redis at {server}: the sentinels name it, but it is no primary (any more, or yet)")


async def _most_frequent(
    config: RedisConfig, command: Sequence[Argument], parse: Callable[[RedisServer, Reply], Answer]
) -> list[Answer]:
    """What the URL's servers answer, the most frequent answer first. Returns as soon as more than half of them agree,
    or all have answered. Raises RedisUnreachable if none answers."""
    parsed_url = config.parsed_url

    async def one(server: RedisServer) -> Answer:
        return parse(server, await ask(config, server, *command, to_sentinel=parsed_url.kind == "sentinel"))

    answers: Counter[Answer] = Counter()
    errors: list[RedisUnreachable] = []
    asked = [asyncio.ensure_future(one(server)) for server in parsed_url.servers]
    waiting = set(asked)
    try:
        while waiting and max(answers.values(), default=0) * 2 <= len(asked):
            answered, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in [each for each in asked if each in answered]:
                try:
                    answers[each.result()] += 1
                except RedisUnreachable as error:
                    errors.append(error)
    finally:
        for each in asked:
            each.cancel()
    if not answers:
        raise _all_failed(parsed_url, "nobody can be asked where it is", errors)
    return [answer for answer, _ in answers.most_common()]


def _all_failed(parsed_url: RedisUrl, what: str, errors: Sequence[RedisUnreachable]) -> RedisUnreachable:
    refused = [error for error in errors if isinstance(error, RedisRefused)]
    kind = RedisRefused if refused and len(refused) == len(errors) else RedisUnreachable
    return kind(f"Redis at {parsed_url}: {what}: {'; '.join(dict.fromkeys(map(str, errors)))}")


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
