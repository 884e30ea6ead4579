"""Users, rules and bans over real HTTP, on tables without Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest

from flockmq.auth.hashing import is_right
from flockmq.bounds import AUTH_REQUEST_MAX_BYTES, NAME_PATTERN_MAX_CHARS
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.errors import LogFull
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.broker.management.test_server import ToldNode


class Site:
    """One management server and a client that has the key."""

    def __init__(self, log: FakeLog, http: aiohttp.ClientSession, port: int) -> None:
        self.log = log
        self.port = port
        self._http = http
        self._url = f"http://127.0.0.1:{port}/api/v1"

    async def ask(self, method: str, path: str, body: object = None, key: str | None = KEY) -> tuple[int, Any]:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        data = body if isinstance(body, bytes) else None
        async with self._http.request(
            method, self._url + path, json=None if data is not None else body, data=data, headers=headers
        ) as answer:
            return answer.status, await answer.json() if answer.status != 204 else None

    async def version(self, path: str, key: str = KEY, method: str = "GET", body: object = None) -> str | None:
        headers = {"Authorization": f"Bearer {key}"}
        async with self._http.request(method, self._url + path, json=body, headers=headers) as answer:
            return answer.headers.get("ETag")


async def served(log: FakeLog, key: str | None) -> AsyncIterator[Site]:
    async with managed(ToldNode(), log, key) as port, aiohttp.ClientSession() as http:
        yield Site(log, http, port)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async for one in served(FakeLog(), KEY):
        yield one


@pytest.fixture
async def keyless() -> AsyncIterator[Site]:
    async for one in served(FakeLog(), None):
        yield one


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/users"),
        ("POST", "/users"),
        ("DELETE", "/users/x"),
        ("GET", "/rules"),
        ("GET", "/bans"),
        ("PUT", "/rules/all"),
    ],
)
async def test_nothing_goes_without_the_key(site: Site, keyless: Site, method: str, path: str) -> None:
    for key in (None, "", "wrong", KEY + " "):
        status, answer = await site.ask(method, path, {}, key)
        if key == KEY + " ":
            assert status != 401, "spaces around a key are no part of it"
        else:
            assert (status, answer) == (
                401,
                {"error": "the API key is missing, wrong or ran out; send the header Authorization: Bearer KEY"},
            )
    status, answer = await keyless.ask(method, path, {})
    assert status == 403
    assert "management.api_key_file" in answer["error"]


async def test_a_key_that_isnt_utf8_is_wrong(site: Site) -> None:
    status, _ = await site.ask("GET", "/users", key="k\udcffy")
    assert status == 401


async def test_a_body_that_is_nested_too_deep_is_refused(site: Site) -> None:
    status, answer = await site.ask("PUT", "/rules/all", b'{"rules": ' + b"[" * 20_000 + b"]" * 20_000 + b"}")
    assert status == 400
    assert "the body can't be used" in answer["error"]


async def test_a_body_that_says_a_key_twice_is_refused_by_its_name(site: Site) -> None:
    for path, body, key in (
        ("/users", b'{"user_id": "jo", "password": "one", "password": "two"}', "password"),
        ("/quotas/jo", b'{"max_sessions": 1, "max_sessions": 2}', "max_sessions"),
        ("/rules/all", b'{"rules": [{"permit": "deny", "topics": ["a"], "permit": "allow"}]}', "permit"),
    ):
        method = "POST" if path == "/users" else "PUT"
        status, said = await site.ask(method, path, body)
        why = f"the body can't be used: the key '{key}' is there twice in one object; say it once"
        assert (status, said["error"]) == (400, why)


async def test_a_user_is_made_shown_changed_and_removed(site: Site) -> None:
    shown = {"user_id": "jo/ö", "is_superuser": False, "is_disabled": False}
    assert await site.ask("POST", "/users", {"user_id": "jo/ö", "password": "pw"}) == (201, shown)
    path = "/users/jo%2F%C3%B6"
    assert await site.ask("GET", path) == (200, shown)
    stored = site.log.tables.users.get("jo/ö")
    assert stored is not None
    assert is_right(b"pw", stored.password_hash)
    assert (await site.ask("PUT", path, {"is_superuser": True}))[1]["is_superuser"] is True
    changed = site.log.tables.users.get("jo/ö")
    assert changed is not None
    assert changed.password_hash == stored.password_hash
    await site.ask("PUT", path, {"password": "new"})
    changed = site.log.tables.users.get("jo/ö")
    assert changed is not None
    assert is_right(b"new", changed.password_hash)
    assert changed.is_superuser
    assert await site.ask("DELETE", path) == (204, None)
    for method, body in (("GET", None), ("PUT", {}), ("DELETE", None)):
        assert await site.ask(method, path, body) == (404, {"error": "there is no user 'jo/ö'"})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "the body can't be used: Input data was truncated"),
        (b'{"user_id": "\x80"}', "the body can't be used: 'utf-8' codec can't decode"),
        ({}, "the body can't be used: Object missing required field `user_id`"),
        ({"user_id": "", "password": "x"}, "`str` of length >= 1 - at `$.user_id`"),
        ({"user_id": "jo", "pasword": "x"}, "unknown field `pasword`"),
        ({"user_id": "jo"}, "password: say either password or password_hash"),
        ({"user_id": "jo", "password": "a", "password_hash": "b"}, "password: say either password or password_hash"),
        ({"user_id": "jo", "password": ""}, "password: must have 1 to 4096 bytes"),
        ({"user_id": "jo", "password": "x" * 5000}, "password: must have 1 to 4096 bytes"),
        ({"user_id": "jo", "password_hash": "$1$x"}, "password_hash: isn't a hash that is known"),
        ({"user_id": "a\0b", "password": "x"}, "user_id: must not hold a NUL"),
    ],
)
async def test_a_user_that_cant_be_made_is_refused_with_the_field(site: Site, body: object, why: str) -> None:
    status, answer = await site.ask("POST", "/users", body)
    assert status == 400
    assert why in answer["error"]
    assert len(site.log.tables.users) == 0


async def test_a_user_is_disabled_and_enabled_whatever_else_changes(site: Site) -> None:
    await site.ask("POST", "/users", {"user_id": "jo", "password": "pw"})
    for change, is_disabled in (
        ({"is_disabled": True}, True),
        ({"password": "new"}, True),
        ({"is_superuser": True}, True),
        ({"is_disabled": False}, False),
    ):
        _, shown = await site.ask("PUT", "/users/jo", change)
        assert shown["is_disabled"] is is_disabled
        jo = site.log.tables.users.get("jo")
        assert jo is not None
        assert is_right(b"new", jo.password_hash) is not is_disabled
    assert jo.is_superuser
    _, ann = await site.ask("POST", "/users", {"user_id": "ann", "password": "pw", "is_disabled": True})
    assert ann["is_disabled"]


async def test_an_admin_sees_by_the_version_that_anything_of_a_user_changed(site: Site) -> None:
    made = await site.version("/users", method="POST", body={"user_id": "jo", "password": "pw"})
    assert made == await site.version("/users/jo")
    assert made == await site.version("/users/jo", method="PUT", body={"password": "pw"})
    versions = {made}
    for change in ({"password": "new"}, {"is_superuser": True}, {"is_disabled": True}, {"password": "pw"}):
        changed = await site.version("/users/jo", method="PUT", body=change)
        assert changed == await site.version("/users/jo")
        assert changed not in versions
        versions.add(changed)
    await site.ask("DELETE", "/users/jo")
    assert await site.version("/users", method="POST", body={"user_id": "jo", "password": "pw"}) not in versions
    _, viewer = await site.ask("POST", "/keys", {"name": "viewer", "role": "viewer"})
    assert await site.version("/users/jo", viewer["key"]) is None


async def test_a_user_isnt_made_twice(site: Site) -> None:
    body = {"user_id": "jo", "password": "pw"}
    await site.ask("POST", "/users", body)
    status, answer = await site.ask("POST", "/users", body)
    assert (status, answer) == (409, {"error": "user 'jo' is there already; change it with PUT"})


async def test_bodies_are_bounded(site: Site) -> None:
    status, answer = await site.ask("POST", "/users", b" " * (AUTH_REQUEST_MAX_BYTES + 1))
    assert status == 413
    assert str(AUTH_REQUEST_MAX_BYTES) in answer["error"]


async def test_lists_are_paged(site: Site) -> None:
    hashed = {"password_hash": "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"}
    for name in ("c", "a", "b"):
        await site.ask("POST", "/users", {"user_id": name, **hashed})
    _, first = await site.ask("GET", "/users?limit=2")
    assert ([user["user_id"] for user in first["data"]], first["count"], first["next"]) == (["a", "b"], 3, "b")
    _, second = await site.ask("GET", "/users?limit=2&after=b")
    assert ([user["user_id"] for user in second["data"]], second["next"]) == (["c"], None)
    for wrong in ("0", "1001", "x", "-1", "²", "9" * 5000):
        status, answer = await site.ask("GET", f"/users?limit={wrong}")
        assert status == 400
        assert "limit" in answer["error"]


async def test_a_rule_about_what_no_rule_sees_is_refused(site: Site) -> None:
    rules = [{"permit": "deny", "topics": ["$share/g/open"]}]
    status, answer = await site.ask("PUT", "/rules/all", {"rules": rules})
    assert status == 400
    assert "topic '$share/g/open' fits nothing: $share/g/ isn't looked at; write 'open'" in answer["error"]


async def test_rules_of_one_are_replaced_shown_and_removed(site: Site) -> None:
    rules = [{"permit": "allow", "topics": ["a/#"]}, {"permit": "deny"}]
    for path, of, who in (
        ("/all", "all", ""),
        ("/username/jo", "username", "jo"),
        ("/clientid/a%2Fb", "clientid", "a/b"),
    ):
        shown = {"as": of, "who": who, "rules": rules}
        assert await site.ask("PUT", f"/rules{path}", {"rules": rules}) == (200, shown)
        assert await site.ask("GET", f"/rules{path}") == (200, shown)
    _, page = await site.ask("GET", "/rules?limit=2")
    assert [row["as"] for row in page["data"]] == ["all", "clientid"]
    assert page["next"] == "clientid/a/b"
    _, page = await site.ask("GET", f"/rules?limit=2&after={page['next']}")
    assert [row["as"] for row in page["data"]] == ["username"]
    assert (await site.ask("DELETE", "/rules/all"))[0] == 204
    assert await site.ask("GET", "/rules/all") == (404, {"error": '"all" has no rules'})


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([{"permit": "maybe"}], "Invalid enum value 'maybe' - at `$.rules[0].permit`"),
        ([{"permit": "allow", "topics": ["a/#/b"]}], "rules: rule 1: topic 'a/#/b'"),
        ([{"permit": "allow", "topics": []}], "length >= 1 - at `$.rules[0].topics`"),
        ([{"permit": "allow", "topics": ["${x}"]}], "known: ${clientid}"),
        ([{"permit": "allow"}] * 1001, "1001 rules are more than 1000"),
        ([{"permit": "allow", "topics": ["x" * 70_000]}], "65536 is the most"),
    ],
)
async def test_rules_that_cant_be_meant_are_refused(site: Site, rules: object, why: str) -> None:
    status, answer = await site.ask("PUT", "/rules/all", {"rules": rules})
    assert status == 400
    assert why in answer["error"]
    assert len(site.log.tables.rules) == 0


async def test_a_ban_is_made_shown_and_lifted(site: Site) -> None:
    status, ban = await site.ask("POST", "/bans", {"as": "peerhost", "who": "2001:DB8::1", "reason": "spam"})
    assert (status, ban["who"], ban["until"], ban["by"], ban["reason"]) == (201, "2001:db8::1", None, "api", "spam")
    status, ban = await site.ask("POST", "/bans", {"as": "clientid", "who": "c", "seconds": 60, "by": "me"})
    assert ban["until"] > ban["at"]
    _, page = await site.ask("GET", "/bans")
    assert [(row["as"], row["who"]) for row in page["data"]] == [("clientid", "c"), ("peerhost", "2001:db8::1")]
    assert (await site.ask("DELETE", "/bans/peerhost/2001:DB8:0::1"))[0] == 204
    assert await site.ask("DELETE", "/bans/peerhost/2001:db8::1") == (
        404,
        {"error": "peerhost '2001:db8::1' isn't banned"},
    )


@pytest.mark.parametrize("character", ["x", "\u00e9", "\x01"])
async def test_a_ban_of_the_longest_client_id_is_lifted_and_a_list_continues_behind_it(
    site: Site, character: str
) -> None:
    name = character * (1024 // len(character.encode()))
    who = msgspec.json.encode([name[:1000], name, "127.0.0.1"]).decode()
    assert (await site.ask("POST", "/bans", {"as": "client", "who": who}))[0] == 201
    await site.ask("POST", "/bans", {"as": "clientid", "who": "c"})
    _, second = await site.ask("GET", "/bans?limit=2")
    status, last = await site.ask("GET", f"/bans?limit=1&after={quote(second['next'], safe='')}")
    assert (status, last["data"]) == (200, [])
    banned = next(row["who"] for row in second["data"] if row["as"] == "client")
    assert (await site.ask("DELETE", f"/bans/client/{quote(banned, safe='')}"))[0] == 204


async def test_a_list_goes_on_behind_a_name_that_fits_into_no_address(site: Site) -> None:
    names = ["\u00e9" * 20_000 + end for end in "abc"]
    for name in names:
        assert (await site.ask("POST", "/bans", {"as": "clientid", "who": name}))[0] == 201
    found, after = list[str](), ""
    for _ in names:
        status, page = await site.ask("GET", f"/bans?limit=1{after}")
        assert status == 200, page
        found += [row["who"] for row in page["data"]]
        after = f"&after={quote(page['next'], safe='')}"
    assert found == names
    assert await site.ask("GET", "/bans?after=a%00b") == (
        400,
        {"error": "after: must be what the page before said as next"},
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"as": "country", "who": "x"}, "Invalid enum value 'country' - at `$.as`"),
        ({"as": "peerhost", "who": "example.com"}, "who: 'example.com' does not appear to be an IPv4 or IPv6 address"),
        ({"as": "peerhost_net", "who": "10.0.0.1/8"}, "who: 10.0.0.1/8 has host bits set"),
        ({"as": "clientid", "who": "c", "seconds": 0}, "`float` > 0"),
        ({"as": "clientid", "who": "c", "until": "2001-01-01T00:00:00Z"}, "until: is in the past"),
        ({"as": "clientid", "who": "c", "until": "2100-01-01T00:00:00"}, "until: must say its time zone"),
        ({"as": "clientid", "who": "c", "until": "2100-01-01T00:00:00Z", "seconds": 5}, "say either seconds or until"),
        ({"as": "clientid", "who": "c", "until": "9999-12-31T23:59:59-23:59"}, "until: must say its time zone, up to"),
    ],
)
async def test_a_ban_that_cant_be_meant_is_refused(site: Site, body: object, why: str) -> None:
    status, answer = await site.ask("POST", "/bans", body)
    assert status == 400
    assert why in answer["error"]


@pytest.mark.parametrize(
    ("error", "status"), [(LogFull("table users: at most 3 rows"), 507), (StorageUnavailable("Redis is away"), 503)]
)
async def test_what_the_log_cant_take_is_said(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    async def write(shard: str, ops: object) -> None:
        await asyncio.sleep(0)
        raise error

    monkeypatch.setattr(site.log, "write", write)
    answer = await site.ask("PUT", "/rules/all", {"rules": []})
    assert answer[0] == status
    assert str(error) in answer[1]["error"]


async def test_paths_and_methods_that_there_arent(site: Site) -> None:
    assert (await site.ask("GET", "/rules/group/x"))[0] == 404
    assert (await site.ask("PATCH", "/users", {}))[0] == 405


@pytest.mark.parametrize("name", ["line\nbreak", "a/b", "\r\n", " "])
async def test_a_name_of_any_text_can_be_in_a_path(site: Site, name: str) -> None:
    await site.ask("POST", "/users", {"user_id": name, "password": "sesame"})
    await site.ask("POST", "/bans", {"as": "clientid", "who": name})
    path = quote(name, safe="")
    assert (await site.ask("GET", f"/users/{path}"))[1]["user_id"] == name
    assert (await site.ask("DELETE", f"/users/{path}"))[0] == 204
    assert (await site.ask("DELETE", f"/bans/clientid/{path}"))[0] == 204


async def test_a_ban_of_a_name_that_is_too_long_for_a_path_can_be_lifted(site: Site) -> None:
    ban = {"as": "clientid", "who": "c" * 60_000}
    assert (await site.ask("POST", "/bans", ban))[0] == 201
    assert (await site.ask("POST", "/bans/lift", ban))[0] == 204
    assert (await site.ask("GET", "/bans"))[1]["count"] == 0
    assert (await site.ask("POST", "/bans/lift", ban))[0] == 404


async def test_a_ban_by_a_pattern_that_is_too_long_is_refused(site: Site) -> None:
    pattern = "a" * NAME_PATTERN_MAX_CHARS + "*"
    status, answer = await site.ask("POST", "/bans", {"as": "clientid_pattern", "who": pattern})
    assert (status, answer["error"]) == (
        400,
        "who: has 257 characters; a pattern may have 256: say its beginning and '*'",
    )
    status, answer = await site.ask("PUT", "/rules/all", {"rules": [{"permit": "allow", "username": pattern}]})
    assert status == 400
    assert "clientid or username has 257 characters" in answer["error"]
