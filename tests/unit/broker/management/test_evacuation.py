"""A node is emptied by an operator's word."""

from __future__ import annotations

from flockmq.management.evacuation import routes
from flockmq.management.guard import role_for
from flockmq.management.view import Evacuated, EvacuationView, Unavailable
from unit.broker.management.harness import serving


class Emptied(EvacuationView):
    def __init__(self) -> None:
        self.is_on = self.ends = False

    def status(self) -> Evacuated:
        return Evacuated(is_on=self.is_on, clients=7, evicted=3, rate=250.0 if self.is_on else 0.0)

    def start(self) -> None:
        if self.ends:
            raise Unavailable("this node ends")
        self.is_on = True

    def stop(self) -> None:
        self.is_on = False


async def test_it_is_begun_looked_at_and_ended() -> None:
    async with serving(routes, node := Emptied()) as http:
        async with http.post("/api/v1/evacuation") as response:
            assert (response.status, node.is_on) == (200, True)
        async with http.get("/api/v1/evacuation") as response:
            assert await response.json() == {"is_on": True, "clients": 7, "evicted": 3, "rate": 250.0}
        async with http.delete("/api/v1/evacuation") as response:
            assert (response.status, node.is_on) == (204, False)


async def test_a_node_that_ends_empties_itself() -> None:
    node = Emptied()
    node.ends = True
    async with serving(routes, node) as http, http.post("/api/v1/evacuation") as response:
        assert response.status == 503
        assert "this node ends" in (await response.json())["error"]


def test_it_is_for_operators() -> None:
    assert role_for("GET", "/api/v1/evacuation") == "viewer"
    assert role_for("POST", "/api/v1/evacuation") == role_for("DELETE", "/api/v1/evacuation") == "operator"
