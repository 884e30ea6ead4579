"""What a client left behind, wills and delayed messages, is authorized again when it is due, on real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from aiohttp import web

from integration.auth.conftest import Configured, api, service
from integration.auth.raw import Raw, Will
from integration.broker.conftest import Node, eventually

RULED = """
[authentication]
chain = [{ mechanism = "password_based:built_in_database" }]
[authorization]
sources = [{ type = "built_in_database" }]
no_match = "allow"
"""
LATER_S = 3
FORBIDDEN: dict[str, Any] = {"rules": [{"permit": "deny", "action": "publish", "topics": ["left/#"]}]}
Change = Callable[[Node], None]


def forbid(node: Node) -> None:
    assert api(node, "PUT", "/rules/username/jo", FORBIDDEN)[0] == 200


def demote(node: Node) -> None:
    assert api(node, "PUT", "/users/jo", {"is_superuser": False})[0] == 200


def delete(node: Node) -> None:
    assert api(node, "DELETE", "/users/jo")[0] == 204


def disable(node: Node) -> None:
    assert api(node, "PUT", "/users/jo", {"is_disabled": True})[0] == 200


def ban(node: Node) -> None:
    assert api(node, "POST", "/bans", {"as": "username", "who": "jo"})[0] == 201


def make_users(node: Node, *, is_superuser: bool = False) -> None:
    for user_id in ("jo", "ann", "watcher"):
        new = {"user_id": user_id, "password": "pw", "is_superuser": is_superuser}
        assert api(node, "POST", "/users", new)[0] == 201


async def watching(node: Node) -> Raw:
    watcher = await Raw.open(node.mqtt)
    assert (await watcher.connect("watcher", "watcher", "pw")).reason == 0
    assert await watcher.subscribe("left/#") == 0
    return watcher


async def topics(watcher: Raw, count: int) -> list[str]:
    return sorted([await watcher.message() for _ in range(count)])


def dropped(*nodes: Node) -> float:
    return sum(node.metric("flockmq_messages_dropped_total") for node in nodes)


@pytest.mark.parametrize("change", [forbid, demote, delete, disable, ban])
async def test_what_a_client_left_is_dropped_if_it_may_not_any_more_when_it_is_due(
    fleet: Configured, change: Change
) -> None:
    """A will with a delay, one to `$delayed/…`, and delayed messages."""
    fleet.configure(RULED)
    core, node = fleet.core("core-0"), fleet.replicant("replicant-0")
    make_users(node, is_superuser=change is demote)
    if change is demote:
        forbid(node)
    async with await watching(node) as watcher:
        for user in ("jo", "ann"):
            for will in (Will(f"left/{user}/will", LATER_S), Will(f"$delayed/{LATER_S}/left/{user}/delayed")):
                async with await Raw.open(node.mqtt) as client:
                    assert (await client.connect(f"{user}-{will.delay_s}", user, "pw", will=will)).reason == 0
                    assert await client.publish(f"$delayed/{LATER_S}/left/{user}/{will.delay_s}") in (0, 0x10)
        change(node)
        assert await topics(watcher, 4) == ["left/ann/0", f"left/ann/{LATER_S}", "left/ann/delayed", "left/ann/will"]
        eventually(lambda: dropped(core, node) == 4, "what jo left is dropped, and counted")


@pytest.mark.parametrize("delay_s", [0, LATER_S], ids=["clean", "durable"])
@pytest.mark.parametrize("dies", [False, True], ids=["connection lost", "node killed"])
async def test_a_will_is_dropped_that_rules_forbid_while_its_client_is_connected(
    fleet: Configured, delay_s: int, dies: bool
) -> None:
    fleet.configure(RULED)
    core, node, doomed = fleet.core("core-0"), fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    make_users(doomed)
    async with await watching(node) as watcher:
        async with await Raw.open(doomed.mqtt) as jo, await Raw.open(doomed.mqtt) as ann:
            for client, name in ((jo, "jo"), (ann, "ann")):
                will = Will(f"left/{name}", delay_s)
                assert (await client.connect(name, name, "pw", will=will)).reason == 0
            forbid(core)
            eventually(lambda: api(doomed, "GET", "/rules/username/jo")[0] == 200, "the rule is everywhere")
            if dies:
                doomed.kill()
        assert await topics(watcher, 1) == ["left/ann"]
        rest = (core, node) if dies else (core, node, doomed)
        eventually(lambda: dropped(*rest) == 1, "jo's is dropped, and counted")


async def test_what_a_token_allowed_stands(fleet: Configured) -> None:
    """What the client's own rules said nobody can ask again; its client may be banned."""
    secret = fleet.directory / "secret"
    secret.write_text("k" * 32)
    fleet.configure(f"""
    [[authentication.chain]]
    mechanism = "jwt"
    secret_file = "{secret}"
    algorithm = "hmac-based"
    verify_claims = {{ sub = "${{username}}" }}
    [authorization]
    sources = [{{ type = "built_in_database" }}]
    """)
    core, node = fleet.core("core-0"), fleet.replicant("replicant-0")
    token = jwt.encode({"sub": "jo", "acl": {"all": ["left/#"]}}, "k" * 32)
    async with await Raw.open(node.mqtt) as watcher:
        assert (await watcher.connect("watcher", "jo", token)).reason == 0
        assert await watcher.subscribe("left/#") == 0
        async with await Raw.open(node.mqtt) as client:
            assert (await client.connect("c", "jo", token, will=Will("left/will", 1))).reason == 0
            assert await client.publish("$delayed/1/left/later") in (0, 0x10)
        forbid(core)
        assert await topics(watcher, 2) == ["left/later", "left/will"]


async def test_another_service_is_asked_again_about_wills_and_holds_nobody_up(fleet: Configured) -> None:
    answers: dict[str, asyncio.Future[str]] = {}

    async def decide(request: web.Request) -> web.Response:
        said = await request.json()
        who = said["username"]
        result = await answers[who] if who in answers and said["action"] == "publish" else "allow"
        return web.json_response({"result": result})

    async with service("/acl", decide) as url:
        node = fleet.single(f"""
        [authentication]
        allow_anonymous = true
        [authorization]
        sources = [{{ type = "http", url = "{url}", request_timeout = "20s" }}]
        cache = {{ ttl = "0s" }}
        """)
        async with await Raw.open(node.mqtt) as watcher:
            assert (await watcher.connect("watcher")).reason == 0
            assert await watcher.subscribe("left/#") == 0
            for who, delay_s in (("slow", 0), ("slow too", 1), ("other", 0), ("other too", 1)):
                async with await Raw.open(node.mqtt) as client:
                    assert (await client.connect(who, who, will=Will(f"left/{who}", delay_s))).reason == 0
                    if who.startswith("slow"):
                        answers[who] = asyncio.get_running_loop().create_future()
            assert await topics(watcher, 2) == ["left/other", "left/other too"]
            answers["slow"].set_result("deny")
            answers["slow too"].set_result("allow")
            assert await topics(watcher, 1) == ["left/slow too"]
            eventually(lambda: dropped(node) == 1, "what was denied is dropped, and counted")
