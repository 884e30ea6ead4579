"""Services that answer anything, late, or too much."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from pathlib import Path
from typing import Literal

import pytest
from aiohttp import web

from flockmq import tasks
from flockmq.auth import http_service, redis
from flockmq.auth.authenticator import Granted, Pass, Verdict
from flockmq.auth.built_in import Passwords
from flockmq.auth.chain import Chain, Outcome
from flockmq.auth.hash_pool import HashPool, VerifiedPasswords
from flockmq.auth.http import HttpAuthenticator
from flockmq.auth.http_service import HttpService, ServiceAnswer, Unanswered
from flockmq.auth.redis import RedisAuthenticator
from flockmq.auth.service_turns import Overloaded
from flockmq.bounds import ANSWER_MAX_BYTES, PASSWORD_MAX_BYTES
from flockmq.clock import SYSTEM, Clock
from flockmq.config.auth_settings import HttpSettings, RedisAuthSettings
from flockmq.errors import ConfigError
from flockmq.mqtt.reason import Reason
from unit.broker.auth.harness import attempt
from unit.broker.auth.http_server import Server

VALUES = {"clientid": "a/b&c", "username": "jo: 1"}


async def ask(settings: HttpSettings) -> ServiceAnswer:
    service = HttpService(settings, ("clientid", "username", "password"), "here")
    await service.start()
    try:
        return await service.ask(VALUES.get, "here")
    finally:
        await service.stop()
        assert service.turns.waiting == 0


async def test_what_a_client_says_stays_where_it_belongs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, str, str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        heard.append((request.method, request.raw_path, request.headers.get("X-User", ""), await request.text()))
        return web.json_response({"result": "allow"})

    server.handler = handler
    url, headers = server.url + "/c/${clientid}", {"X-User": "${username}"}
    body = {"id": "${clientid}", "fixed": "x"}
    assert await ask(HttpSettings(url=url, headers=headers, body=body)) == ServiceAnswer("allow")
    await ask(HttpSettings(method="get", url=url, body=body))
    monkeypatch.setitem(VALUES, "clientid", "..")
    await ask(HttpSettings(method="get", url=server.url + "/c?${clientid}", body={}))
    assert heard == [
        ("POST", "/c/a%2Fb%26c", "jo: 1", '{"id": "a/b&c", "fixed": "x"}'),
        ("GET", "/c/a%2Fb%26c?id=a/b%26c&fixed=x", "", ""),
        ("GET", "/c?..", "", ""),
    ]


async def test_a_header_says_what_stands_in_its_file_letter_by_letter(server: Server, tmp_path: Path) -> None:
    heard: list[list[str]] = []

    async def handler(request: web.Request) -> web.Response:
        heard.append([request.headers.get(name, "") for name in ("X-Api-Key", "Authorization")])
        return web.json_response({"result": "allow"})

    server.handler = handler
    file = tmp_path / "key"
    file.write_text("${clientid}\n")
    headers = {"Authorization": "Bearer ${username}"}
    assert await ask(HttpSettings(url=server.url, headers=headers, headers_file={"X-Api-Key": file})) == ServiceAnswer(
        "allow"
    )
    assert heard == [["${clientid}", "Bearer jo: 1"]]


@pytest.mark.parametrize("username", ["victim\n", "vic\r\ntim", "vic\x7ftim", " victim", "victim\t", "victim\u200b"])
async def test_what_cant_stand_in_a_header_passes_for_nobody_else(
    server: Server, monkeypatch: pytest.MonkeyPatch, username: str
) -> None:
    monkeypatch.setitem(VALUES, "username", username)
    with pytest.raises(Unanswered):
        await ask(HttpSettings(url=server.url, headers={"X-User": "${username}"}))


@pytest.mark.parametrize("client_id", ["", ".", ".."])
async def test_a_step_in_a_path_passes_for_nobody_else(
    server: Server, monkeypatch: pytest.MonkeyPatch, client_id: str
) -> None:
    monkeypatch.setitem(VALUES, "clientid", client_id)
    with pytest.raises(Unanswered):
        await ask(HttpSettings(url=server.url + "/c/${clientid}/may", body={}))
    with pytest.raises(Unanswered):
        await ask(HttpSettings(url=server.url + "/c/${clientid}?a=b", body={}))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, "{}"),
        (302, "{}"),
        (404, '{"result": "allow"}'),
        (200, ""),
        (200, "allow"),
        (200, '{"is_superuser": true}'),
        (200, '{"result": "allow", "is_superuser": "yes"}'),
        (200, '{"result": "allow"}' + " " * ANSWER_MAX_BYTES),
        (200, '{"result": "allow", "acl": ' + "[" * 10_000 + "]" * 10_000 + "}"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_none(server: Server, status: int, body: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers={"Location": "/other"})

    server.handler = handler
    with pytest.raises(Unanswered):
        await ask(HttpSettings(url=server.url))


async def test_a_url_that_a_client_makes_senseless_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        with pytest.raises(Unanswered):
            await ask(HttpSettings(url="http://${clientid}/"))
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", Reason.SUCCESS),
        (', "expire_at": null', Reason.SUCCESS),
        (', "expire_at": 1001', Reason.SUCCESS),
        (', "expire_at": 1000', Reason.BAD_USER_NAME_OR_PASSWORD),
        (', "expire_at": 0.5', Reason.BAD_USER_NAME_OR_PASSWORD),
        (', "expire_at": 0', Reason.NOT_AUTHORIZED),
        (', "expire_at": -1', Reason.NOT_AUTHORIZED),
        (', "expire_at": 1795600000000', Reason.NOT_AUTHORIZED),
        (', "expire_at": 253402300799', Reason.SUCCESS),
        (', "expire_at": 253402300800', Reason.NOT_AUTHORIZED),
        (', "expire_at": "1001"', Reason.SERVER_UNAVAILABLE),
        (', "expire_at": true', Reason.SERVER_UNAVAILABLE),
    ],
)
async def test_who_has_no_time_left_isnt_let_in(
    server: Server, caplog: pytest.LogCaptureFixture, said: str, reason: Reason
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=f'{{"result": "allow"{said}}}')

    server.handler = handler
    clock = Clock(lambda: 0.0, lambda: 1000.0)
    chain = Chain([HttpAuthenticator(HttpSettings(url=server.url), "here", clock)], None, clock=clock)
    await chain.start()
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    chain.authenticate(attempt("c", "jo", "pw"), done.set_result)
    assert (await done).reason == reason
    assert ("expire_at" in caplog.text) == (reason in (Reason.NOT_AUTHORIZED, Reason.SERVER_UNAVAILABLE))
    await chain.stop()


async def test_no_content_is_a_yes(server: Server) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=204)

    server.handler = handler
    assert await ask(HttpSettings(url=server.url)) == ServiceAnswer("allow")


async def test_a_service_that_is_late_or_gone_doesnt_answer(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    server.handler = handler
    for settings, why in (
        (HttpSettings(url=server.url, request_timeout=0.1), "no answer within request_timeout, 0.1 s"),
        (HttpSettings(url="http://127.0.0.1:1"), "Cannot connect to host 127.0.0.1:1"),
    ):
        caplog.clear()
        with pytest.raises(Unanswered):
            await ask(settings)
        assert f"doesn't answer: {why}" in caplog.text


async def test_who_finds_no_connection_in_time_isnt_answered_and_what_he_says_isnt_logged(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        asked.set()
        await answer.wait()
        return web.Response(status=204)

    server.handler = handler
    settings = HttpSettings(method="get", url=server.url, body={"p": "${password}"}, pool_size=1, connect_timeout=0.1)
    service = HttpService(settings, ("password",), "here")
    await service.start()
    first = asyncio.ensure_future(service.ask(lambda _: "secret-1", "here"))
    await asked.wait()
    with pytest.raises(Unanswered):
        await service.ask(lambda _: "secret-2", "here")
    answer.set()
    await first
    await service.stop()
    assert "no connection within connect_timeout, 0.1 s" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: ", b"HTTP/1.1 200 OK\r\n"])
async def test_what_is_no_http_is_said_without_what_was_asked(before: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The request is repeated in it, as by an echo server."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(before + await reader.readline() + b"\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as odd:
        url = f"http://127.0.0.1:{odd.sockets[0].getsockname()[1]}"
        with pytest.raises(Unanswered):
            await ask(HttpSettings(method="get", url=url, body={"name": "${username}"}))
    assert "doesn't answer: what it says is no HTTP" in caplog.text
    assert "jo" not in caplog.text


async def test_a_password_that_cant_stand_in_a_header_isnt_logged(caplog: pytest.LogCaptureFixture) -> None:
    service = HttpService(HttpSettings(url="https://a", body={}, headers={"X": "${password}"}), ("password",), "here")
    await service.start()
    with pytest.raises(Unanswered):
        await service.ask(lambda _: "secret ", "here")
    await service.stop()
    assert "isn't asked: the password can't stand in the header X" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("method", ["get", "post"])
async def test_a_password_that_is_no_text_passes_for_no_other_one(
    server: Server, caplog: pytest.LogCaptureFixture, method: Literal["get", "post"]
) -> None:
    heard: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        heard.append(await request.text())
        return web.json_response({"result": "allow"})

    server.handler = handler
    authenticator = HttpAuthenticator(HttpSettings(url=server.url, method=method), "here", SYSTEM)
    await authenticator.start()
    assert await authenticator.check(dataclasses.replace(attempt("c", "jo"), password=b"\xffpass")) is Pass.UNAVAILABLE
    await authenticator.stop()
    assert not heard
    assert "isn't asked: the password isn't UTF-8 text" in caplog.text
    assert "xff" not in caplog.text


async def test_only_so_many_questions_wait(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_service, "ASKED_MAX", 1)
    asked, answer = asyncio.Queue[None](), asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        asked.put_nowait(None)
        await answer.wait()
        return web.Response(status=204)

    server.handler = handler
    service = HttpService(HttpSettings(url=server.url, body={}, pool_size=1), (), "here")
    await service.start()
    two = [asyncio.ensure_future(service.ask(VALUES.get, "here")) for _ in range(2)]
    await asked.get()
    with pytest.raises(Overloaded):
        await service.ask(VALUES.get, "here")
    answer.set()
    await asyncio.gather(*two)
    await service.stop()


async def test_one_address_of_very_many_logins_keeps_nobody_else_from_being_let_in(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_service, "ASKED_MAX", 50)

    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(0.02)
        return web.Response(status=204)

    server.handler = handler
    authenticator = HttpAuthenticator(HttpSettings(url=server.url, pool_size=1, request_timeout=0.5), "here", SYSTEM)
    await authenticator.start()

    async def again_and_again(number: int) -> None:
        while True:
            verdict = await authenticator.check(attempt(f"c{number}", f"u{number}", "pw", "203.0.113.9"))
            await asyncio.sleep(0.005 if verdict is Pass.BUSY else 0)

    logins = [asyncio.ensure_future(again_and_again(number)) for number in range(100)]
    await asyncio.sleep(0.1)
    for _ in range(3):
        assert isinstance(await authenticator.check(attempt("c", "jo", "pw", "192.0.2.1")), Granted)
    await tasks.end(*logins)
    await authenticator.stop()


def test_settings_that_cant_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"here\.url: \$\{x\} is unknown"):
        HttpService(HttpSettings(url="http://a/${x}"), ("clientid",), "here")
    with pytest.raises(ConfigError, match=r"here\.headers: 'A\\nB' can't be the name"):
        HttpService(HttpSettings(url="https://a", body={}, headers={"A\nB": "x"}), (), "here")
    with pytest.raises(
        ConfigError, match=r"here\.cacertfile: '/nowhere' can't be read: No such file or directory; name a PEM"
    ):
        HttpService(HttpSettings(url="https://a", body={}, cacertfile=Path("/nowhere")), (), "here")
    key = tmp_path / "key"
    key.write_text("two\nlines")
    for headers_file, why in (
        ({"A B": key}, r"here\.headers_file: 'A B' can't be the name of a header"),
        ({"x-user": key}, r"here\.headers_file\.x-user: stands beside headers\.X-User; say one of them"),
        ({"authorization": key}, r"here\.headers_file\.authorization: .*authorization_file"),
        ({"X-Key": Path("/nowhere")}, r"here\.headers_file\.X-Key: '/nowhere' can't be read: No such file"),
        ({"X-Key": key}, r"here\.headers_file\.X-Key: '.*key' holds what can't stand in a header"),
    ):
        with pytest.raises(ConfigError, match=why):
            HttpService(
                HttpSettings(url="https://a", body={}, headers={"X-User": "x"}, headers_file=headers_file), (), "here"
            )


async def test_a_redis_that_is_late_is_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as late:
        settings = RedisAuthSettings(url=f"redis://127.0.0.1:{late.sockets[0].getsockname()[1]}", request_timeout=0.1)
        users = RedisAuthenticator(settings, "here", Passwords(HashPool(), VerifiedPasswords()), SYSTEM)
        await users.start()
        asked = users.check(attempt("c", "jo", "pw"))
        assert isinstance(asked, Coroutine)
        assert await asked is Pass.UNAVAILABLE
        await users.stop()
    assert "here: Redis doesn't answer: nothing within request_timeout, 0.1 s" in caplog.text


async def test_one_address_of_very_many_logins_keeps_nobody_else_from_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "ASKED_MAX", 50)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            words = []
            for _ in range(int(head[1:])):
                await reader.readline()
                words.append((await reader.readline()).strip())
            await asyncio.sleep(0.02)
            writer.write(b"*2\r\n$-1\r\n$-1\r\n" if words[0] == b"HMGET" else b"+OK\r\n")
        writer.close()

    async with await asyncio.start_server(slow, "127.0.0.1", 0) as server:
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}?protocol=2"
        settings = RedisAuthSettings(url=url, request_timeout=0.5, pool_size=1)
        users = RedisAuthenticator(settings, "here", Passwords(HashPool(), VerifiedPasswords()), SYSTEM)
        await users.start()

        def login(name: str, host: str) -> Coroutine[None, None, Verdict]:
            too_long = "x" * (PASSWORD_MAX_BYTES + 1)  # no hash is needed
            asked = users.check(attempt("c", name, too_long, host))
            assert isinstance(asked, Coroutine)
            return asked

        async def again_and_again(number: int) -> None:
            while True:
                verdict = await login(f"u{number}", "203.0.113.9")
                await asyncio.sleep(0.005 if verdict is Pass.BUSY else 0)

        logins = [asyncio.ensure_future(again_and_again(number)) for number in range(100)]
        await asyncio.sleep(0.2)
        for _ in range(3):
            assert await login("jo", "192.0.2.1") is Pass.UNKNOWN
        await tasks.end(*logins)
        await users.stop()
