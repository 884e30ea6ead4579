"""The keys of an issuer: fetched, kept, and asked for again."""

from __future__ import annotations

import asyncio
import json

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from flockmq.auth import jwks
from flockmq.auth.authenticator import Granted, Pass
from flockmq.auth.jwks import KeySet
from flockmq.auth.jwt import JwtAuthenticator
from flockmq.bounds import JWKS_MAX_BYTES
from flockmq.config.auth_settings import JwtSettings
from unit.broker.auth.harness import attempt
from unit.broker.auth.http_server import Server


def published(*key_ids: str) -> dict[str, list[dict[str, object]]]:
    keys = [
        json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))
        | {"kid": key_id}
        for key_id in key_ids
    ]
    return {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric"}, {"kty": "XY", "kid": "odd"}, *keys]}


async def test_keys_stay_until_others_were_fetched(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    answers = [
        web.json_response(published("a", "b")),
        web.Response(status=500),
        web.Response(status=302, headers={"Location": "/others"}),
        web.Response(text="{}"),
        web.Response(text=" " * (JWKS_MAX_BYTES + 1)),
        web.Response(text='{"keys": ' + "[" * 10_000 + "]" * 10_000 + "}"),
        web.json_response(published("c")),
    ]

    async def handler(request: web.Request) -> web.Response:
        return answers.pop(0)

    server.handler = handler
    keys = KeySet(server.url, 3600.0, "here")
    await keys.start()
    assert "a" in keys
    assert "symmetric" not in keys, "a secret isn't a public key"
    assert keys.get(None) is None, "which of the two?"
    for why in ("status 500", "status 302", 'no list "keys"', "more than", "recursion"):
        await keys.refresh()
        assert len(keys) == 2
        assert why in caplog.text
    await keys.refresh()
    assert "a" not in keys
    assert keys.get(None) is keys.get("c")
    await keys.stop()


@pytest.mark.parametrize("odd", [{"kid": ["a"]}, {"kid": {}}, {"kid": 7}, {"alg": ["ES256"]}, {"alg": "none"}])
async def test_a_key_that_cant_be_used_spoils_no_other(server: Server, odd: dict[str, object]) -> None:
    (key,) = published("odd")["keys"][2:]
    document = published("a")
    document["keys"].append(key | odd)

    async def handler(request: web.Request) -> web.Response:
        return web.json_response(document)

    server.handler = handler
    keys = KeySet(server.url, 3600.0, "here")
    await keys.start()
    assert "a" in keys
    assert len(keys) == 1
    await keys.stop()


async def test_an_issuer_that_is_late_is_said_to_be(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    server.handler = handler
    monkeypatch.setattr(jwks, "FETCH_MAX_S", 0.1)
    await KeySet(server.url, 3600.0, "here").refresh()
    assert "here.endpoint: the keys can't be had: no answer within 0.1 s" in caplog.text


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: "])
async def test_what_is_no_http_is_said_without_what_was_asked(before: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(before + await reader.readline() + b"\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as odd:
        port = odd.sockets[0].getsockname()[1]
        await KeySet(f"http://jo:secret@127.0.0.1:{port}/secret?token=secret", 3600.0, "here").refresh()
    assert "here.endpoint: the keys can't be had: what it says is no HTTP" in caplog.text
    assert "secret" not in caplog.text


async def test_who_waits_for_keys_waits_for_one_question(server: Server) -> None:
    asked = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response(published("a"))

    server.handler = handler
    keys = KeySet(server.url, 3600.0, "here")
    assert keys.may_ask
    await asyncio.gather(*(keys.refresh() for _ in range(10)))
    assert asked == 1
    assert not keys.may_ask
    await keys.stop()


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256"])
async def test_a_key_is_for_the_algorithm_that_the_issuer_says_or_for_all_of_its_kind(
    server: Server, algorithm: str
) -> None:
    private = rsa.generate_private_key(65537, 2048)
    shown = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key()))
    signed = jwt.encode({"sub": "jo"}, private, algorithm, {"kid": "a"})

    async def is_taken(key: dict[str, object]) -> bool:
        async def handler(request: web.Request) -> web.Response:
            return web.json_response({"keys": [key]})

        server.handler = handler
        authenticator = JwtAuthenticator(JwtSettings(algorithm="public-key", endpoint=server.url), "here")
        await authenticator.start()
        answer = authenticator.check(attempt("c", "jo", signed))
        await authenticator.stop()
        return isinstance(answer, Granted)

    assert await is_taken(shown | {"kid": "a"})
    assert await is_taken(shown | {"kid": "a", "alg": "RS256"}) == (algorithm == "RS256")


async def test_while_the_issuer_cant_be_asked_nobody_is_told_that_its_token_is_wrong(server: Server) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=500)

    server.handler = handler
    authenticator = JwtAuthenticator(JwtSettings(algorithm="public-key", endpoint=server.url), "here")
    await authenticator.start()
    token = jwt.encode({}, "0123456789abcdef0123456789abcdef", "HS256")
    assert authenticator.check(attempt("c", "jo", token)) is Pass.UNAVAILABLE
    await authenticator.stop()
