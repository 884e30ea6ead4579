"""Users that a file brings: read with clear refusals, taken in once for each content."""

from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.auth.admin import Admin
from flockmq.auth.bans import Bans
from flockmq.auth.hash_pool import HashPool
from flockmq.auth.hashing import is_right, made
from flockmq.auth.user_import import Kind, UserImport
from flockmq.auth.user_revocation import enabled, is_disabled
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import Pbkdf2Settings
from flockmq.errors import ConfigError
from flockmq.rlog.schema import USERS, User
from unit.broker.auth.harness import FakeLog

CHEAP = Pbkdf2Settings(iterations=4096)


def bootstrap(file: Path, kind: Kind, log: FakeLog, pool: HashPool) -> UserImport:
    return UserImport(file, kind, Admin(log.as_rlog(), Bans(), pool, CHEAP, 4096, SYSTEM), log.as_rlog(), SYSTEM)


async def test_passwords_in_csv_are_hashed_and_users_that_are_there_stay(
    tmp_path: Path, log: FakeLog, pool: HashPool
) -> None:
    file = tmp_path / "users.csv"
    file.write_text("user_id,password,is_superuser\njo,pw,true\nann,other,false\nthere,x,\n")
    log.put([USERS.put("there", User("as it was"))])
    await bootstrap(file, "plain", log, pool).import_users()
    jo, ann = log.tables.users.get("jo"), log.tables.users.get("ann")
    assert jo is not None
    assert ann is not None
    assert is_right(b"pw", jo.password_hash)
    assert jo.scram.startswith("SCRAM-SHA-256$4096:")
    assert (jo.is_superuser, ann.is_superuser) == (True, False)
    assert log.tables.users.get("there") == User("as it was")


async def test_hashes_as_emqx_exports_them(tmp_path: Path, log: FakeLog, pool: HashPool) -> None:
    bcrypt = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
    digest = "00" * 32
    file = tmp_path / "users.csv"
    file.write_text(f"user_id,password_hash,salt,is_superuser\na,{bcrypt},,1\nb,{digest},salty,0\n")
    await bootstrap(file, "hash", log, pool).import_users()
    a, b = log.tables.users.get("a"), log.tables.users.get("b")
    assert a == User(bcrypt, "", True)
    assert b is not None
    assert b.password_hash.startswith("$pbkdf2-sha256$i=4096,l=32$c2FsdHk$")


async def test_a_content_is_taken_in_once(tmp_path: Path, log: FakeLog, pool: HashPool) -> None:
    file = tmp_path / "users.json"
    file.write_text(f'[{{"user_id": "jo", "password_hash": "{made(b"pw", CHEAP)}"}}]')
    await bootstrap(file, "hash", log, pool).import_users()
    log.put([USERS.delete("jo")])
    again = bootstrap(file, "hash", log, pool)
    await again.import_users()
    assert log.tables.users.get("jo") is None, "who was removed stays removed"
    file.write_text(file.read_text() + "\n")
    await again.import_users()
    assert log.tables.users.get("jo") is not None, "another content"


async def test_a_file_that_replaces_has_the_last_word_each_time_it_changes(
    tmp_path: Path, log: FakeLog, pool: HashPool
) -> None:
    file = tmp_path / "users.csv"
    admin = Admin(log.as_rlog(), Bans(), pool, CHEAP, None, SYSTEM)
    replacing = UserImport(file, "plain", admin, log.as_rlog(), SYSTEM, replace=True)

    async def right(password: str) -> bool:
        await replacing.import_users()
        jo = log.tables.users.get("jo")
        return jo is not None and is_right(password.encode(), jo.password_hash)

    for password in ("first", "second", "first"):
        file.write_text(f"user_id,password\njo,{password}\n")
        assert await right(password)
    log.put([USERS.put("jo", User("changed by hand"))])
    assert not await right("first"), "the file didn't change"


async def test_whose_password_is_the_same_stays_as_it_was(tmp_path: Path, log: FakeLog, pool: HashPool) -> None:
    file = tmp_path / "users.csv"
    admin = Admin(log.as_rlog(), Bans(), pool, CHEAP, 4096, SYSTEM)
    replacing = UserImport(file, "plain", admin, log.as_rlog(), SYSTEM, replace=True)
    file.write_text("user_id,password,is_superuser\njo,pw,true\n")
    await replacing.import_users()
    before = log.tables.users.get("jo")
    assert before is not None
    file.write_text("user_id,password,is_superuser\njo,pw,true\nann,pw,\n")
    await replacing.import_users()
    assert log.tables.users.get("jo") is before, "nothing was written, so nobody is sent away"
    file.write_text("user_id,password\njo,pw\n")
    await replacing.import_users()
    assert log.tables.users.get("jo") == User(before.password_hash, before.scram, is_superuser=False)


async def test_who_is_disabled_stays_so_unless_the_file_says_otherwise(
    tmp_path: Path, log: FakeLog, pool: HashPool
) -> None:
    file = tmp_path / "users.csv"
    admin = Admin(log.as_rlog(), Bans(), pool, CHEAP, 4096, SYSTEM)
    replacing = UserImport(file, "plain", admin, log.as_rlog(), SYSTEM, replace=True)
    rows: list[User | None] = []
    for text in (
        "user_id,password,is_disabled\njo,pw,true\n",
        "user_id,password\njo,pw\n",
        "user_id,password,is_disabled\njo,pw,false\n",
    ):
        file.write_text(text)
        await replacing.import_users()
        rows.append(log.tables.users.get("jo"))
    first, second, third = rows
    assert first is second, "nothing was written"
    assert first is not None
    assert third is not None
    assert is_disabled(first)
    assert third == enabled(first)
    assert is_right(b"pw", third.password_hash)
    assert not is_right(b"pw", first.password_hash), "by no release"


@pytest.mark.parametrize(
    ("name", "text", "kind", "why"),
    [
        ("u.csv", "", "plain", "line 1: has no column password and user_id"),
        ("u.csv", "user_id,password\njo,pw\n", "hash", "no column password_hash; with bootstrap_type hash"),
        ("u.csv", "user_id,password\njo,\n", "plain", "line 2: a user needs a password"),
        ("u.csv", "user_id,password\n,pw\n", "plain", "line 2: Object missing required field `user_id`"),
        ("u.csv", "user_id,password,is_superuser\njo,pw,maybe\n", "plain", "line 2: Expected `bool`"),
        ("u.csv", "user_id,password,colour\njo,pw,red\n", "plain", "line 2: Object contains unknown field `colour`"),
        ("u.csv", "user_id,password\njo,pw,x\n", "plain", "line 2: has more fields than line 1 has columns"),
        ("u.csv", 'user_id,password\na,pw\njo,"p"w\n', "plain", 'line 3: .*put what has a comma or a quote between "'),
        ("u.csv", 'user_id,password\na,pw\njo,"pw\n', "plain", "line 3: unexpected end of data"),
        ("u.csv", "user_id,password_hash\na,plain\n", "hash", "line 2: user 'a': password_hash: .*in hex"),
        ("u.csv", "user_id,password\na," + "x" * 5000, "plain", "line 2: user 'a': password: must have 1 to 4096"),
        ("u.csv", "user_id,password\na,b\u0007c\n", "plain", "line 2: user 'a': password: .*may not stand in"),
        ("u.csv", "user_id,password\na,b\nb,b\na,c\n", "plain", "line 4: user 'a' stands in line 2 too; keep one"),
        ("u.json", "{}", "plain", "not a JSON list of users"),
        ("u.json", '[{"user_id": "jo", "user_id": "al"}]', "plain", "the key 'user_id' is there twice"),
        ("u.csv", "user_id,password,password\njo,1,2\n", "plain", "line 1: names the column password twice"),
        (
            "u.json",
            '[{"user_id": "jo", "password": "a"}, {"user_id": "jo", "password": "a"}]',
            "plain",
            "user 2: user 'jo' stands in user 1 too; keep one",
        ),
        ("u.json", '[{"user_id": "jo"}]', "plain", "user 1: a user needs a password"),
    ],
)
async def test_a_file_that_cant_be_used_is_refused_with_the_line(
    tmp_path: Path, log: FakeLog, pool: HashPool, name: str, text: str, kind: Kind, why: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"{name}: .*{why}" if "JSON" not in why else why):
        bootstrap(tmp_path / name, kind, log, pool).check()


async def test_a_file_that_isnt_text_or_isnt_there_is_refused(tmp_path: Path, log: FakeLog, pool: HashPool) -> None:
    (tmp_path / "u.csv").write_bytes(b"user_id,password\na,b\n\xe9,c\n")
    with pytest.raises(ConfigError, match=r"u\.csv: line 3: is not UTF-8; save"):
        bootstrap(tmp_path / "u.csv", "plain", log, pool).check()
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        bootstrap(tmp_path / "none.csv", "hash", log, pool).check()
