"""Bans reach who is connected, on every node; clients that come and go too often are banned; a flood of wrong
passwords costs whoever sends it."""

from __future__ import annotations

import asyncio

import pytest

from integration.auth.conftest import Configured, api
from integration.auth.raw import Raw
from integration.broker.clients import Client
from integration.broker.conftest import eventually

OPEN = "[authentication]\nallow_anonymous = true\n"


@pytest.mark.parametrize(
    "ban",
    [
        {"as": "clientid", "who": "bad"},
        {"as": "client", "who": '["ban-me","bad","127.0.0.2"]'},
        {"as": "username", "who": "ban-me"},
        {"as": "clientid_pattern", "who": "b?d"},
        {"as": "peerhost", "who": "127.0.0.2"},
        {"as": "peerhost_net", "who": "127.0.0.2/31"},
    ],
)
async def test_a_ban_sends_away_who_is_connected_and_keeps_it_out(fleet: Configured, ban: dict[str, str]) -> None:
    node = fleet.single(OPEN)
    async with await Raw.open(node.mqtt, host="127.0.0.2") as bad, await Raw.open(node.mqtt) as good:
        assert (await bad.connect("bad", "ban-me")).reason == 0
        assert (await good.connect("good", "ok")).reason == 0
        assert api(node, "POST", "/bans", ban)[0] == 201
        assert (await bad.ended()).reason == 0x87
        for version, reason in ((5, 0x8A), (4, 5)):
            async with await Raw.open(node.mqtt, version, host="127.0.0.2") as again:
                assert (await again.connect("bad", "ban-me")).reason == reason
        assert await good.publish("a") in (0, 0x10), "nobody else is touched"
        assert api(node, "DELETE", f"/bans/{ban['as']}/{ban['who'].replace('/', '%2F').replace('?', '%3F')}")[0] == 204
        async with await Raw.open(node.mqtt, host="127.0.0.2") as again:
            assert (await again.connect("bad", "ban-me")).reason == 0


async def test_a_ban_made_on_one_node_reaches_the_others_and_ends_by_itself(fleet: Configured) -> None:
    fleet.configure(OPEN)
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    async with await Raw.open(replicant.mqtt) as bad:
        assert (await bad.connect("bad")).reason == 0
        api(core, "POST", "/bans", {"as": "clientid", "who": "bad", "seconds": 1.5})
        assert (await bad.ended()).reason == 0x87
    async with asyncio.timeout(30):
        reason = -1
        while reason != 0:
            async with await Raw.open(replicant.mqtt) as again:
                reason = (await again.connect("bad")).reason
                assert reason in (0, 0x8A)
    eventually(lambda: api(core, "GET", "/bans")[1]["count"] == 0, "the leader has removed the row")


async def test_a_client_that_comes_and_goes_is_banned_for_a_while(fleet: Configured) -> None:
    node = fleet.single(OPEN + "[flapping]\nenable = true\nmax_count = 5\nban_time = 60\n")
    for _ in range(5):
        async with await Raw.open(node.mqtt) as client:
            assert (await client.connect("restless")).reason == 0
    eventually(lambda: api(node, "GET", "/bans")[1]["count"] == 1, "it is banned")
    (ban,) = api(node, "GET", "/bans")[1]["data"]
    assert (ban["as"], ban["who"], ban["by"]) == ("client", '["","restless","127.0.0.1"]', "flapping")
    async with await Raw.open(node.mqtt) as client:
        assert (await client.connect("restless")).reason == 0x8A
    async with await Raw.open(node.mqtt, host="127.0.0.2") as client:
        assert (await client.connect("restless")).reason == 0, "nobody has another one banned"
    async with await Raw.open(node.mqtt) as client:
        assert (await client.connect("calm")).reason == 0


async def test_a_thousand_wrong_passwords_at_once_stop_nobody_else(fleet: Configured) -> None:
    node = fleet.single("""
    [[authentication.chain]]
    mechanism = "password_based:built_in_database"
    password_hash_algorithm = { name = "argon2id", memory_kib = 8192, passes = 1 }
    [authentication.failed_logins]
    enable = false
    """)
    for name in ("jo", "ann"):
        api(node, "POST", "/users", {"user_id": name, "password": "pw"})

    async def wrong(number: int) -> int:
        async with await Raw.open(node.mqtt) as client:
            return (await client.connect(f"evil-{number}", "jo", f"guess-{number}")).reason

    async with await Raw.open(node.mqtt, host="127.0.0.2") as jo:
        assert (await jo.connect("c", "jo", "pw")).reason == 0
        flood = [asyncio.ensure_future(wrong(number)) for number in range(1000)]
        await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        async with await Raw.open(node.mqtt, host="127.0.0.3") as ann:
            assert (await ann.connect("ann", "ann", "pw")).reason == 0, "another address has its turn"
        for _ in range(100):
            assert await jo.publish("a") in (0, 0x10)
        assert not all(one.done() for one in flood), "the flood was still on"
        reasons = set(await asyncio.gather(*flood))
    assert reasons <= {0x86, 0x89}
    assert 0x89 in reasons
    assert node.metric("flockmq_authentications_total") == 1002


def test_rules_in_the_log_reach_clients_that_are_connected(fleet: Configured) -> None:
    fleet.configure(OPEN + '[authorization]\nsources = [{ type = "built_in_database" }]\nno_match = "allow"\n')
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    with Client(replicant.mqtt, "c") as client:
        assert client.publish("a", "x") in (0, 0x10)
        assert api(core, "PUT", "/rules/clientid/c", {"rules": [{"permit": "deny", "topics": ["a"]}]})[0] == 200
        eventually(lambda: client.publish("a", "x") == 0x87, "the rule holds for who is connected")
        assert client.ask_for("a") == 0x87
        assert client.ask_for("$share/g/a") == 0x87
        assert client.ask_for("$exclusive/a") == 0x87
        assert client.publish("$delayed/1/a", "x") == 0x87
        assert client.ask_for("b") == 1
        assert api(core, "DELETE", "/rules/clientid/c")[0] == 204
        eventually(lambda: client.publish("a", "x") in (0, 0x10), "the rule is gone")


async def test_who_tries_what_it_may_not_may_be_disconnected(fleet: Configured) -> None:
    node = fleet.single(
        OPEN
        + '[authorization]\ndeny_action = "disconnect"\nsources = [{ type = "file", rules = [{ permit = "deny" }] }]\n'
    )
    async with await Raw.open(node.mqtt) as client:
        assert (await client.connect("c")).reason == 0
        client.send(0x30, b"\x00\x01a\x00x")
        assert (await client.ended()).reason == 0x87
