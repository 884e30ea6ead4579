"""The operator's own probes: it is alive from the start, and ready once it is logged in."""

import asyncio

import aiohttp
import pytest

from flockmq_operator.health import CONNECTIONS_MAX, serve_health
from flockmq_operator.metrics import Metrics


async def test_it_is_alive_at_once_and_ready_when_logged_in() -> None:
    ready = asyncio.Event()
    health = await serve_health(0, ready, Metrics())
    port = next(address[1] for address in health.addresses if len(address) == 2)  # the IPv4 one
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def status(path: str) -> int:
                async with session.get(path) as answer:
                    return answer.status

            assert (await status("/livez"), await status("/readyz")) == (200, 503)
            ready.set()
            assert (await status("/livez"), await status("/readyz")) == (200, 200)
            async with session.get("/metrics") as answer:
                assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                assert "flockmq_operator_leading 0\n" in await answer.text()
    finally:
        await health.cleanup()


async def test_of_too_many_connections_the_oldest_are_ended_so_a_probe_gets_its_answer() -> None:
    health = await serve_health(0, asyncio.Event(), Metrics())
    port = next(address[1] for address in health.addresses if len(address) == 2)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * CONNECTIONS_MAX)]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            assert await reader.readuntil(b"ok\n")
            assert await silent[0][0].read() == b"", "it is ended"
        assert health.server
        assert len(health.server.connections) == CONNECTIONS_MAX
        writer.close()
    finally:
        for _, connection in silent:
            connection.close()
        await health.cleanup()


async def test_a_body_is_neither_unpacked_nor_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    health = await serve_health(0, asyncio.Event(), Metrics())
    try:
        port = next(address[1] for address in health.addresses if len(address) == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for length in (5, 500):
            head = b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % length
            writer.write(head + b"abcde")
            assert await reader.readuntil(b"ok\n")
        assert await reader.read() == b"", "it is ended"
        assert not caplog.records
        writer.close()
    finally:
        await health.cleanup()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /livez HTTP/1.1", b"200"),
        (b"HEAD /metrics HTTP/1.1", b"200"),
        (b"GET /readyz HTTP/1.1", b"503"),
        (b"GET /none HTTP/1.1", b"404"),
        (b"POST /livez HTTP/1.1", b"405"),
        (b"GET /livez HTTP/1.1\r\nContent-Length: x", b"400"),
        (b"\x16\x03\x01", b"400"),
    ],
)
async def test_no_answer_tells_what_it_is_made_with_and_no_request_fills_the_log(
    request_line: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    health = await serve_health(0, asyncio.Event(), Metrics())
    try:
        port = next(address[1] for address in health.addresses if len(address) == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_line + b"\r\nHost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.split(b" ")[1] == status
        assert [line for line in head.splitlines() if line.startswith(b"Server:")] == [b"Server: flockmq"]
        assert not caplog.records
        writer.close()
    finally:
        await health.cleanup()
