"""By hand: what connections, durable sessions, messages and routes take of memory, each.

    PYTHONPATH=build/compiled:tests:tests/bench python tests/bench/memory.py     interpreted: broker/src

A core and a replicant that clients come to, and a Redis that keeps everything. Of one kind after the other many come;
what each process has grown by then is divided by their number. docs/sizing.md has the figures.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from flockbench import nodes, valkey
from flockbench.brokers import Running, free_site, started
from flockbench.machine import certificate, two_cores

from conformance import wire
from flockmq.bench import broker_usage

CONNECTIONS: Final = 9_000
SESSIONS: Final = 20_000
MESSAGES: Final = 100_000
ROUTES: Final = 200_000
WIDE: Final = 20
"""Clients that have them."""
BODY: Final = b"x" * 100
AT_ONCE: Final = 100
"""Clients that come together, and messages that a publisher has under way."""
FILTERS_AT_ONCE: Final = 500
RESTS_S: Final = 3.0
"""Until what was freed is free, and what is kept is written."""
DAY_S: Final = 86_400
OPEN_FILES: Final = 16_000
SETTINGS: Final = {
    "FLOCKMQ_MQTT__MAX_SUBSCRIPTIONS": "1000000",
    "FLOCKMQ_NODE__MAX_CONNECTIONS_PER_ADDRESS": "100000",
    "PYTHONPATH": os.pathsep.join(sys.path),
}

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Cluster:
    """A core, a replicant and their Redis, and how much memory they have taken."""

    def __init__(self, running: Running, redis: valkey.Valkey) -> None:
        self._port = running.site.mqtt
        self._redis = redis
        self._pids = nodes.pids(running)
        self._streams: list[Stream] = []
        """asyncio closes what nobody holds."""

    def resident_bytes(self) -> dict[str, int]:
        sizes = {name: broker_usage.resident_bytes([pid]) for name, pid in self._pids.items()}
        return sizes | {"redis": self._redis.used_bytes()}

    @asynccontextmanager
    async def client(self, client_id: str, *filters: str, expiry_s: int = 0) -> AsyncIterator[Stream]:
        stream = await self._opened(client_id, *filters, expiry_s=expiry_s)
        yield stream
        stream[1].write(wire.disconnect(wire.V5))
        await stream[1].drain()
        stream[1].close()

    async def come(self, client_id: str, *filters: str, expiry_s: int = 0) -> None:
        """And stays."""
        stream = await self._opened(client_id, *filters, expiry_s=expiry_s)
        self._streams.append(stream)

    async def _opened(self, client_id: str, *filters: str, expiry_s: int = 0) -> Stream:
        stream = reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        properties: list[tuple[int, wire.Value]] = [(wire.SESSION_EXPIRY, expiry_s)] if expiry_s else []
        writer.write(wire.connect(wire.V5, client_id, clean=not expiry_s, properties=properties))
        await _answer(reader)
        for start in range(0, len(filters), FILTERS_AT_ONCE):
            some = [(filter, 1) for filter in filters[start : start + FILTERS_AT_ONCE]]
            writer.write(wire.subscribe(wire.V5, 1, *some))
            await _answer(reader)
        return stream


async def _answer(reader: asyncio.StreamReader) -> None:
    """One packet, unread."""
    await reader.readexactly(1)
    length = shift = 0
    more = True
    while more:
        (byte,) = await reader.readexactly(1)
        length |= (byte & 0x7F) << shift
        shift += 7
        more = bool(byte & 0x80)
    await reader.readexactly(length)


async def _each(numbers: Iterator[int], do: Callable[[int], Awaitable[object]]) -> None:
    async def some() -> None:
        for number in numbers:
            await do(number)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def _come(cluster: Cluster) -> None:
    await _each(iter(range(CONNECTIONS)), lambda n: cluster.come(f"idle-{n:06d}", f"dev/{n}/#"))


async def _leave_sessions(cluster: Cluster) -> None:
    async def leave(number: int) -> None:
        async with cluster.client(f"last-{number:06d}", f"cmd/{number}/#", expiry_s=DAY_S):
            pass

    await _each(iter(range(SESSIONS)), leave)


async def _publish(cluster: Cluster, topic: Callable[[int], str], *, retain: bool) -> None:
    async with cluster.client("publisher") as (reader, writer):
        for start in range(0, MESSAGES, AT_ONCE):
            for number in range(start, start + AT_ONCE):
                writer.write(
                    wire.publish(wire.V5, topic(number), BODY, qos=1, packet_id=1 + number % AT_ONCE, retain=retain)
                )
            for _ in range(AT_ONCE):
                await _answer(reader)


async def _wait(cluster: Cluster) -> None:
    await _publish(cluster, lambda number: f"cmd/{number % SESSIONS}/now", retain=False)


async def _retain(cluster: Cluster) -> None:
    await _publish(cluster, lambda number: f"state/{number}/now", retain=True)


async def _subscribe(cluster: Cluster) -> None:
    for client in range(WIDE):
        await cluster.come(f"wide-{client}", *(f"wide/{client}/{n}/+" for n in range(ROUTES // WIDE)))


KINDS: Final[tuple[tuple[str, int, Callable[[Cluster], Awaitable[None]]], ...]] = (
    ("an idle connection with a wildcard subscription", CONNECTIONS, _come),
    ("a durable session with a subscription, its client away", SESSIONS, _leave_sessions),
    ("a message of 100 B that waits in it", MESSAGES, _wait),
    ("a retained message of 100 B", MESSAGES, _retain),
    ("one more wildcard subscription of a client", ROUTES, _subscribe),
)


async def _measure(cluster: Cluster) -> None:
    print("| bytes each | " + " | ".join(cluster.resident_bytes()) + " |")
    for title, number, come in KINDS:
        before = cluster.resident_bytes()
        await come(cluster)
        await asyncio.sleep(RESTS_S)
        grown = [(size - before[name]) / number for name, size in cluster.resident_bytes().items()]
        print(f"| {title} | " + " | ".join(f"{size:,.0f}" for size in grown) + " |", flush=True)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flockmq" / "bench"
    broker_core, load_core = two_cores()
    with valkey.running(load_core) as redis:
        launch = nodes.together(SETTINGS, redis.url, 1, 1)
        with started(launch, free_site(*certificate(cache)), broker_core) as running:
            asyncio.run(_measure(Cluster(running, redis)))


if __name__ == "__main__":
    main()
