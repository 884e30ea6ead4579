"""Health, metrics and the REST paths over real HTTP, for a node that says what the test tells it to."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping, Sequence

import aiohttp
import pytest

from flockmq.bounds import MANAGEMENT_REQUEST_LINE_MAX_BYTES
from flockmq.config.values import Address
from flockmq.errors import AddressInUse
from flockmq.management.view import ClusterState, LogState, Member, NodeLog, NodeRow, NodeStatus, ShardStatus
from flockmq.telemetry.sample import Sample
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed

ROW = NodeRow(
    name="core-1",
    incarnation="core-1@0a",
    role="core",
    host="10.0.0.1",
    mqtt_port=None,
    connections=0,
    routes=3,
    lag_entries=0,
    ready=True,
    draining=False,
    version="0.1.0",
)


class ToldNode:
    """A node whose answers are attributes."""

    def __init__(self) -> None:
        self.is_ready = (True, "ready")
        self.is_draining = False

    def ready(self) -> tuple[bool, str]:
        return self.is_ready

    def draining(self) -> bool:
        return self.is_draining

    def nodes(self) -> Sequence[NodeRow]:
        return [ROW]

    def status(self) -> NodeStatus:
        return NodeStatus(
            name="core-1",
            incarnation="core-1@0a",
            role="core",
            version="0.1.0",
            build="interpreted",
            ready=True,
            state="ready",
            uptime_s=1.5,
            leader=None,
            cluster_version=2,
            shards=[ShardStatus(shard="route", applied="1-7", lag_entries=2, lag_ms=30.0)],
        )

    def rlog(self) -> Mapping[str, LogState]:
        return {"route": LogState(applied="1-7", digests={"routes": "00000000000000ff"})}

    async def members(self) -> ClusterState:
        member = Member(name="core-1", incarnation="core-1@0a", role="core", version="1", host="h", slots=3, heard=True)
        return ClusterState(told_by="core-1", stale=False, leader=None, slots_without_owner=1021, nodes=[member])

    async def logs(self) -> Sequence[NodeLog]:
        return [NodeLog(name="core-1", incarnation="core-1@0a", role="core", shards=self.rlog())]

    def samples(self) -> Sequence[Sample]:
        return [Sample("flockmq_connections", 4)]


@pytest.fixture
def node() -> ToldNode:
    return ToldNode()


@pytest.fixture
async def http(node: ToldNode) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        managed(node, FakeLog()) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session


async def code(http: aiohttp.ClientSession, path: str) -> int:
    async with http.get(path) as response:
        return response.status


async def test_a_ready_node_is_alive_ready_and_available(http: aiohttp.ClientSession) -> None:
    assert [await code(http, path) for path in ("/livez", "/readyz", "/availz")] == [200, 200, 200]


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/api/v1/status", "/api/v1/users", "/none"])
async def test_no_answer_tells_what_it_is_made_with(http: aiohttp.ClientSession, path: str) -> None:
    async with http.get(path) as response:
        assert response.headers.getall("Server") == ["flockmq"]


async def test_a_node_that_is_not_ready_says_why_and_is_alive(http: aiohttp.ClientSession, node: ToldNode) -> None:
    node.is_ready = (False, "bootstrapping shard route")
    async with http.get("/readyz") as response:
        assert (response.status, await response.text()) == (503, "bootstrapping shard route\n")
    assert await code(http, "/availz") == 503
    assert await code(http, "/livez") == 200


async def test_a_draining_node_stays_ready_but_is_not_available(http: aiohttp.ClientSession, node: ToldNode) -> None:
    node.is_draining = True
    assert await code(http, "/readyz") == 200
    assert await code(http, "/availz") == 503


async def test_nodes_have_the_documented_shape(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/nodes") as response:
        assert response.content_type == "application/json"
        assert await response.json() == [
            {
                "name": "core-1",
                "incarnation": "core-1@0a",
                "role": "core",
                "host": "10.0.0.1",
                "mqtt_port": None,
                "connections": 0,
                "routes": 3,
                "lag_entries": 0,
                "ready": True,
                "draining": False,
                "version": "0.1.0",
            }
        ]


async def test_status_tells_the_position_in_each_shard(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/status") as response:
        status = await response.json()
    assert status["shards"] == [{"shard": "route", "applied": "1-7", "lag_entries": 2, "lag_ms": 30.0}]
    assert status["leader"] is None


async def test_where_the_tables_are_is_shown_with_their_digests(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v5/rlog") as response:
        shards = await response.json()
    assert (shards["route"]["applied"], shards["route"]["digests"]) == ("1-7", {"routes": "00000000000000ff"})
    assert shards["route"]["lag_entries"] == 0


async def test_the_whole_cluster_is_shown(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v5/cluster") as response:
        state = await response.json()
    assert (state["told_by"], state["slots_without_owner"]) == ("core-1", 1021)
    assert [(node["name"], node["slots"], node["heard"]) for node in state["nodes"]] == [("core-1", 3, True)]
    async with http.get("/api/v5/rlog/nodes") as response:
        nodes = (await response.json())["data"]
    assert [(node["name"], node["shards"]["route"]["applied"]) for node in nodes] == [("core-1", "1-7")]


async def test_metrics_are_in_prometheus_text(http: aiohttp.ClientSession) -> None:
    async with http.get("/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        assert "flockmq_connections 4.0\n" in await response.text()


async def test_other_paths_methods_and_long_lines_are_refused(http: aiohttp.ClientSession) -> None:
    assert await code(http, "/etc/passwd") == 401
    async with http.get("/etc/passwd", headers={"Authorization": f"Bearer {KEY}"}) as response:
        assert response.status == 404
    async with http.post("/readyz", data=b"x") as response:
        assert response.status == 401
    async with http.post("/readyz", data=b"x", headers={"Authorization": f"Bearer {KEY}"}) as response:
        assert response.status == 405
    assert await code(http, "/readyz?" + "x" * MANAGEMENT_REQUEST_LINE_MAX_BYTES) == 400


async def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        listen = Address("127.0.0.1", held.getsockname()[1])
        with pytest.raises(AddressInUse) as caught:
            async with managed(ToldNode(), FakeLog(), listen=listen):
                pass
    assert str(caught.value) == f"management.listen: {listen} is in use; choose another with --management HOST:PORT"
    assert caught.value.exit_code == 4
