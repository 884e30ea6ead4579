"""The operator's client and the broker's own management server, over HTTP."""

import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme
from aiohttp import web

from flockmq_operator.management_api import (
    ANSWER_MAX_BYTES,
    Access,
    ManagementApi,
    NodeAway,
    NodeRefuses,
    connected,
    decoded,
)
from ports import free_port
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.broker.management.test_server import ToldNode

JO = "/api/v1/users/jo"
NEW = {"user_id": "jo", "password": "pw"}


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], Awaitable[web.Response]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """A server that answers everything so; gives its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with managed(ToldNode(), FakeLog()) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def api(url: str) -> AsyncIterator[ManagementApi]:
    async with connected(Access(url, KEY, None), ManagementApi) as api:
        yield api


async def test_a_no_has_the_nodes_sentence(api: ManagementApi, url: str) -> None:
    await api.ask("POST", "/api/v1/users", NEW)
    with pytest.raises(NodeRefuses, match="user 'jo' is there already") as refusal:
        await api.ask("POST", "/api/v1/users", NEW)
    assert refusal.value.status == 409
    async with connected(Access(url, "wrong", None), ManagementApi) as stranger:
        with pytest.raises(NodeRefuses, match="the API key is missing, wrong") as refusal:
            await stranger.ask("GET", JO)
    assert refusal.value.status == 401


async def test_a_node_that_does_not_answer_is_away_and_asked_once() -> None:
    async with connected(Access(f"http://127.0.0.1:{free_port()}", KEY, None), ManagementApi) as api:
        for _ in range(2):
            with pytest.raises(NodeAway, match=r"http://127.0.0.1:\d+ doesn't answer: "):
                await api.ask("GET", JO)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (503, '{"error": "too many passwords wait to be hashed"}', "too many passwords wait"),
        (507, '{"error": "the log is full"}', "the log is full"),
        (500, "<html>", "HTTP 500"),
        (200, "<html>", "makes no sense"),
        (200, "[]", "makes no sense"),
        (200, "x" * (ANSWER_MAX_BYTES + 1), f"more than {ANSWER_MAX_BYTES} bytes"),
    ],
)
async def test_what_is_no_proper_answer_is_one_that_may_come_later(status: int, body: str, why: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    async with (
        answering(answer) as port,
        connected(Access(f"http://127.0.0.1:{port}", KEY, None), ManagementApi) as api,
    ):
        with pytest.raises(NodeAway, match=why):
            decoded((await api.ask("GET", JO))[0], dict)


async def test_the_key_follows_no_redirect() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with (
        answering(answer) as port,
        connected(Access(f"http://127.0.0.1:{port}", KEY, None), ManagementApi) as api,
    ):
        with pytest.raises(NodeRefuses, match="HTTP 307"):
            await api.ask("POST", "/api/v1/users", NEW)
    assert asked == ["/api/v1/users"]


async def test_only_a_node_that_shows_the_certificate_of_the_secret_gets_the_key() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        asked.append(str(request.transport.get_extra_info("peername")))
        return web.Response(status=404, text='{"error": "there is no user"}')

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate = trustme.CA().issue_cert("any.example")
    certificate.configure_cert(tls)
    der = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
    async with answering(answer, tls) as port:
        right = Access(f"https://127.0.0.1:{port}", KEY, hashlib.sha256(der).digest())
        async with connected(right, ManagementApi) as api:
            for _ in range(2):
                await api.delete_path(JO)
        async with connected(right._replace(fingerprint=hashlib.sha256(b"another").digest()), ManagementApi) as api:
            with pytest.raises(NodeAway, match="shows another certificate than its Secret holds"):
                await api.ask("GET", JO)
    assert asked[0] == asked[1] != "", "by one connection"
    assert len(asked) == 2


def test_the_key_is_not_shown() -> None:
    assert KEY not in repr(Access("http://c", KEY, None))
