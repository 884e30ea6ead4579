"""Changes of users: what is refused before a hash is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flockmq.auth.admin import Admin, Invalid, NewUser, UserChange
from flockmq.auth.bans import Bans
from flockmq.auth.hash_pool import HashPool
from flockmq.auth.user_import import UserImport
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import BcryptSettings, HashAlgorithm
from flockmq.errors import ConfigError
from unit.broker.auth.harness import FakeLog

BCRYPT = BcryptSettings(salt_rounds=5)
TOO_LONG = "x" * 73


@pytest.fixture
async def pool() -> AsyncIterator[HashPool]:
    made = HashPool()
    yield made
    made.close()


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


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
