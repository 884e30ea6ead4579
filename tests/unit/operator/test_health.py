"""The operator's own probes: it is alive from the start, and ready once it is logged in."""

import asyncio

import aiohttp

from flockmq_operator.health import serve_health


async def test_it_is_alive_at_once_and_ready_when_logged_in() -> None:
    ready = asyncio.Event()
    health = await serve_health(0, ready)
    port = next(address[1] for address in health.addresses if len(address) == 2)  # the IPv4 one
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def status(path: str) -> int:
                async with session.get(path) as answer:
                    return answer.status

            assert (await status("/livez"), await status("/readyz")) == (200, 503)
            ready.set()
            assert (await status("/livez"), await status("/readyz")) == (200, 200)
    finally:
        await health.cleanup()
