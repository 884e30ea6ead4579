"""Rules that change reach the subscriptions that stand, on every node, and what waits by them."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Sequence

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from integration.auth.conftest import Configured, api
from integration.auth.raw import Raw
from integration.broker.clients import V5, V311, Client
from integration.broker.conftest import Node, eventually

RULES = """
[authentication]
allow_anonymous = true
[authorization]
sources = [{ type = "built_in_database" }]
no_match = "allow"
"""
PASSWORDS = 'chain = [{ mechanism = "password_based:built_in_database" }]'
WITHIN_S = 2.0
AWAY_WITHIN_S = 30.0


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
@pytest.mark.parametrize("lasts", [False, True])
def test_a_subscription_that_stands_ends_on_every_node(
    fleet: Configured, of: str, version: MQTTProtocolVersion, lasts: bool
) -> None:
    fleet.configure(RULES)
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    with Client(replicant.mqtt, "c", version, lasts=lasts) as client, Client(replicant.mqtt, "p") as publisher:
        client.subscribe("secret/#")
        client.subscribe("open/#")
        publisher.publish("secret/1", "was allowed")
        assert client.receive()[0] == "secret/1"
        changed_s = time.monotonic()
        forbid(core, ["secret/#"], of)
        eventually(lambda: revoked(core, replicant) == 1, "the subscription ended")
        assert time.monotonic() - changed_s < WITHIN_S
        hears_nothing_of(client, publisher, "secret/2", "open/2")
        owner = core if lasts else replicant
        eventually(lambda: owner.metric("flockmq_subscriptions") == 1, "it is counted no more")


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("lasts", [False, True])
def test_who_lost_a_subscription_may_be_disconnected(
    fleet: Configured, version: MQTTProtocolVersion, lasts: bool
) -> None:
    node = fleet.single(RULES + 'revoked_subscriptions = "disconnect"\n')
    with Client(node.mqtt, "c", version, lasts=lasts) as client, Client(node.mqtt, "other") as other:
        client.subscribe("secret/#")
        other.subscribe("open/#")
        forbid(node, ["secret/+/a"])
        assert client.disconnected.wait(WITHIN_S)
        assert version == V311 or client.reason == "Not authorized"
        other.publish("open/1", "still here")
        assert other.receive()[0] == "open/1"


@pytest.mark.parametrize("lasts", [False, True])
def test_a_group_and_an_exclusive_filter_are_others_again(fleet: Configured, lasts: bool) -> None:
    node = fleet.single(RULES)
    with Client(node.mqtt, "c", lasts=lasts) as client, Client(node.mqtt, "d") as other:
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


@pytest.mark.parametrize("lasts", [False, True])
def test_what_is_rewritten_is_judged_as_it_was_asked_for(fleet: Configured, lasts: bool) -> None:
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
    with Client(node.mqtt, "c", lasts=lasts) as client:
        client.subscribe("secret")
        client.subscribe("open")
        assert api(node, "PUT", "/rules/all", {"rules": [{**rule, "topics": ["open"]}]})[0] == 200
        eventually(lambda: revoked(node) == 1, "one ended")
        client.publish("open", "still heard")
        assert client.receive()[:2] == ("tenants/c/open", "still heard")


@pytest.mark.parametrize("lasts", [False, True])
async def test_what_waits_for_who_reads_slowly_goes_nowhere(fleet: Configured, lasts: bool) -> None:
    node = fleet.single(RULES + "[mqtt]\nmax_inflight = 1\n")
    with Client(node.mqtt, "c", lasts=lasts, acknowledges=False) as client, Client(node.mqtt, "p") as publisher:
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


def judged_on_return(port: int, client_id: str = "c") -> list[tuple[str, str]]:
    """What comes to who comes back, up to what is the last of it."""
    came = []
    with Client(port, client_id, lasts=True) as client:
        assert client.session_present
        while not came or came[-1][1] != "end":
            came.append(client.receive()[:2])
    return came


@pytest.mark.parametrize("at", ["replicant", "core"])
def test_who_comes_back_is_judged_before_anything_comes(fleet: Configured, at: str) -> None:
    fleet.configure(RULES)
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    port = replicant.mqtt if at == "replicant" else core.mqtt
    with Client(port, "c", lasts=True) as client:
        client.subscribe("secret/#")
        client.subscribe("open/#")
        client.subscribe("$exclusive/alone")
    with Client(core.mqtt, "p") as publisher:
        for number in range(5):
            publisher.publish(f"secret/{number}", "waits")
        publisher.publish("open/1", "waits")
        forbid(core, ["secret/#", "alone"], "clientid/c")
        publisher.publish("secret/5", "waits")
        publisher.publish("open/2", "end")
        assert judged_on_return(port) == [("open/1", "waits"), ("open/2", "end")]
        assert core.metric("flockmq_messages_dropped_total") == 6
        assert revoked(core, replicant) == 2
        eventually(lambda: publisher.ask_for("$exclusive/alone") == 1, "another may have it")
        assert api(core, "DELETE", "/rules/clientid/c")[0] == 204
        publisher.publish("secret/6", "nobody waits for it")
        publisher.publish("open/3", "end")
        assert judged_on_return(port) == [("open/3", "end")]


@pytest.mark.parametrize("version", [V5, V311])
def test_who_comes_back_is_let_in_and_disconnected_once(fleet: Configured, version: MQTTProtocolVersion) -> None:
    node = fleet.single(RULES + 'revoked_subscriptions = "disconnect"\n')
    with Client(node.mqtt, "c", version, lasts=True) as client:
        client.subscribe("secret/#")
        client.subscribe("open/#")
    with Client(node.mqtt, "p") as publisher:
        publisher.publish("secret/1", "waits")
        publisher.publish("open/1", "waits")
        forbid(node, ["secret/#"])
        with Client(node.mqtt, "c", version, lasts=True) as back:
            assert back.session_present
            assert back.disconnected.wait(WITHIN_S)
            assert version == V311 or back.reason == "Not authorized"
        publisher.publish("open/2", "end")
    came = [message.topic for message in back.messages.queue] + [topic for topic, _ in judged_on_return(node.mqtt)]
    assert sorted(set(came)) == ["open/1", "open/2"]


def test_who_comes_back_to_the_same_rules_is_not_asked_about(fleet: Configured) -> None:
    node = fleet.single(RULES)
    forbid(node, ["secret/#"])
    with Client(node.mqtt, "c", lasts=True) as client:
        client.subscribe("open/#")
    asked = node.metric("flockmq_authorizations_total")
    with Client(node.mqtt, "p") as publisher:
        publisher.publish("open/1", "end")
    asked_by_publisher = node.metric("flockmq_authorizations_total") - asked
    assert judged_on_return(node.mqtt) == [("open/1", "end")]
    assert node.metric("flockmq_authorizations_total") == asked + asked_by_publisher


def test_it_is_judged_wherever_it_comes_back_and_whoever_died_meanwhile(fleet: Configured) -> None:
    fleet.configure(RULES)
    cores = [fleet.core(f"core-{number}") for number in range(3)]
    ids = [f"c{number}" for number in range(12)]
    for client_id in ids:
        with Client(cores[0].mqtt, client_id, lasts=True) as client:
            client.subscribe("secret/#")
            client.subscribe("open/#")
    with Client(cores[1].mqtt, "p") as publisher:
        publisher.publish("secret/1", "waits")
        forbid(cores[1], ["secret/#"])
        cores[0].kill()
        publisher.publish("secret/2", "waits")
        publisher.publish("open/1", "end")
        for client_id in ids:
            assert judged_on_return(cores[2].mqtt, client_id) == [("open/1", "end")]


@pytest.mark.parametrize("loses", ["the rule", "its user", "its rights"])
async def test_an_exclusive_filter_of_who_is_away_is_anothers_again(fleet: Configured, loses: str) -> None:
    node = fleet.single(RULES.replace("allow_anonymous = true", PASSWORDS))
    for name in ("eve", "jo"):
        assert api(node, "POST", "/users", {"user_id": name, "password": "pw"})[0] == 201
    async with await Raw.open(node.mqtt, 4) as client:
        assert (await client.connect("c", "eve", "pw", clean=False)).reason == 0
        assert await client.subscribe("$exclusive/alone", 1) == 1
    async with await Raw.open(node.mqtt, 5) as other:
        assert (await other.connect("d", "jo", "pw")).reason == 0
        assert await other.subscribe("$exclusive/alone", 1) == 0x97
        if loses == "the rule":
            await asyncio.to_thread(forbid, node, ["alone"], "username/eve")
        elif loses == "its rights":
            assert api(node, "PUT", "/users/eve", {"is_disabled": True})[0] == 200
        else:
            assert api(node, "DELETE", "/users/eve")[0] == 204
        async with asyncio.timeout(AWAY_WITHIN_S):
            while await other.subscribe("$exclusive/alone", 1) != 1:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)
