"""Connections are asked of a core over HTTP; an answer that makes no sense is none."""

import ssl

import aiohttp
import pytest
import trustme
from aiohttp import web

from flockmq_operator import connections
from flockmq_operator.connections import count_connections
from unit.operator.world import context


async def ask(
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: str,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> int | None:
    async def nodes(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers=headers)

    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(text='[{"connections": 1000000}]')

    app = web.Application()
    app.router.add_get("/api/v1/nodes", nodes)
    app.router.add_get("/elsewhere", elsewhere)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    monkeypatch.setattr(
        connections, "url_of", lambda _: f"{'https' if tls else 'http'}://127.0.0.1:{port}/api/v1/nodes"
    )
    try:
        async with aiohttp.ClientSession() as session:
            return await count_connections(session, context())
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body", "count"),
    [
        (200, '[{"name": "a", "connections": 7}, {"name": "b", "connections": 5, "more": 1}]', 12),
        (200, "[]", 0),
        (503, "[]", None),
        (200, "<html>", None),
        (200, '[{"connections": "many"}]', None),
        (200, '{"connections": 7}', None),
    ],
)
async def test_the_connections_of_all_nodes_are_added(
    monkeypatch: pytest.MonkeyPatch, status: int, body: str, count: int | None
) -> None:
    assert await ask(monkeypatch, status, body) == count


async def test_a_pod_doesnt_send_the_operator_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ask(monkeypatch, 302, "", {"Location": "/elsewhere"}) is None


async def test_a_core_that_is_away_is_no_answer() -> None:
    async with aiohttp.ClientSession() as session:
        assert await count_connections(session, context()) is None


def test_it_is_the_headless_service_of_the_cores_that_is_asked() -> None:
    assert connections.url_of(context()) == "http://demo-core.fleet:18083/api/v1/nodes"


async def test_a_core_with_tls_is_asked_whosever_certificate_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    with_tls = context({"management": {"tls": {"secretName": "cert"}}})
    assert connections.url_of(with_tls) == connections.url_of(context()).replace("http://", "https://")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("another.example").configure_cert(tls)
    assert await ask(monkeypatch, 200, '[{"connections": 7}]', tls=tls) == 7
