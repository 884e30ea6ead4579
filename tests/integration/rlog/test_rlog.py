"""The log on a real Valkey: a write is in all tables, in one order; and which Redis, with which rights, it needs."""

import asyncio

import pytest

from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.link import RedisConfig, RedisLink
from flockmq.rlog.disk import Disk
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import (
    MESSAGES,
    RETAINED,
    ROUTE,
    RetainedMessage,
)
from integration.rlog.steps import agree, core_of, route


async def test_a_write_is_in_the_own_tables_when_it_returns_and_in_all_others_soon(nodes) -> None:
    core = await nodes.core()
    first, second = await nodes.replicant(core_of(core), "r1"), await nodes.replicant(core_of(core), "r2")
    places = await asyncio.gather(*(first.write(ROUTE, [route(first, n)]) for n in range(100)))
    assert len(first.tables.routes) == 100
    assert len(set(places)) == 1, "what is written in one turn of the loop is one transaction"
    message = RetainedMessage(b"21", 0, b"", 4)
    await second.write(RETAINED, [MESSAGES.put(b"t", message)])
    assert second.tables.messages.get(b"t") == message
    await agree(ROUTE, core, first, second)
    await agree(RETAINED, core, first, second)
    assert first.tables.routes.nodes(b"f/7") == core.tables.routes.nodes(b"f/7") == {first.incarnation}


async def test_of_a_retained_message_and_a_route_written_at_once_one_sees_the_other(nodes) -> None:
    core = await nodes.core()
    subscriber, publisher = await nodes.replicant(core_of(core), "r1"), await nodes.replicant(core_of(core), "r2")
    message = RetainedMessage(b"21", 0, b"", 4)

    async def subscribe(number: int) -> bool:
        await subscriber.write(ROUTE, [route(subscriber, number)])
        assert subscriber.has_all(RETAINED, when=ROUTE), "one server has both logs, so the answer came with the route"
        return subscriber.tables.messages.get(b"f/%d" % number) is not None

    async def publish(number: int) -> bool:
        await publisher.write(RETAINED, [MESSAGES.put(b"f/%d" % number, message)])
        assert publisher.has_all(ROUTE, when=RETAINED)
        return bool(publisher.tables.routes.nodes(b"f/%d" % number))

    for number in range(200):
        first, second = (subscribe, publish) if number % 2 else (publish, subscribe)
        assert any(await asyncio.gather(first(number), second(number)))
    await publish(200)
    assert await subscribe(200), "what was acknowledged before is seen"


async def test_a_replicant_needs_no_more_than_to_read_the_logs(nodes, valkey) -> None:
    core = await nodes.core()
    admin = RedisLink(valkey.config)
    rights = ("~flockmq:{*}:log", "-@all", "+xread", "+xrange", "+xrevrange")
    await admin.call("ACL", "SETUSER", "reader", "on", ">secret", *rights)
    await admin.close()
    reader = RedisConfig(f"redis://reader@127.0.0.1:{valkey.port}", password="secret")
    replicant = await nodes.replicant(core_of(core), config=reader)
    await replicant.write(ROUTE, [route(replicant, 1)])
    await agree(ROUTE, core, replicant)


async def test_redis_away_is_one_line_without_the_password(nodes, valkey) -> None:
    valkey.kill()
    config = RedisConfig(f"redis://:hunter2@127.0.0.1:{valkey.port}")
    node = Rlog("r@1", config, disk=Disk(nodes.data_dir("r")))
    with pytest.raises(RedisUnreachable, match=f"^Redis at 127.0.0.1:{valkey.port}: ") as error:
        await node.start()
    assert "hunter2" not in str(error.value)
    await node.stop()


async def test_a_wrong_password_is_said_so(nodes, valkey) -> None:
    admin = RedisLink(valkey.config)
    await admin.call("CONFIG", "SET", "requirepass", "right")
    await admin.close()
    for config in (RedisConfig(valkey.config.url, password="wrong"), valkey.config):
        link = RedisLink(config)
        with pytest.raises(RedisUnreachable, match="password"):
            await link.call("XLEN", "x")
        await link.close()


async def test_lag_counts_from_a_head_that_another_node_told(nodes) -> None:
    core = await nodes.core()
    applied = core.applied(ROUTE)
    assert core.lag(ROUTE) == (0, 0.0)
    core.note_log_end(ROUTE, applied._replace(sequence=applied.sequence + 3))
    entries, ms = core.lag(ROUTE)
    assert entries == 3
    assert ms >= 0
    assert core.log_end(ROUTE).sequence == applied.sequence + 3
    for number in range(3):
        await core.write(ROUTE, [route(core, number)])
    assert core.lag(ROUTE) == (0, 0.0)
