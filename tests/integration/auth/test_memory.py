"""Nobody uses up Redis' memory that others need: queues and retained data stop, the log goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from integration.auth.conftest import Configured, api
from integration.broker.clients import V311, Client
from integration.broker.conftest import Node, eventually

MIB = 1024 * 1024
REFUSED = 0x97
OPEN = "[authentication]\nallow_anonymous = true\n"


@pytest.fixture
def node(fleet: Configured) -> Node:
    return fleet.single(OPEN)


@pytest.fixture
def server(fleet: Configured) -> Iterator[Any]:
    with redis.Redis(port=fleet.redis_port) as server:
        yield server


def is_short(node: Node) -> bool:
    alarms = node.get("/api/v5/alarms")
    return any(alarm["name"].startswith("redis-memory/") for alarm in alarms)


def give(limit: int, node: Node, server: Any) -> None:
    server.config_set("maxmemory", limit)
    eventually(lambda: node.metric("flockmq_redis_memory_max_bytes") == limit, "the node has seen that")


def test_who_fills_the_queue_of_a_client_that_is_away_is_refused_before_redis_is_full(node: Node, server: Any) -> None:
    used = server.info("memory")["used_memory"]
    limit = used * 2 + 8 * MIB
    give(limit, node, server)
    with Client(node.mqtt, "away", lasts=True) as away:
        away.subscribe("a/#", 1)
    with (
        Client(node.mqtt, "eve") as eve,
        Client(node.mqtt, "jo") as jo,
        Client(node.mqtt, "there", lasts=True) as there,
        Client(node.mqtt, "old", V311) as old,
    ):
        there.subscribe("now/#", 1)
        reasons = [eve.publish("a/b", "x" * 65_536) for _ in range(limit // 65_536)]
        eventually(lambda: eve.publish("a/b", "x") == REFUSED, "what would wait is refused")
        assert set(reasons) <= {0, REFUSED}
        eventually(lambda: is_short(node), "an alarm says so")
        assert server.info("memory")["used_memory"] < limit * 0.9
        assert eve.publish("r", "x", retain=True) == REFUSED
        assert eve.publish("$delayed/60/d", "x") == REFUSED
        assert api(node, "POST", "/bans", {"as": "clientid", "who": "bad"})[0] == 201, "the log has room"
        jo.subscribe("live/#", 1)
        assert jo.publish("live/a", "x") == 0, "what nobody keeps goes on"
        give(server.info("memory")["used_memory"] * 10 // 8, node, server)
        eventually(lambda: jo.publish("now/a", "x") == 0, "so does what is acknowledged at once")
        assert old.publish("now/a", "x") == 0
        assert old.publish("a/b", "untold") == 0, "it can't be told that nothing waits of it"
        assert all(jo.publish("now/a", "x") == 0 for _ in range(100))
        assert node.metric("flockmq_messages_refused_short_total") >= 3
    with Client(node.mqtt, "away", lasts=True) as away:
        assert away.session_present
        for _ in range(reasons.count(0)):
            assert away.messages.get(timeout=30).payload != b"untold"
    eventually(lambda: not is_short(node), "what was read made room")
    with Client(node.mqtt, "eve") as eve:
        eventually(lambda: eve.publish("a/b", "x") == 0, "and more is taken again")
