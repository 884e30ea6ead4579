"""What nodes do is asked of a core over HTTP; an answer that makes no sense is none."""

import ssl

import aiohttp
import pytest
import trustme
from aiohttp import web

from flockmq_operator import nodes
from flockmq_operator.nodes import Node, ask_nodes
from unit.operator.world import context

ONE = '{"nodes": [{"name": "a", "role": "core", "connections": 7}]}'


async def ask(
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: str,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> list[Node] | None:
    async def cluster(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers=headers)

    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(text=ONE)

    app = web.Application()
    app.router.add_get("/api/v5/cluster", cluster)
    app.router.add_get("/elsewhere", elsewhere)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    monkeypatch.setattr(nodes, "url_of", lambda _: f"{'https' if tls else 'http'}://127.0.0.1:{port}/api/v5/cluster")
    try:
        async with aiohttp.ClientSession() as session:
            return await ask_nodes(session, context())
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, ONE, [Node("a", "core", 7)]),
        (
            200,
            '{"nodes": [{"name": "b", "role": "replicant", "heard": true, "rebalancing": true, "more": 1}]}',
            [Node("b", "replicant", heard=True, rebalancing=True)],
        ),
        (200, '{"nodes": []}', []),
        (503, '{"nodes": []}', None),
        (200, "<html>", None),
        (200, '{"nodes": [{"name": "a", "role": "core", "connections": "many"}]}', None),
        (200, "[]", None),
    ],
)
async def test_what_all_nodes_do_is_told_by_one(
    monkeypatch: pytest.MonkeyPatch, status: int, body: str, told: list[Node] | None
) -> None:
    assert await ask(monkeypatch, status, body) == told


async def test_a_pod_doesnt_send_the_operator_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ask(monkeypatch, 302, "", {"Location": "/elsewhere"}) is None


async def test_a_core_that_is_away_is_no_answer() -> None:
    async with aiohttp.ClientSession() as session:
        assert await ask_nodes(session, context()) is None


def test_it_is_the_headless_service_of_the_cores_that_is_asked() -> None:
    assert nodes.url_of(context()) == "http://demo-core.fleet:18083/api/v5/cluster"


async def test_a_core_with_tls_is_asked_whosever_certificate_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    with_tls = context({"management": {"tls": {"secretName": "cert"}}})
    assert nodes.url_of(with_tls) == nodes.url_of(context()).replace("http://", "https://")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("another.example").configure_cert(tls)
    assert await ask(monkeypatch, 200, ONE, tls=tls) == [Node("a", "core", 7)]
