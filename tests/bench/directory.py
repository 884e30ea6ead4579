"""By hand: how long a page of 100,000 clients takes, and for how long it holds the loop.

    PYTHONPATH=broker/src:tests python tests/bench/directory.py

Three cores, each owner of a third of the client ids and node of a third of the connections, share one loop here, so
what three machines do at the same time is done one after the other. Another process asks, over HTTP.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qsl

import uvloop
from aiohttp import web

from flockmq.bounds import SLOTS
from flockmq.clock import SYSTEM
from flockmq.management import clients, guard
from flockmq.management.answers import VIEWS
from flockmq.management.client_rows import ClientsWanted
from flockmq.management.view import Views
from flockmq.node.client_admin import ClientAdmin
from flockmq.protocol.channel import CONNECTED, Channel
from flockmq.protocol.client import PeerInfo, Principal
from flockmq.routing.router import Router
from flockmq.routing.sink import SinkHost
from flockmq.routing.slots import slot_of
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.client_registry import ClientRegistry
from flockmq.telemetry.counters import Counters
from flockmq.transport.peer_address import peer_of

CLIENTS: Final = 100_000
CORES: Final = 3
PAGES: Final = 200
ASKER: Final = """
import http.client, json, sys, time
port, path, pages = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
http, took, after = http.client.HTTPConnection("127.0.0.1", port), [], ""
for _ in range(pages):
    start = time.perf_counter()
    http.request("GET", path + after)
    body = http.getresponse().read()
    took.append(time.perf_counter() - start)
    go_on = json.loads(body).get("next")
    after = "" if go_on is None else "&after=" + go_on
print(json.dumps(took))
"""


class Connected(Channel):
    """It asks the kernel where it comes from, as a connection does."""

    def __init__(self, router: Router, limits: Limits, client_id: bytes, fd: int) -> None:
        super().__init__(router, limits)
        self.fd = fd
        self.session = LocalSession(self, client_id, limits, 32)
        self.state = CONNECTED
        self.principal = Principal(b"user-" + client_id)

    def peer(self) -> PeerInfo:
        return PeerInfo(*peer_of(self.fd, socket.AF_INET), "tcp:default")


class Residents:
    """Of an owner without durable sessions."""

    def __init__(self) -> None:
        self.sessions = SimpleNamespace(by_id={})
        self.manager = SimpleNamespace(slots={}, why_unread=lambda _: "")

    def has_loaded(self, slot: int) -> bool:
        return True


def cores(fd: int) -> list[ClientAdmin]:
    router, limits = Router(SinkHost(Counters()), 1024 * 1024), Limits("default")
    slots = {slot: f"core-{slot * CORES // SLOTS}@0" for slot in range(SLOTS)}
    registries = [ClientRegistry() for _ in range(CORES)]
    by_id: list[dict[bytes, Connected]] = [{} for _ in range(CORES)]
    for slot in slots:
        registries[slot * CORES // SLOTS].own(slot)
    for number in range(CLIENTS):
        client_id, node = f"device-{number:08}".encode(), number % CORES
        registries[slot_of(client_id) * CORES // SLOTS].register(client_id, f"core-{node}@0", number + 1)
        by_id[node][client_id] = Connected(router, limits, client_id, fd)
    handlers: dict[tuple[str, str], Any] = {}

    async def ask(to: str, method: str, body: bytes) -> bytes:
        answer: bytes = await handlers[to, method](body)
        return answer

    made = []
    for place in range(CORES):
        me = f"core-{place}@0"
        cluster: Any = SimpleNamespace(
            incarnation=me,
            settings=SimpleNamespace(name=f"core-{place}"),
            slots=SimpleNamespace(count=lambda: Counter(slots.values())),
            ask=ask,
            on_request=lambda method, handler, me=me: handlers.__setitem__((me, method), handler),
        )
        owners: Any = SimpleNamespace(owner=slots.get)
        clients: Any = SimpleNamespace(by_id=by_id[place])
        residents: Any = Residents()
        answering_core = partial(str, me)
        made.append(ClientAdmin(cluster, answering_core, owners, registries[place], clients, residents, SYSTEM))
    return made


async def watch(late: list[float]) -> None:
    while True:
        busy = time.thread_time()
        await asyncio.sleep(0)
        late.append(time.thread_time() - busy)


async def measure(told: ClientAdmin, port: int, path: str) -> None:
    costs = []
    for _ in range(20):
        start = time.process_time()
        await told.clients(wanted_by(path)) if "?" in path else await told.client(path.rpartition("/")[2])
        costs.append(time.process_time() - start)
    late: list[float] = []
    watching = asyncio.ensure_future(watch(late))
    command = [sys.executable, "-c", ASKER, str(port), path, str(PAGES)]
    asking = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    took = sorted(json.loads((await asking.communicate())[0]))
    watching.cancel()
    p50, p99, held = statistics.median(took), took[int(len(took) * 0.99)], max(late)
    cost = statistics.median(costs)
    print(f"{path:40} {cost * 1e3:5.1f} ms of processors; p50 {p50 * 1e3:5.1f} ms, p99 {p99 * 1e3:5.1f} ms", end="; ")
    print(f"no turn above {held * 1e3:.1f} ms")


def wanted_by(path: str) -> ClientsWanted:
    asked = dict(parse_qsl(path.partition("?")[2]))
    return ClientsWanted(limit=int(asked.pop("limit")), **asked)


async def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    connected = socket.create_connection(listening.getsockname())
    app = web.Application(middlewares=[guard.errors_as_json])
    told: Any = cores(connected.fileno())[0]
    app[VIEWS] = Views(*(told,) * len(Views._fields))
    app.add_routes(clients.routes)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gc.collect()
    gc.freeze()
    for query in ("limit=100", "limit=1000", "limit=100&clientid=*7", "limit=100&username=nobody"):
        await measure(told, runner.addresses[0][1], f"/api/v1/clients?{query}")
    await measure(told, runner.addresses[0][1], "/api/v1/clients/device-00000017")
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(main())
