"""Cores are taken off the cluster over HTTP."""

from __future__ import annotations

from flockmq.management.cores import routes
from flockmq.management.guard import role_for
from flockmq.management.view import Conflict, CoresView, Forgotten, Leaving, Unavailable
from unit.broker.management.harness import serving


class Core(CoresView):
    def __init__(self) -> None:
        self.forgot: list[str] = []

    async def leave(self) -> Leaving:
        if self.forgot:
            raise Conflict("core-0 can't go: core-0 is the only core")
        return Leaving(node="core-0", clients=7, slots=341, file="/data/left-cluster")

    async def forget(self, name: str) -> Forgotten:
        if self.forgot:
            raise Unavailable("no core leads the cluster")
        self.forgot.append(name)
        return Forgotten(node=name, cores=["core-0", "core-1"])


async def test_a_core_says_what_it_hands_over_or_why_it_stays() -> None:
    async with serving(routes, node := Core()) as http:
        async with http.post("/api/v1/leave") as response:
            expected = {"node": "core-0", "clients": 7, "slots": 341, "file": "/data/left-cluster"}
            assert (response.status, await response.json()) == (200, expected)
        node.forgot.append("core-1")
        async with http.post("/api/v1/leave") as response:
            assert response.status == 409
            assert await response.json() == {"error": "core-0 can't go: core-0 is the only core"}


async def test_a_dead_core_is_forgotten_by_its_name() -> None:
    async with serving(routes, node := Core()) as http:
        async with http.delete("/api/v1/cores/core-2") as response:
            assert await response.json() == {"node": "core-2", "cores": ["core-0", "core-1"]}
        assert node.forgot == ["core-2"]
        async with http.delete("/api/v1/cores/core-3") as response:
            assert response.status == 503


def test_it_is_for_admins() -> None:
    assert role_for("POST", "/api/v1/leave") == role_for("DELETE", "/api/v1/cores/core-2") == "admin"
