"""Keys with roles, what they are slowed by, and the audit log, over real HTTP, on tables without Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flockmq.bounds import AUDIT_PATH_MAX_CHARS
from flockmq.clock import SYSTEM
from flockmq.config.values import Secret
from flockmq.errors import ConfigError
from flockmq.management import api_keys, audit_log, guard
from flockmq.management.answers import RequestRefused
from flockmq.management.api_keys import CONFIGURED, ApiKeys, NewKey
from flockmq.management.guard import WrongKeyDelay
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.schema import API_KEYS, AUDIT, ApiKey
from unit.broker.auth.harness import FakeLog
from unit.broker.auth.test_admin import SlowLog
from unit.broker.management.harness import KEY, managed, token_bytes
from unit.broker.management.test_server import ToldNode
from unit.broker.management.test_users_and_rules import Site, served


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async for one in served(FakeLog(), KEY):
        yield one


async def made(site: Site, role: str, **how: Any) -> str:
    """A key of this role."""
    status, key = await site.ask("POST", "/keys", {"name": role, "role": role, **how})
    assert status == 201, key
    return str(key["key"])


async def audited(site: Site) -> list[tuple[str, str, str, str]]:
    _, page = await site.ask("GET", "/audit")
    return [(row["who"], row["method"], row["path"], row["about"]) for row in page["data"]]


async def test_the_log_has_a_keys_hash_alone(site: Site) -> None:
    key = await made(site, "viewer")
    assert len(key.removeprefix("flockmq_")) == 43, "32 bytes"
    assert site.log.tables.api_keys.get(sha256(key.encode()).hexdigest()) is not None
    assert not any(key.encode() in op[3] + op[4] for op in site.log.written)
    _, shown = await site.ask("GET", "/keys")
    assert [(row["name"], row["role"], row["by"], row["until"]) for row in shown["data"]] == [
        ("viewer", "viewer", CONFIGURED, None)
    ]
    assert "key" not in shown["data"][0]


async def test_a_key_that_is_removed_while_the_body_comes_changes_nothing() -> None:
    log = FakeLog()
    async for site in served(log, KEY):
        key = await made(site, "admin")
        body = msgspec.json.encode(USER)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        head = (
            f"POST /api/v1/users HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n"
        )
        writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await site.ask("DELETE", "/keys/admin"))[0] == 204
        writer.write(body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()
        assert len(log.tables.users) == 0


@pytest.mark.parametrize("stray", [b"\r", b"\x00", b"\x0b", b"\n folded"])
async def test_a_key_in_what_is_no_request_is_in_no_log(stray: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A key file that was written on Windows ends in a carriage return too many."""
    async with managed(ToldNode(), FakeLog(), KEY) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /api/v1/users HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b%b\r\n" % (KEY.encode(), stray))
        writer.write(b"Connection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
        writer.close()
    assert KEY not in caplog.text
    assert "Traceback" not in caplog.text
    assert "Error handling request from 127.0.0.1: " in caplog.text


USER = {"user_id": "jo", "password": "pw"}
ASKED = (
    ("GET", "/users", None, "viewer"),
    ("GET", "/audit", None, "viewer"),
    ("POST", "/bans", {"as": "clientid", "who": "c"}, "operator"),
    ("DELETE", "/bans/clientid/c", None, "operator"),
    ("POST", "/users", USER, "admin"),
    ("PUT", "/rules/all", {"rules": []}, "admin"),
    ("GET", "/keys", None, "admin"),
    ("POST", "/keys", {"name": "x", "role": "admin"}, "admin"),
    ("DELETE", "/keys/x", None, "admin"),
)


async def test_a_role_may_what_those_before_it_may(site: Site) -> None:
    for place, role in enumerate(api_keys.ROLES):
        key = await made(site, role)
        for method, path, body, least in ASKED:
            status, answer = await site.ask(method, path, body, key)
            if api_keys.ROLES.index(least) <= place:  # type: ignore[arg-type]
                assert status < 300, answer
            else:
                assert (status, answer) == (
                    403,
                    {"error": f"it takes a key of the role {least}; {role!r} has the role {role}"},
                )


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/livez", None),
        ("GET", "/api/v5/rlog/nodes", None),
        ("GET", "/api/v1/clients", "viewer"),
        ("GET", "/what/comes/later", "viewer"),
        ("GET", "/api/v1/keys", "admin"),
        ("DELETE", "/api/v1/clients/c", "operator"),
        ("DELETE", "/api/v1/sessions/c", "operator"),
        ("POST", "/api/v1/clients/kick", "operator"),
        ("POST", "/api/v1/bans/lift", "operator"),
        ("POST", "/livez", "admin"),
        ("PATCH", "/api/v1/bansx/..", "admin"),
        ("PUT", "/what/comes/later", "admin"),
    ],
)
def test_what_nobody_thought_of_is_not_open(method: str, path: str, role: str | None) -> None:
    assert guard.role_for(method, path) == role


async def test_a_key_that_was_removed_or_ran_out_opens_nothing(site: Site) -> None:
    key = await made(site, "viewer")
    assert (await site.ask("GET", "/users", key=key))[0] == 200
    assert await site.ask("DELETE", "/keys/viewer") == (204, None)
    assert (await site.ask("GET", "/users", key=key))[0] == 401
    assert (await site.ask("DELETE", "/keys/viewer"))[0] == 404
    row = ApiKey("old", "admin", SYSTEM.wall() - 1, "x", 0.0)
    site.log.put([API_KEYS.put(sha256(b"old").hexdigest(), row)])
    assert (await site.ask("GET", "/users", key="old"))[0] == 401
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert (await site.ask("GET", "/users", key=await made(site, "operator", until=soon)))[0] == 200


async def test_a_role_of_a_later_release_may_nothing(site: Site) -> None:
    site.log.put([API_KEYS.put(sha256(b"new").hexdigest(), ApiKey("new", "root", 0.0, "x", 0.0))])
    assert (await site.ask("GET", "/users", key="new"))[0] == 403


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({"name": "a b", "role": "admin"}, 400, "$.name"),
        ({"name": "a\n", "role": "admin"}, 400, "$.name"),
        ({"name": "management.api_key", "role": "admin"}, 400, "name: "),
        ({"name": "a", "role": "root"}, 400, "$.role"),
        ({"name": "a", "role": "admin", "seconds": 0}, 400, "$.seconds"),
        ({"name": "a", "role": "admin", "until": "2001-01-01T00:00:00Z"}, 400, "until: is in the past"),
        ({"name": "a", "role": "admin", "until": "2100-01-01T00:00:00"}, 400, "until: must say its time zone"),
        ({"name": "a", "role": "admin", "until": "2100-01-01T00:00:00Z", "seconds": 1}, 400, "say either"),
        ({"name": "there", "role": "admin"}, 409, "key 'there' is there already"),
    ],
)
async def test_a_key_that_cant_be_made_is_refused(site: Site, body: object, status: int, why: str) -> None:
    await site.ask("POST", "/keys", {"name": "there", "role": "viewer"})
    answer = await site.ask("POST", "/keys", body)
    assert answer[0] == status
    assert why in answer[1]["error"]


async def test_of_two_that_make_keys_of_one_name_at_once_one_is_refused() -> None:
    keys = ApiKeys(SlowLog().as_rlog(), None, lambda: True, SYSTEM, token_bytes)
    answers = await asyncio.gather(
        *(keys.make(NewKey("there", "viewer"), "admin") for _ in range(2)), return_exceptions=True
    )
    assert sorted(isinstance(one, RequestRefused) for one in answers) == [False, True]
    assert len(keys) == 1


async def test_before_all_nodes_know_of_keys_there_are_none(site: Site) -> None:
    site.log.version = 1
    status, answer = await site.ask("POST", "/keys", {"name": "a", "role": "viewer"})
    assert status == 503
    assert "some nodes know of no keys in the log yet" in answer["error"]
    assert (await site.ask("POST", "/bans", {"as": "clientid", "who": "c"}))[0] == 201
    assert len(site.log.tables.audit) == 0


async def test_keys_of_the_log_work_without_a_configured_one() -> None:
    log = FakeLog()
    log.put([API_KEYS.put(sha256(b"one").hexdigest(), ApiKey("one", "viewer", 0.0, "x", 0.0))])
    async for keyless in served(log, None):
        assert (await keyless.ask("GET", "/users", key="one"))[0] == 200
        assert (await keyless.ask("GET", "/users", key=None))[0] == 401


def test_a_configured_key_that_is_short_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"management.api_key_file: the key must have at least 32 bytes; make one"):
        ApiKeys(FakeLog().as_rlog(), Secret("x" * 31), lambda: True, SYSTEM, token_bytes)


def test_a_configured_key_is_read_again_when_its_file_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    first, second = "1" * 32, "2" * 32
    keys = ApiKeys(FakeLog().as_rlog(), Secret(first), lambda: True, SYSTEM, token_bytes, file)
    for unusable in (None, "short", ""):
        if unusable is not None:
            file.write_text(unusable)
        keys.refresh()
        keys.refresh()
        assert keys.holder(first.encode()) is not None
        assert caplog.text.count("the key from before stays") == 1
        caplog.clear()
    file.write_text(f"{second}\n")
    keys.refresh()
    assert keys.holder(first.encode()) is None
    assert keys.holder(second.encode()) == (CONFIGURED, "admin")
    assert second not in caplog.text


# --- wrong keys -----------------------------------------------------------------------------------------------------


def test_who_goes_on_trying_waits_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = WrongKeyDelay()
    assert [failures.failed("a", float(at)) for at in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert failures.failed("b", 8.0) == 0.1, "another address"
    assert failures.failed("a", 100.0) == 0.1, "a minute without one"
    monkeypatch.setattr("flockmq.management.guard.API_FAILURES_MAX_ADDRESSES", 2)
    failures.failed("c", 100.0)
    assert failures.failed("b", 100.0) == 0.1, "the one that was quiet for the longest was forgotten"


async def test_a_wrong_key_takes_its_time_and_a_right_one_none(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    answers = await asyncio.gather(*(site.ask("GET", "/users", key="wrong") for _ in range(3)))
    assert [status for status, _ in answers] == [401] * 3
    assert loop.time() - start >= 0.4
    assert "wrong API key from 127.0.0.1: GET '/api/v1/users'" in caplog.text
    trying = [asyncio.ensure_future(site.ask("GET", "/users", key="wrong")) for _ in range(3)]
    await asyncio.sleep(0.05)
    start = loop.time()
    assert (await site.ask("GET", "/users"))[0] == 200
    assert loop.time() - start < 0.4
    assert "the key" not in caplog.text
    for one in trying:
        one.cancel()


async def test_no_more_than_so_many_wrong_keys_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "API_FAILURES_WAITING_MAX", 2)
    answers = await asyncio.gather(*(site.ask("GET", "/users", key="wrong") for _ in range(6)))
    assert sorted(status for status, _ in answers) == [401, 401, 429, 429, 429, 429]


# --- the audit log --------------------------------------------------------------------------------------------------


async def test_who_changed_what_stands_in_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    operator = await made(site, "operator")
    await site.ask("POST", "/users", USER)
    await site.ask("PUT", "/users/jo", {"password": "another", "is_superuser": True})
    await site.ask("POST", "/bans", {"as": "clientid", "who": "c"}, operator)
    await site.ask("GET", "/users")
    await site.ask("DELETE", "/users/jo", None, operator)
    await site.ask("DELETE", "/users/nobody")
    assert await audited(site) == [
        ("operator", "POST", "/api/v1/bans", "clientid c"),
        (CONFIGURED, "PUT", "/api/v1/users/jo", "superuser, password"),
        (CONFIGURED, "POST", "/api/v1/users", "jo"),
        (CONFIGURED, "POST", "/api/v1/keys", "operator: operator"),
    ]
    assert "operator (operator) from 127.0.0.1: POST '/api/v1/bans'" in caplog.text
    assert "another" not in caplog.text
    _, page = await site.ask("GET", "/audit?limit=1")
    assert (page["count"], page["data"][0]["peer"], page["data"][0]["node"]) == (4, "127.0.0.1", "core-1")
    _, second = await site.ask("GET", f"/audit?limit=3&after={page['next']}")
    assert [row["about"] for row in second["data"]] == ["superuser, password", "jo", "operator: operator"]


async def test_the_oldest_changes_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "AUDIT_MAX", 3)
    for number in range(5):
        await site.ask("POST", "/bans", {"as": "clientid", "who": f"c{number}"})
    assert [about for *_, about in await audited(site)] == ["clientid c4", "clientid c3", "clientid c2"]
    assert AUDIT.max_rows > audit_log.AUDIT_MAX


async def test_a_new_superuser_is_shown_as_one_however_long_its_name_is(site: Site) -> None:
    await site.ask("POST", "/users", {"user_id": "n" * 1000, "password": "sesame", "is_superuser": True})
    (*_, about), *_ = await audited(site)
    assert about.startswith("superuser nnn")


async def test_a_row_is_bounded_whatever_name_is_in_the_path(site: Site) -> None:
    name = "c" * 6000
    await site.ask("POST", "/bans", {"as": "clientid", "who": name})
    assert (await site.ask("DELETE", f"/bans/clientid/{name}"))[0] == 204
    (_, _, path, _), *_ = await audited(site)
    whole = f"/api/v1/bans/clientid/{name}"
    assert path == f"{whole[: AUDIT_PATH_MAX_CHARS - 1]}…"


async def test_a_change_that_the_log_cant_note_is_done_all_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(shard: str, ops: Any) -> None:
        await asyncio.sleep(0)
        if ops[0][0] == AUDIT.number:
            raise StorageUnavailable("Redis is away")
        site.log.put(ops)

    monkeypatch.setattr(site.log, "write", write)
    assert (await site.ask("POST", "/bans", {"as": "clientid", "who": "c"}))[0] == 201
    assert "isn't in the audit log: Redis is away" in caplog.text
