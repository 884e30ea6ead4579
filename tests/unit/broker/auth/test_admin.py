"""Changes of users: what is refused before a hash is made, and what happens to a user while one is made. Lists of
rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from flockmq.auth.admin import Admin, Exists, Invalid, Missing, NewUser, UserChange
from flockmq.auth.bans import Bans
from flockmq.auth.hash_pool import HashPool
from flockmq.auth.hashing import is_right
from flockmq.auth.rule_sources import encoded
from flockmq.auth.user_import import UserImport
from flockmq.auth.user_revocation import enabled, is_disabled
from flockmq.bounds import AUTH_PAGE_MAX_BYTES, RULES_MAX_BYTES
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import BcryptSettings, HashAlgorithm, Pbkdf2Settings, RuleSettings
from flockmq.errors import ConfigError
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.schema import RULES, USERS, User
from unit.broker.auth.harness import FakeLog

CHEAP = Pbkdf2Settings(iterations=4096)
BCRYPT = BcryptSettings(salt_rounds=5)
TOO_LONG = "x" * 73


class SlowLog(FakeLog):
    """A write reaches the tables in a later iteration, as Redis has it do."""

    async def write(self, shard: str, ops: Sequence[Op]) -> StreamId:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().write(shard, ops)


class HeldLog(FakeLog):
    """Writes reach the tables in the order of their calls, when `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._turn = asyncio.Lock()

    async def write(self, shard: str, ops: Sequence[Op]) -> StreamId:
        async with self._turn:
            await self.goes_on.wait()
            return await super().write(shard, ops)


def admin(log: FakeLog, pool: HashPool, algorithm: HashAlgorithm) -> Admin:
    return Admin(log.as_rlog(), Bans(), pool, algorithm, None, SYSTEM)


async def test_a_password_that_bcrypt_would_cut_is_refused_by_its_name(
    log: FakeLog, pool: HashPool, tmp_path: Path
) -> None:
    users = admin(log, pool, BCRYPT)
    with pytest.raises(Invalid, match="password: bcrypt takes passwords of at most 72 bytes"):
        await users.create_user(NewUser("jo", TOO_LONG))
    await users.create_user(NewUser("jo", TOO_LONG[1:]))
    with pytest.raises(Invalid, match="at most 72 bytes"):
        await users.update_user("jo", UserChange(TOO_LONG))
    file = tmp_path / "users.csv"
    file.write_text(f"user_id,password\nann,{TOO_LONG}\n")
    with pytest.raises(ConfigError, match="line 2: user 'ann': password: bcrypt takes"):
        UserImport(file, "plain", users, log.as_rlog(), SYSTEM).check()


async def test_a_page_of_very_many_rules_holds_nobody(log: FakeLog, pool: HashPool) -> None:
    raw = encoded(tuple(RuleSettings(permit="allow", topics=(f"site/{number}/+/state",)) for number in range(1000)))
    names = [f"u{number:03d}" for number in range(100)]
    users = admin(log, pool, CHEAP)
    log.put([RULES.put(("username", name), raw) for name in names])
    found: list[str] = []
    end: str | None = None
    for _ in names:
        began_s = time.thread_time()
        page = users.ruled(end, 1000)
        assert len(msgspec.json.encode(page)) < AUTH_PAGE_MAX_BYTES + 2 * RULES_MAX_BYTES
        assert time.thread_time() - began_s < 0.1
        found += [row.who for row in page.data]
        if (end := page.next) is None:
            break
    assert found == names


async def test_rules_of_a_later_release_are_shown_as_they_are(log: FakeLog, pool: HashPool) -> None:
    raw = b'[{"permit":"allow","when":"later"}]'
    users = admin(log, pool, CHEAP)
    log.put([RULES.put(("all", ""), raw)])
    assert [row.rules for row in users.ruled(None, 10).data] == [users.rules("all", "").rules] == [msgspec.Raw(raw)]


async def hashing(work: asyncio.Task[object], pool: HashPool) -> None:
    """Wait until the hash of this change is being made."""
    while not pool.waiting and pool._free == 2:
        assert not work.done()
        await asyncio.sleep(0)


async def hashed(pool: HashPool) -> None:
    """Wait until no more hashes are made, and what comes then was begun."""
    quiet = 0
    while quiet < 100:
        quiet = 0 if pool.waiting or pool._free < 2 else quiet + 1
        await asyncio.sleep(0)


async def test_who_is_disabled_while_its_password_is_hashed_stays_so(log: FakeLog, pool: HashPool) -> None:
    users = admin(log, pool, CHEAP)
    await users.create_user(NewUser("jo", "old", is_superuser=True))
    change = asyncio.ensure_future(users.update_user("jo", UserChange("new")))
    await hashing(change, pool)
    await users.update_user("jo", UserChange(is_disabled=True, is_superuser=False))
    shown = (await change).shown
    assert (shown.is_disabled, shown.is_superuser) == (True, False)
    jo = log.tables.users.get("jo")
    assert jo is not None
    assert is_disabled(jo)
    assert is_right(b"new", enabled(jo).password_hash)


async def test_who_is_deleted_while_its_password_is_hashed_stays_so(log: FakeLog, pool: HashPool) -> None:
    users = admin(log, pool, CHEAP)
    await users.create_user(NewUser("jo", "old"))
    change = asyncio.ensure_future(users.update_user("jo", UserChange("new")))
    await hashing(change, pool)
    await users.delete_user("jo")
    with pytest.raises(Missing):
        await change
    assert log.tables.users.get("jo") is None


async def test_of_two_that_make_the_same_user_one_is_told_that_it_is_there(pool: HashPool) -> None:
    log = SlowLog()
    users = admin(log, pool, CHEAP)
    made = [users.create_user(NewUser("jo", password)) for password in ("one", "two")]
    first, second = await asyncio.gather(*made, return_exceptions=True)
    assert sorted(isinstance(one, Exists) for one in (first, second)) == [False, True]
    jo = log.tables.users.get("jo")
    assert jo is not None
    assert is_right(b"two" if isinstance(first, Exists) else b"one", jo.password_hash)


async def test_two_changes_of_a_user_at_once_are_both_kept(pool: HashPool) -> None:
    log = SlowLog()
    users = admin(log, pool, CHEAP)
    await users.create_user(NewUser("jo", "pw", is_superuser=True))
    await asyncio.gather(
        users.update_user("jo", UserChange(is_disabled=True)), users.update_user("jo", UserChange(is_superuser=False))
    )
    shown = users.user("jo").shown
    assert (shown.is_disabled, shown.is_superuser) == (True, False)


@pytest.mark.parametrize("replace", [False, True])
async def test_what_happens_to_a_user_while_a_file_is_hashed_isnt_undone(
    log: FakeLog, pool: HashPool, tmp_path: Path, replace: bool
) -> None:
    users = admin(log, pool, CHEAP)
    file = tmp_path / "users.csv"
    file.write_text("user_id,password\nann,file's\njo,file's\nlast,file's\n")
    if replace:
        await users.create_user(NewUser("ann", "old"))
        await users.create_user(NewUser("jo", "old"))
    importing = UserImport(file, "plain", users, log.as_rlog(), SYSTEM, replace=replace)
    taken = asyncio.ensure_future(importing.import_users())
    await hashing(taken, pool)
    if replace:
        await users.update_user("ann", UserChange(is_disabled=True))
        await users.delete_user("jo")
    else:
        log.put([USERS.put("jo", User("somebody's"))])
    await taken
    ann, jo, last = map(log.tables.users.get, ("ann", "jo", "last"))
    assert ann is not None
    assert last is not None
    assert is_right(b"file's", enabled(ann).password_hash)
    assert is_disabled(ann) is replace
    assert jo == (None if replace else User("somebody's"))


async def test_who_is_being_deleted_is_changed_by_nobody(pool: HashPool) -> None:
    log = SlowLog()
    users = admin(log, pool, CHEAP)
    await users.create_user(NewUser("jo", "pw"))
    deleted, changed = await asyncio.gather(
        users.delete_user("jo"), users.update_user("jo", UserChange(is_superuser=True)), return_exceptions=True
    )
    assert deleted is None
    assert isinstance(changed, Missing)
    assert log.tables.users.get("jo") is None


async def test_a_file_that_replaces_undoes_nothing_that_is_being_written(pool: HashPool, tmp_path: Path) -> None:
    log = HeldLog()
    users = admin(log, pool, CHEAP)
    for name in ("ann", "jo"):
        await users.create_user(NewUser(name, "old"))
    file = tmp_path / "users.csv"
    file.write_text("user_id,password\nann,file's\njo,file's\n")
    importing = UserImport(file, "plain", users, log.as_rlog(), SYSTEM, replace=True)
    log.goes_on.clear()
    changes = asyncio.gather(users.update_user("ann", UserChange(is_disabled=True)), users.delete_user("jo"))
    taken = asyncio.ensure_future(importing.import_users())
    await hashing(taken, pool)
    await hashed(pool)
    log.goes_on.set()
    await asyncio.gather(changes, taken)
    assert users.user("ann").shown.is_disabled is True
    assert log.tables.users.get("jo") is None
