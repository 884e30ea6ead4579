"""Quotas of single users over real HTTP, on tables without Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from flockmq.management.view import QuotaRow, QuotasShown
from flockmq.quotas import INFINITE
from flockmq.rlog.schema import OwnQuotas
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import managed
from unit.broker.management.test_keys import audited, made
from unit.broker.management.test_server import ToldNode
from unit.broker.management.test_users_and_rules import Site

LIMITS: Mapping[str, int | None] = {"max_sessions": 10, "max_queued_bytes": None}


class CountingNode(ToldNode):
    def shown(self) -> QuotasShown:
        held = {"sessions": 1, "queued_bytes": 2, "subscriptions": 3, "subscription_bytes": 4, "retained_bytes": 5}
        rows = [
            QuotaRow(name="jo", **held),
            QuotaRow(name="eve", **held, over=["sessions"], limits={"max_sessions": 1}),
        ]
        return QuotasShown(limits=LIMITS, users=rows)


async def served(*, users_matter: bool = True) -> AsyncIterator[Site]:
    log = FakeLog()
    async with managed(CountingNode(), log, users_matter=users_matter) as port, aiohttp.ClientSession() as http:
        yield Site(log, http, port)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async for one in served():
        yield one


async def test_a_users_quotas_are_set_shown_replaced_and_taken_back(site: Site) -> None:
    path = "/quotas/jo%2F%C3%B6"
    said = {"max_sessions": 7, "max_queued_bytes": "1MB", "max_retained_bytes": "infinity"}
    shown = {"name": "jo/ö", "max_sessions": 7, "max_queued_bytes": 1024 * 1024, "max_retained_bytes": "infinity"}
    assert await site.ask("PUT", path, said) == (200, shown)
    assert await site.ask("GET", path) == (200, shown)
    row = OwnQuotas(max_sessions=7, max_queued_bytes=1024 * 1024, max_retained_bytes=INFINITE)
    assert site.log.tables.quotas.get("jo/ö") == row
    assert await site.ask("PUT", path, {"max_subscriptions": 5}) == (200, {"name": "jo/ö", "max_subscriptions": 5})
    assert await site.ask("DELETE", path) == (204, None)
    for method in ("GET", "DELETE"):
        status, answer = await site.ask(method, path)
        assert status == 404
        assert answer["error"].startswith("user 'jo/ö' has no quotas of its own; GET /api/v1/quotas shows")
    assert len(site.log.tables.quotas) == 0


async def test_usage_and_limits_are_shown_beside_a_page_of_those_with_their_own(site: Site) -> None:
    for name in ("c", "a", "b"):
        await site.ask("PUT", f"/quotas/{name}", {"max_sessions": 1})
    status, answer = await site.ask("GET", "/quotas?limit=2")
    assert (status, answer["limits"]) == (200, LIMITS)
    assert [(row["name"], row.get("limits")) for row in answer["users"]] == [("jo", None), ("eve", {"max_sessions": 1})]
    assert [row["name"] for row in answer["data"]] == ["a", "b"]
    assert (answer["count"], answer["next"]) == (3, "b")
    _, rest = await site.ask("GET", "/quotas?limit=2&after=b")
    assert ([row["name"] for row in rest["data"]], rest["next"]) == (["c"], None)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "quotas: say at least one of max_sessions, max_queued_bytes, "),
        (
            {"max_sessions": 0},
            'quotas.max_sessions: 0 must be a number of at least 1, for example 100000, or "infinity"',
        ),
        ({"max_sessions": 2**64}, "quotas.max_sessions: 18446744073709551616 must be a number"),
        ({"max_queued_bytes": "64XB"}, "quotas.max_queued_bytes: '64XB' must be a number"),
        ({"max_sesions": 1}, "quotas.max_sesions: unknown key; did you mean max_sessions?"),
        ({"max_sessions": None}, "quotas.max_sessions: None must be a number"),
        ([], "the body can't be used: "),
    ],
)
async def test_what_is_no_quota_is_refused_with_the_mend(site: Site, body: object, error: str) -> None:
    status, answer = await site.ask("PUT", "/quotas/eve", body)
    assert status == 400
    assert answer["error"].startswith(error)
    assert site.log.written == []


async def test_where_nobody_has_quotas_setting_them_is_refused_with_the_mend() -> None:
    async for site in served(users_matter=False):
        status, answer = await site.ask("PUT", "/quotas/eve", {"max_sessions": 1})
        assert status == 409
        assert "add an authenticator to authentication.chain" in answer["error"]


async def test_while_some_nodes_dont_know_them_none_is_set(site: Site) -> None:
    site.log.version = 1
    status, answer = await site.ask("PUT", "/quotas/eve", {"max_sessions": 1})
    assert (status, site.log.written) == (503, [])
    assert "upgrade all of them, and wait until cluster.version_settle is over; try again later" in answer["error"]


async def test_viewers_see_them_and_admins_change_them(site: Site) -> None:
    viewer, operator = await made(site, "viewer"), await made(site, "operator")
    assert (await site.ask("PUT", "/quotas/eve", {"max_sessions": 1}))[0] == 200
    for path in ("/quotas", "/quotas/eve"):
        assert (await site.ask("GET", path, key=viewer))[0] == 200
        assert (await site.ask("GET", path, key=None))[0] == 401
    for method, body in (("PUT", {"max_sessions": 1}), ("DELETE", None)):
        assert (await site.ask(method, "/quotas/eve", body, operator))[0] == 403


async def test_a_change_is_in_the_audit_log(site: Site) -> None:
    said: dict[str, Any] = {"max_sessions": 1, "max_retained_bytes": "1MB"}
    await site.ask("PUT", "/quotas/eve", said)
    await site.ask("DELETE", "/quotas/eve")
    assert sorted(row[1:] for row in await audited(site)) == [
        ("DELETE", "/api/v1/quotas/eve", ""),
        ("PUT", "/api/v1/quotas/eve", "max_sessions 1, max_retained_bytes 1MB"),
    ]
