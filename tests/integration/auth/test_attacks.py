"""Attacks on who may connect and do what, on real nodes: each is refused, and costs nobody else anything."""

from __future__ import annotations

import asyncio
import time

import pytest

from integration.auth.conftest import Configured, api
from integration.auth.raw import PINGREQ, PINGRESP, SUBACK, Raw, connects, text
from integration.broker.clients import Client
from integration.broker.conftest import eventually


@pytest.mark.parametrize(
    "filter",
    [
        "$SYS/brokers/+/clients/#",
        "$SYS/#",
        "$share/g/$SYS/brokers/+/clients/+/connected",
        "$exclusive/$SYS/#",
    ],
)
async def test_nobody_hears_who_else_is_here(fleet: Configured, filter: str) -> None:
    node = fleet.single("[authentication]\nallow_anonymous = true\n")
    async with await Raw.open(node.mqtt) as client:
        assert (await client.connect("curious")).reason == 0
        assert await client.subscribe(filter) == 0x87
        assert await client.subscribe("$SYS/brokers/+/version") == 0
        assert await client.subscribe("#") == 0


@pytest.mark.parametrize(("version", "refused"), [(5, 0x85), (4, 2)])
async def test_nobody_comes_by_anothers_client_id(fleet: Configured, version: int, refused: int) -> None:
    node = fleet.single("""
    [[authentication.chain]]
    mechanism = "password_based:built_in_database"
    clientid = "${username}-*"
    """)
    for user_id in ("victim", "mallory", "*"):
        assert api(node, "POST", "/users", {"user_id": user_id, "password": "pw"})[0] == 201
    async with await Raw.open(node.mqtt, version) as victim:
        assert (await victim.connect("victim-1", "victim", "pw")).reason == 0
        assert await connects(node, "victim-1", "mallory", "pw", version=version) == refused
        assert await connects(node, "victim-1", "*", "pw", version=version) == refused
        assert await connects(node, "mallory-1", "mallory", "pw", version=version) == 0
        async with await Raw.open(node.mqtt, version) as nameless:
            answer = await nameless.connect("", "mallory", "pw")
            assert answer.reason == 0
            assert answer.assigned.startswith("mallory-") or version == 4
        assert await victim.publish("still/here") in (0, 0x10)


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("DELETE", None),
        ("PUT", {"password": "another"}),
        ("PUT", {"is_superuser": False}),
        ("PUT", {"is_disabled": True}),
    ],
    ids=["deleted", "password", "demoted", "disabled"],
)
async def test_a_user_that_lost_its_rights_is_sent_away_from_every_node(
    fleet: Configured, method: str, change: dict[str, object] | None
) -> None:
    fleet.configure('[authentication]\nchain = [{ mechanism = "password_based:built_in_database" }]\n')
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    for user_id in ("mallory", "ann"):
        new = {"user_id": user_id, "password": "pw", "is_superuser": True}
        assert api(replicant, "POST", "/users", new)[0] == 201
    async with await Raw.open(replicant.mqtt) as mallory, await Raw.open(replicant.mqtt) as ann:
        assert (await mallory.connect("m", "mallory", "pw")).reason == 0
        assert (await ann.connect("a", "ann", "pw")).reason == 0
        eventually(lambda: api(core, "GET", "/users/mallory")[0] == 200, "the core has the user")
        assert api(core, method, "/users/mallory", change)[0] in (200, 204)
        changed_s = time.monotonic()
        assert (await mallory.ended()).reason == 0x87
        assert time.monotonic() - changed_s < 2.0
        assert await ann.publish("still/here") in (0, 0x10)


@pytest.mark.parametrize("lasts", [False, True])
async def test_nothing_comes_from_who_is_banned(fleet: Configured, lasts: bool) -> None:
    fleet.configure("[authentication]\nallow_anonymous = true\n")
    core, replicant = fleet.core("core-0"), fleet.replicant("replicant-0")
    with Client(replicant.mqtt, "watcher") as watcher:
        watcher.subscribe("last/words/#", 1)
        with Client(replicant.mqtt, "bad", will=("last/words/bad", "ha"), lasts=lasts) as bad:
            assert bad.publish("$delayed/3/last/words/later", "ha", 1) in (0, 0x10)
            assert api(core, "POST", "/bans", {"as": "clientid", "who": "bad"})[0] == 201
            assert bad.disconnected.wait(30)
        eventually(lambda: replicant.metric("flockmq_messages_dropped_total") == 1, "its will is dropped")
        eventually(lambda: core.metric("flockmq_messages_dropped_total") == 1, "so is what was due later")
        good = await Raw.open(replicant.mqtt)
        async with good:
            await good.connect("good")
            await good.publish("last/words/good")
        assert watcher.receive()[0] == "last/words/good"


@pytest.mark.parametrize(("version", "slowed"), [(5, 0x9F), (4, 3)])
async def test_who_guesses_passwords_must_wait_and_nobody_else(fleet: Configured, version: int, slowed: int) -> None:
    node = fleet.single("""
    [[authentication.chain]]
    mechanism = "password_based:built_in_database"
    [authentication.failed_logins]
    max_wait = "1h"
    """)
    for user_id in ("victim", "neighbour"):
        assert api(node, "POST", "/users", {"user_id": user_id, "password": "pw"})[0] == 201
    assert await connects(node, "victims-own", "victim", "pw", version=version) == 0
    reasons = [await connects(node, f"guess-{n}", "victim", f"pw{n}", version=version) for n in range(30)]
    refused = 0x86 if version == 5 else 4
    assert reasons[:5] == [refused] * 5
    assert reasons.count(slowed) >= 15
    assert await connects(node, "guess", "victim", "pw", version=version) == slowed, "not even what is right"
    assert await connects(node, "victims-own", "victim", "pw", version=version) == 0, "it was let in from here before"
    assert await connects(node, "new", "neighbour", "pw", version=version) == 0, "another user of this address"
    assert await connects(node, "new", "victim", "pw", version=version, host="127.0.0.2") == 0, "another address"
    assert node.metric("flockmq_failed_logins") > 0


RULES = ", ".join(f'{{ permit = "deny", topics = ["${{clientid}}/{number}"] }}' for number in range(990))
SLOW = f"""
[authentication]
allow_anonymous = true
[authorization]
no_match = "deny"
sources = [{{ type = "file", rules = [{RULES}] }}]
"""
"""All rules are looked at, whatever is asked for."""
FILTERS = b"".join(text(f"{number}/x") + b"\x00" for number in range(2000))


async def test_who_is_refused_thousands_of_filters_holds_up_nobody(fleet: Configured) -> None:
    node = fleet.single(SLOW)
    async with await Raw.open(node.mqtt) as hostile, await Raw.open(node.mqtt) as other:
        assert (await hostile.connect("hostile")).reason == 0
        assert (await other.connect("other")).reason == 0
        hostile.send(0x82, b"\x00\x01\x00" + FILTERS)
        refused = asyncio.ensure_future(hostile.answer(SUBACK))
        for _ in range(20):
            other.send(PINGREQ, b"")
            await other.answer(PINGRESP)
        assert await other.subscribe("y") == 0x87
        assert not refused.done(), "others are served meanwhile"
        assert (await refused).reason == 0x87


async def test_what_a_client_asked_for_that_left_is_judged_no_more(fleet: Configured) -> None:
    node = fleet.single(SLOW)
    async with await Raw.open(node.mqtt) as hostile:
        assert (await hostile.connect("hostile")).reason == 0
        hostile.send(0x82, b"\x00\x01\x00" + FILTERS)
    eventually(lambda: node.metric("flockmq_connections") == 0, "it is gone")
    assert node.metric("flockmq_authorizations_total") < 2000
