"""Clients and sessions of a cluster, seen and ended from any of its nodes: over HTTP, and by `flockmq ctl`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from integration.auth.conftest import Configured, api
from integration.broker.clients import V5, V311, Client
from integration.broker.conftest import Node, eventually
from integration.ctl import run_ctl

NAMES = [f"client-{number}" for number in range(12)]
LONG_IDS = "[mqtt]\nmax_clientid_len = 65535\n"


class Cluster:
    """Two owners of client ids, and two nodes that clients connect to."""

    def __init__(self, fleet: Configured) -> None:
        self.key_file = str(fleet.key_file)
        self.cores = [fleet.core("core-0"), fleet.core("core-1")]
        self.replicants = [fleet.replicant("replicant-0"), fleet.replicant("replicant-1")]
        self.nodes = [*self.cores, *self.replicants]
        for node in self.nodes:
            eventually(partial(self._has_two_owners, node), "both cores own slots")

    @staticmethod
    def _has_two_owners(node: Node) -> bool:
        return sorted(member["slots"] for member in node.get("/api/v5/cluster")["nodes"]) == [0, 0, 512, 512]

    def client(self, name: str, **how: Any) -> Client:
        return Client(self.replicants[NAMES.index(name) % 2].mqtt, name, **how)

    def ctl(self, node: Node, *arguments: str) -> tuple[list[dict[str, Any]], str]:
        """What it prints, and what it says beside it."""
        done = run_ctl(node.management, "--api-key-file", self.key_file, "--json", *arguments)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture
def cluster(fleet: Configured) -> Cluster:
    fleet.configure(LONG_IDS)
    return Cluster(fleet)


def listed(node: Node, path: str) -> list[dict[str, Any]]:
    """All pages of it."""
    rows: list[dict[str, Any]] = []
    after = ""
    while True:
        status, page = api(node, "GET", f"{path}{after}")
        assert (status, page["missing"]) == (200, [])
        rows += page["data"]
        if page["next"] is None:
            return rows
        after = f"&after={page['next']}"


def names(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["client_id"] for row in rows)


def test_clients_of_all_nodes_are_listed_by_any(cluster: Cluster) -> None:
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(cluster.client(name, version=V311 if name == "client-1" else V5))
        for node in cluster.nodes:
            assert names(listed(node, "/clients?limit=5")) == sorted(NAMES)
        node = cluster.replicants[0]
        assert api(node, "GET", "/clients?limit=1")[1]["count"] == 12
        of_one = listed(node, "/clients?limit=2&node=replicant-1")
        assert names(of_one) == sorted(NAMES[1::2])
        assert names(listed(node, "/clients?limit=100&clientid=client-1*")) == ["client-1", "client-10", "client-11"]
        assert len(listed(node, "/clients?limit=3&peerhost=127.0.0.0/8&listener=tcp:*")) == 12
        assert listed(node, "/clients?limit=3&username=jo") == []
        status, row = api(cluster.cores[0], "GET", "/clients/client-1")
        assert (status, row["node"], row["protocol"], row["peerhost"]) == (200, "replicant-1", "3.1.1", "127.0.0.1")
        assert row["heard"]
        assert row["keepalive_s"] == 60.0, "as the client said"
        assert row["connected_at"].endswith("Z")
        assert names(cluster.ctl(cluster.replicants[1], "clients", "list", "--node", "replicant-0")[0]) == sorted(
            NAMES[::2]
        )
        cluster.replicants[1].kill()
        eventually(lambda: len(listed(node, "/clients?limit=9")) == 6, "those of a node that died are gone")


def test_what_cant_be_meant_is_refused(cluster: Cluster) -> None:
    node = cluster.replicants[0]
    for path, why in (
        ("/clients?peerhost=here", "peerhost: 'here' does not appear to be an IPv4 or IPv6 network"),
        ("/clients?usrname=jo", "usrname: is no parameter of /api/v1/clients; known are limit, after, clientid"),
        ("/users?lmit=5", "lmit: is no parameter of /api/v1/users; known are limit, after"),
        ("/bans?lmit=5", "lmit: is no parameter of /api/v1/bans; known are limit, after"),
        ("/quotas?lmit=5", "lmit: is no parameter of /api/v1/quotas; known are limit, after"),
        ("/sessions?connected=maybe", "connected: 'maybe' must be yes or no"),
        ("/sessions/a?after=b", "after: 'b' must be what the page before said as next"),
        ("/clients?after=client-1", "after: 'client-1' must be what the page before said as next"),
    ):
        status, answer = api(node, "GET", path)
        assert status == 400
        assert why in answer["error"]
    for path in ("/clients/nobody", "/sessions/nobody"):
        for method in ("GET", "DELETE"):
            assert api(node, method, path)[0] == 404


def test_no_client_id_is_too_long_to_go_on_behind_it(fleet: Configured) -> None:
    fleet.configure(LONG_IDS)
    core = fleet.core("core-0")
    replicant = fleet.replicant("replicant-0")
    eventually(lambda: replicant.get("/api/v5/cluster")["slots_without_owner"] == 0, "the core owns slots")
    long = "long" * 5000
    with (
        Client(replicant.mqtt, long, lasts=True),
        Client(replicant.mqtt, "short", lasts=True),
        Client(replicant.mqtt, "tiny"),
    ):
        assert names(listed(core, "/clients?limit=1")) == [long, "short", "tiny"]
        assert names(listed(replicant, "/sessions?limit=1")) == [long, "short"]


def test_a_client_is_kicked_from_anywhere_and_keeps_its_session(cluster: Cluster) -> None:
    for name, node in zip(NAMES, cluster.nodes, strict=False):
        with cluster.client(name, lasts=True) as client:
            assert api(node, "DELETE", f"/clients/{name}") == (204, None)
            assert client.disconnected.wait(30)
            assert client.reason == "Administrative action"
        eventually(lambda name=name, node=node: api(node, "GET", f"/clients/{name}")[0] == 404, "it is gone")  # type: ignore[misc]
        assert api(node, "GET", f"/sessions/{name}")[1]["node"] is None
        with cluster.client(name, lasts=True) as again:
            assert again.session_present
    with cluster.client("client-11"):
        assert cluster.ctl(cluster.cores[0], "clients", "kick", "client-11") == ([], "")
        _, said = cluster.ctl(cluster.cores[1], "clients", "kick", "client-11")
        assert "'client-11' isn't connected" in said


def test_a_session_that_is_ended_takes_its_connection_along_which_hears_why(cluster: Cluster) -> None:
    for number, (name, node) in enumerate(zip(NAMES, cluster.nodes, strict=False)):
        with cluster.client(name, lasts=number % 2 == 0) as client:
            assert api(node, "DELETE", f"/sessions/{name}") == (204, None)
            assert client.disconnected.wait(30)
            assert client.reason == "Administrative action"
        assert api(node, "GET", f"/sessions/{name}")[0] == 404
        with cluster.client(name, lasts=True) as again:
            assert not again.session_present


def test_a_client_whose_id_fits_into_no_path_is_kicked_and_its_session_ended(cluster: Cluster) -> None:
    node = cluster.replicants[1]
    for name in ("long" * 15_000, "kick"):
        with Client(cluster.replicants[0].mqtt, name, lasts=True) as client:
            assert api(node, "POST", "/clients/kick", {"clientid": name}) == (204, None)
            assert client.disconnected.wait(30)
    eventually(lambda: cluster.ctl(node, "clients", "kick", name)[1] != "", "it is gone")
    assert api(node, "GET", "/sessions/kick")[1]["node"] is None
    long = "long" * 15_000
    _, said = cluster.ctl(node, "clients", "kick", long)
    assert f"404: '{long[:128]}' isn't connected" in said
    assert cluster.ctl(node, "sessions", "remove", long) == ([], "")
    assert names(listed(node, "/sessions?limit=9")) == ["kick"]
    assert api(node, "POST", "/sessions/end", {"clientid": long})[0] == 404
    assert api(node, "POST", "/sessions/end", {"client": "kick"})[0] == 400
    _, page = api(node, "GET", "/audit?limit=1")
    assert (page["data"][0]["path"], page["data"][0]["about"]) == ("/api/v1/sessions/end", f"{long[:255]}…")


def test_sessions_are_shown_with_what_they_have(cluster: Cluster) -> None:
    with cluster.client("client-0", lasts=True) as away:
        away.subscribe("a/#", 1)
        away.subscribe("b", 2)
    with cluster.client("client-1", lasts=True), cluster.client("client-2") as passing:
        passing.subscribe("c", 0)
        for number in range(3):
            passing.publish("a/b", str(number))
        for node in cluster.nodes:
            assert names(listed(node, "/sessions?limit=1")) == ["client-0", "client-1"]
            status, shown = api(node, "GET", "/sessions/client-0?limit=1")
            assert status == 200
            assert (shown["node"], shown["subscriptions"], shown["queued"]) == (None, 2, 3)
            assert shown["queued_bytes"] > 3
            assert shown["filters"] == [{"filter": "a/#", "qos": 1, "no_local": False, "retain_as_published": False}]
            assert api(node, "GET", f"/sessions/client-0?after={shown['next']}")[1]["filters"][0]["filter"] == "b"
            passes = api(node, "GET", "/sessions/client-2")[1]
            assert (passes["home"], passes["node"], passes["expiry_s"]) == ("replicant-0", "replicant-0", 0)
        assert names(listed(node, "/sessions?limit=9&connected=no")) == ["client-0"]
        rows, _ = cluster.ctl(cluster.replicants[1], "sessions", "show", "client-0")
        assert [row["filter"] for row in rows[1:]] == ["a/#", "b"]
    assert api(cluster.replicants[1], "DELETE", "/sessions/client-0") == (204, None)
    assert names(listed(cluster.cores[0], "/sessions?limit=9")) == ["client-1"]


def test_what_a_core_that_stands_still_has_is_said_to_be_missing(cluster: Cluster) -> None:
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(cluster.client(name))
        cluster.cores[1].kill()
        status, page = api(cluster.replicants[0], "GET", "/clients")
        assert status == 200
        assert page["missing"] == ["core-1 doesn't answer"] or len(page["data"]) == 12
        eventually(
            lambda: len(api(cluster.replicants[0], "GET", "/clients")[1]["data"]) == 12, "they have another owner"
        )
