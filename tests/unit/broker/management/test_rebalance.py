"""A rebalance is asked for, looked at and ended over HTTP."""

from __future__ import annotations

import aiohttp
import pytest

from flockmq.auth.admin import Missing
from flockmq.management.guard import role_for
from flockmq.management.rebalance import routes
from flockmq.management.rebalance_rows import AskedRebalance, RebalanceRow, RebalanceShown, RebalanceView
from flockmq.management.view import Conflict, Unavailable
from unit.broker.management.harness import serving

PATH = "/api/v1/rebalance"
ROW = RebalanceRow(node="r-1", role="replicant", state="idle", clients=7)


class Balanced(RebalanceView):
    def __init__(self) -> None:
        self.asked: tuple[AskedRebalance, str | None] | None = None
        self.stopped: list[tuple[str | None, str | None]] = []
        self.refusal: Exception | None = None
        self.thresholds = AskedRebalance()

    async def shown(self, thresholds: AskedRebalance) -> RebalanceShown:
        self.thresholds = thresholds
        return RebalanceShown(told_by="core-0", nodes=[ROW])

    async def start(self, asked: AskedRebalance, node: str | None) -> RebalanceShown:
        if self.refusal:
            raise self.refusal
        self.asked = asked, node
        return RebalanceShown(told_by="core-0", nodes=[ROW], missing=["r-2 (doesn't answer)"])

    async def stop(self, name: str | None, node: str | None) -> None:
        self.stopped.append((name, node))


async def error(response: aiohttp.ClientResponse) -> tuple[int, str]:
    return response.status, (await response.json())["error"]


async def test_one_is_asked_for_as_nodes_are_configured_or_with_what_the_body_says() -> None:
    async with serving(routes, node := Balanced()) as http:
        async with http.put(PATH) as response:
            told = await response.json()
            assert (response.status, told["missing"]) == (200, ["r-2 (doesn't answer)"])
            assert told["nodes"][0]["node"] == "r-1"
        assert node.asked == (AskedRebalance(), None)
        body = {"relative_threshold": 1.05, "absolute_threshold": 3, "rate": 50, "name": "Jo", "node": "r-1"}
        async with http.put(PATH, json=body) as response:
            assert response.status == 200
        wanted = AskedRebalance(name="Jo", relative_threshold=1.05, absolute_threshold=3, rate=50.0)
        assert node.asked == (wanted, "r-1")


async def test_one_is_ended_everywhere_or_that_of_a_name_or_at_a_node() -> None:
    async with serving(routes, node := Balanced()) as http:
        for query in ("", "?name=Jo", "?node=r-1"):
            async with http.delete(f"{PATH}{query}") as response:
                assert response.status == 204
        assert node.stopped == [(None, None), ("Jo", None), (None, "r-1")]
        async with http.delete(f"{PATH}?nod=r-1") as response:
            assert await error(response) == (400, f"nod: is no parameter of {PATH}; known are name, node")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"rate": 0}, "Expected `float` >= 1.0 - at `$.rate`"),
        ({"relative_threshold": 0.9}, "at `$.relative_threshold`"),
        ({"absolute_threshold": 0}, "at `$.absolute_threshold`"),
        ({"absolute": 3}, "Object contains unknown field `absolute`"),
        ([], "Expected `object`"),
    ],
)
async def test_what_cannot_be_asked_for_is_named(body: object, sentence: str) -> None:
    async with serving(routes, node := Balanced()) as http, http.put(PATH, json=body) as response:
        status, why = await error(response)
        assert (status, node.asked) == (400, None)
        assert sentence in why


async def test_a_plan_is_made_with_the_thresholds_that_are_given() -> None:
    async with serving(routes, node := Balanced()) as http:
        async with http.get(f"{PATH}?relative_threshold=1.2&absolute_threshold=5&rate=50") as response:
            assert response.status == 200
        assert node.thresholds == AskedRebalance(relative_threshold=1.2, absolute_threshold=5, rate=50.0)
        for query, sentence in (("rate=nan", "$.rate"), ("rate=fast", "$.rate"), ("rat=5", "is no parameter")):
            async with http.get(f"{PATH}?{query}") as response:
                status, why = await error(response)
                assert status == 400
                assert sentence in why


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(Conflict("one runs already"), 409), (Missing("there is no node"), 404), (Unavailable("no core"), 503)],
)
async def test_why_none_can_be_started_is_told(refusal: Exception, status: int) -> None:
    node = Balanced()
    node.refusal = refusal
    async with serving(routes, node) as http, http.put(PATH) as response:
        assert response.status == status
        assert str(refusal) in (await response.json())["error"]


def test_anybody_may_look_and_operators_change() -> None:
    assert role_for("GET", PATH) is None
    assert role_for("PUT", PATH) == role_for("DELETE", PATH) == "operator"
