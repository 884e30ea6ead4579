"""A session is ended by whoever has the key."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from flockmq.bounds import NAME_PATTERN_MAX_CHARS
from flockmq.management import clients, guard
from flockmq.management.view import Unavailable
from unit.broker.management.harness import serving


class Node:
    def __init__(self) -> None:
        self.ended: list[str] = []
        self.was_there = True
        self.why = ""

    async def end_session(self, client_id: str) -> bool:
        self.ended.append(client_id)
        if self.why:
            raise Unavailable(self.why)
        return self.was_there


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def http(node: Node) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(clients.routes, node) as session:
        yield session


async def test_a_session_is_ended_by_its_client_id(http: aiohttp.ClientSession, node: Node) -> None:
    async with http.delete("/api/v1/sessions/a/device%207") as answer:
        assert answer.status == 204
    assert node.ended == ["a/device 7"]


async def test_it_is_said_that_there_was_none(http: aiohttp.ClientSession, node: Node) -> None:
    node.was_there = False
    async with http.delete("/api/v1/sessions/a") as answer:
        assert answer.status == 404
        assert await answer.json() == {"error": "there is no session of 'a'"}


async def test_it_is_said_why_it_cannot_be_ended_now(http: aiohttp.ClientSession, node: Node) -> None:
    node.why = "no owner of 'a' answered"
    async with http.delete("/api/v1/sessions/a") as answer:
        assert answer.status == 503
        assert await answer.json() == {"error": "no owner of 'a' answered; try again later"}


async def test_a_filter_that_is_too_long_is_refused(http: aiohttp.ClientSession) -> None:
    for path in ("/api/v1/clients?username=", "/api/v1/clients?listener=", "/api/v1/sessions?clientid="):
        async with http.get(path + "a" * NAME_PATTERN_MAX_CHARS + "*") as answer:
            assert answer.status == 400
            assert "has 257 characters; a pattern may have 256" in (await answer.json())["error"]


def test_only_who_has_the_key_ends_a_session() -> None:
    assert guard.role_for("GET", "/api/v1/sessions/a") == "viewer"
    assert guard.role_for("DELETE", "/api/v1/sessions/a") == "operator"
