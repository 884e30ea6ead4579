"""Rules that change reach the subscriptions that stand, on every node, and what waits by them."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Sequence

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from integration.auth.conftest import Configured, api
from integration.broker.clients import V5, V311, Client
from integration.broker.conftest import Node, eventually

RULES = """
[authentication]
allow_anonymous = true
[authorization]
sources = [{ type = "built_in_database" }]
no_match = "allow"
"""
WITHIN_S = 2.0


def forbid(node: Node, topics: Sequence[str], of: str = "all") -> None:
    rule = {"permit": "deny", "action": "subscribe", "topics": list(topics)}
    assert api(node, "PUT", f"/rules/{of}", {"rules": [rule]})[0] == 200


def revoked(*nodes: Node) -> float:
    return sum(node.metric("flockmq_subscriptions_revoked_total") for node in nodes)


def hears_nothing_of(client: Client, publisher: Client, topic: str, end: str) -> None:
    """`end`: a topic that it hears of."""
    publisher.publish(topic, "secret")
    publisher.publish(end, "end")
    assert client.receive()[:2] == (end, "end")


@pytest.mark.parametrize("of", ["all", "clientid/c"])
@pytest.mark.parametrize("version", [V5, V311])
def test_a_subscription_that_stands_ends_on_every_node(
    fleet: Configured, of: str, version: MQTTProtocolVersion
) -> None:
    fleet.configure(RULES)
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    with Client(replicant.mqtt, "c", version) as client, Client(replicant.mqtt, "p") as publisher:
        client.subscribe("secret/#")
        client.subscribe("open/#")
        publisher.publish("secret/1", "was allowed")
        assert client.receive()[0] == "secret/1"
        forbid(core, ["secret/#"], of)
        changed_s = time.monotonic()
        eventually(lambda: revoked(replicant) == 1, "the subscription ended")
        assert time.monotonic() - changed_s < WITHIN_S
        hears_nothing_of(client, publisher, "secret/2", "open/2")
        eventually(lambda: replicant.metric("flockmq_subscriptions") == 1, "it is counted no more")


@pytest.mark.parametrize("version", [V5, V311])
def test_who_lost_a_subscription_may_be_disconnected(fleet: Configured, version: MQTTProtocolVersion) -> None:
    node = fleet.single(RULES + 'revoked_subscriptions = "disconnect"\n')
    with Client(node.mqtt, "c", version) as client, Client(node.mqtt, "other") as other:
        client.subscribe("secret/#")
        other.subscribe("open/#")
        forbid(node, ["secret/+/a"])
        assert client.disconnected.wait(WITHIN_S)
        assert version == V311 or client.reason == "Not authorized"
        other.publish("open/1", "still here")
        assert other.receive()[0] == "open/1"


def test_a_group_and_an_exclusive_filter_are_others_again(fleet: Configured) -> None:
    node = fleet.single(RULES)
    with Client(node.mqtt, "c") as client, Client(node.mqtt, "d") as other:
        client.subscribe("$share/g/secret/#")
        other.subscribe("$share/g/secret/#")
        client.subscribe("$exclusive/alone")
        assert other.ask_for("$exclusive/alone") == 0x97
        forbid(node, ["secret/#", "alone"], "clientid/c")
        eventually(lambda: revoked(node) == 2, "both ended")
        eventually(lambda: other.ask_for("$exclusive/alone") == 1, "another may have it")
        for number in range(10):
            other.publish("secret/x", str(number))
        assert [other.receive()[1] for _ in range(10)] == [str(number) for number in range(10)]
        with pytest.raises(queue.Empty):
            client.messages.get_nowait()


def test_what_is_rewritten_is_judged_as_it_was_asked_for(fleet: Configured) -> None:
    node = fleet.single("""
    [authentication]
    allow_anonymous = true
    [authorization]
    sources = [{ type = "built_in_database" }]
    no_match = "deny"
    [[rewrite]]
    source_topic = "#"
    re = "^(.+)$"
    dest_topic = "tenants/${clientid}/$1"
    """)
    rule = {"permit": "allow", "topics": ["secret", "open"]}
    assert api(node, "PUT", "/rules/all", {"rules": [rule]})[0] == 200
    with Client(node.mqtt, "c") as client:
        client.subscribe("secret")
        client.subscribe("open")
        assert api(node, "PUT", "/rules/all", {"rules": [{**rule, "topics": ["open"]}]})[0] == 200
        eventually(lambda: revoked(node) == 1, "one ended")
        client.publish("open", "still heard")
        assert client.receive()[:2] == ("tenants/c/open", "still heard")


async def test_what_waits_for_who_reads_slowly_goes_nowhere(fleet: Configured) -> None:
    node = fleet.single(RULES + "[mqtt]\nmax_inflight = 1\n")
    with Client(node.mqtt, "c", acknowledges=False) as client, Client(node.mqtt, "p") as publisher:
        client.subscribe("secret/#")
        client.subscribe("open/#")
        publisher.publish("open/0", "under way")
        message = await asyncio.to_thread(client.messages.get, timeout=30)
        for number in range(5):
            publisher.publish(f"secret/{number}", "waits")
        publisher.publish("open/1", "end")
        forbid(node, ["secret/#"])
        eventually(lambda: node.metric("flockmq_messages_dropped_total") == 5, "what waits is dropped")
        client.acknowledge(message)
        assert client.receive()[0] == "open/1"
