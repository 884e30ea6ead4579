"""Changes of the settings over real HTTP, on tables without Redis: revisions, conflicts, history, and who may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from flockmq.bounds import SETTINGS_MAX_BYTES, SETTINGS_REVISIONS_MAX
from flockmq.clock import SYSTEM
from flockmq.config.load import load_all
from flockmq.config.values import Secret
from flockmq.management.answers import RequestRefused
from flockmq.management.api_keys import ApiKeys
from flockmq.management.audit_log import AuditLog
from flockmq.management.server import serve
from flockmq.node.hot_settings import HotSettings
from flockmq.node.settings_admin import SettingsAdmin
from flockmq.rlog.schema import SETTINGS, SettingsRevision
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import ANYWHERE, KEY, token_bytes, views


def admin_of(log: FakeLog) -> SettingsAdmin:
    hot = HotSettings(load_all(environment={}), log.as_rlog())
    return SettingsAdmin(hot, log.as_rlog(), log.may_write, SYSTEM)


class Site:
    def __init__(self, http: aiohttp.ClientSession, log: FakeLog) -> None:
        self._http = http
        self.log = log

    async def ask(
        self, method: str, path: str, body: object = None, key: str = KEY, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        sent = {"Authorization": f"Bearer {key}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self._http.request(method, f"/api/v1{path}", json=body, headers=sent) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def serving(log: FakeLog) -> AsyncIterator[Site]:
    parts = views(None)._replace(settings=admin_of(log))
    keys = ApiKeys(log.as_rlog(), Secret(KEY), log.may_write, SYSTEM, token_bytes)
    audit = AuditLog("core-0", log.as_rlog(), log.may_write, SYSTEM, token_bytes)
    nobodys: Any = None  # no path of these tests
    async with (
        serve(parts, ANYWHERE, nobodys, nobodys, keys, audit) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        yield Site(http, log)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(FakeLog()) as made:
        yield made


async def test_a_change_is_a_revision_with_its_author(site: Site) -> None:
    assert (await site.ask("GET", "/settings"))[1]["revision"] == 0
    status, shown = await site.ask("PATCH", "/settings", {"quotas": {"max_sessions": 5}, "log": {"level": "debug"}})
    assert (status, shown["revision"], shown["by"]) == (200, 1, "management.api_key")
    assert shown["document"] == {"quotas": {"max_sessions": 5}, "log": {"level": "debug"}}
    assert (shown["settings"]["quotas"]["max_sessions"], shown["settings"]["log"]["level"]) == (5, "debug")
    _, shown = await site.ask("PATCH", "/settings", {"log": None})
    assert (shown["revision"], shown["settings"]["log"]["level"]) == (2, "info")
    _, history = await site.ask("GET", "/settings/history")
    assert [(row["revision"], row["patch"], row["by"]) for row in history["data"]] == [
        (2, {"log": None}, "management.api_key"),
        (1, {"quotas": {"max_sessions": 5}, "log": {"level": "debug"}}, "management.api_key"),
    ]
    _, audit = await site.ask("GET", "/audit")
    assert [(row["method"], row["path"], row["about"]) for row in audit["data"]] == [
        ("PATCH", "/api/v1/settings", 'revision 2: {"log":null}'),
        ("PATCH", "/api/v1/settings", 'revision 1: {"quotas":{"max_sessions":5},"log":{"level":"debug"}}'),
    ]


async def test_a_change_of_nothing_is_no_revision(site: Site) -> None:
    await site.ask("PATCH", "/settings", {"log": {"level": "debug"}})
    for patch in ({"log": {"level": "debug"}}, {"quotas": None}, {}):
        assert (await site.ask("PATCH", "/settings", patch))[1]["revision"] == 1


async def test_a_wrong_value_changes_nothing(site: Site) -> None:
    assert await site.ask("PATCH", "/settings", {"log": {"level": "loud"}, "quotas": {"max_sessions": 5}}) == (
        400,
        {"error": "log.level: 'loud' must be debug or info or warning or error"},
    )
    status, answer = await site.ask("PATCH", "/settings", {"redis": {"url": "redis://elsewhere"}})
    assert (status, answer["error"][:46]) == (400, "redis.url: can't be changed while nodes run; s")
    assert (await site.ask("GET", "/settings"))[1]["document"] == {}


async def test_who_names_the_revision_that_he_saw_overwrites_nobodys_change(site: Site) -> None:
    await site.ask("PATCH", "/settings", {"log": {"level": "debug"}}, If_Match="0")
    status, answer = await site.ask("PATCH", "/settings", {"log": {"level": "error"}}, If_Match='"0"')
    assert (status, answer["error"]) == (412, "the settings are at revision 1, not 0: look at them again")
    assert (await site.ask("PUT", "/settings/revision", {"revision": 0}, If_Match="0"))[0] == 412
    assert (await site.ask("PATCH", "/settings", {"log": {"level": "error"}}, If_Match='"1"'))[0] == 200
    status, answer = await site.ask("PATCH", "/settings", {}, If_Match="*")
    assert (status, answer["error"]) == (400, "If-Match: '*' must be the number of a revision")


async def test_an_earlier_revision_comes_back_as_a_new_one(site: Site) -> None:
    await site.ask("PATCH", "/settings", {"log": {"level": "debug"}})
    await site.ask("PATCH", "/settings", {"log": None, "quotas": {"max_sessions": 5}})
    status, shown = await site.ask("PUT", "/settings/revision", {"revision": 1})
    assert (status, shown["revision"], shown["document"]) == (200, 3, {"log": {"level": "debug"}})
    _, history = await site.ask("GET", "/settings/history")
    assert history["data"][0]["patch"] == {"quotas": None, "log": {"level": "debug"}}
    assert (await site.ask("PUT", "/settings/revision", {"revision": 0}))[1]["document"] == {}
    status, answer = await site.ask("PUT", "/settings/revision", {"revision": 9})
    assert (status, answer["error"]) == (
        404,
        "there is no revision 9; take one of /api/v1/settings/history, or 0, the empty one",
    )


async def test_the_last_revisions_are_kept(site: Site) -> None:
    for number in range(1, SETTINGS_REVISIONS_MAX + 6):
        await site.ask("PATCH", "/settings", {"quotas": {"max_sessions": number}})
    _, history = await site.ask("GET", "/settings/history")
    newest = SETTINGS_REVISIONS_MAX + 5
    assert [row["revision"] for row in history["data"]] == list(range(newest, newest - SETTINGS_REVISIONS_MAX, -1))
    assert len(site.log.tables.settings) == SETTINGS_REVISIONS_MAX


async def test_the_document_has_a_bound(site: Site) -> None:
    zones = {f"z{number}": {"response_information": "x" * 1024} for number in range(SETTINGS_MAX_BYTES // 1024)}
    status, answer = await site.ask("PATCH", "/settings", {"zones": zones})
    assert status == 413
    assert answer["error"].endswith(f"bytes; {SETTINGS_MAX_BYTES} is the most")


async def test_a_viewer_reads_and_only_an_admin_changes(site: Site) -> None:
    keys = {}
    for role in ("viewer", "operator"):
        keys[role] = (await site.ask("POST", "/keys", {"name": role, "role": role}))[1]["key"]
    assert (await site.ask("GET", "/settings", key="wrong"))[0] == 401
    assert (await site.ask("GET", "/settings", key=keys["viewer"]))[0] == 200
    assert (await site.ask("GET", "/settings/history", key=keys["viewer"]))[0] == 200
    for role in ("viewer", "operator"):
        assert (await site.ask("PATCH", "/settings", {"log": {"level": "debug"}}, key=keys[role]))[0] == 403


async def test_nothing_is_written_before_all_nodes_know_the_table() -> None:
    log = FakeLog()
    log.version = 1
    async with serving(log) as site:
        status, answer = await site.ask("PATCH", "/settings", {"log": {"level": "debug"}})
        assert status == 503
        assert "when all of them are upgraded" in answer["error"]
        assert log.written == []


class RacingLog(FakeLog):
    """Before each write of this node another one writes a revision of the same number."""

    others = 1

    def put(self, ops: Any) -> None:
        if self.others:
            self.others -= 1
            number = 1 + len(self.tables.settings)
            document = msgspec.json.encode({"quotas": {"max_subscriptions": number}})
            super().put([SETTINGS.put(number, SettingsRevision(document, b"{}", "other", 0.0))])
        super().put(ops)


async def test_a_change_that_another_node_was_faster_than_is_made_again() -> None:
    log = RacingLog()
    shown = await admin_of(log).change({"log": {"level": "debug"}}, "jo", None)
    assert (shown.revision, shown.document) == (2, {"quotas": {"max_subscriptions": 1}, "log": {"level": "debug"}})
    assert [row.by for row in admin_of(log).history()] == ["jo", "other"]


async def test_it_isnt_if_it_was_made_for_a_revision_or_others_are_faster_each_time() -> None:
    log = RacingLog()
    with pytest.raises(RequestRefused, match="at revision 1, not 0"):
        await admin_of(log).change({"log": {"level": "debug"}}, "jo", 0)
    log.others = 99
    with pytest.raises(RequestRefused, match="others changed the settings at the same time"):
        await admin_of(log).change({"log": {"level": "debug"}}, "jo", None)
