"""A file of users is taken in once for each content; with `replace` its users become as it says."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from flockmq.auth import hashing
from flockmq.auth.admin import Admin
from flockmq.auth.bans import Bans
from flockmq.auth.bootstrap import Bootstrap
from flockmq.auth.pool import HashPool
from flockmq.auth.settings import Pbkdf2
from flockmq.rlog.entry import Op, StreamId, decode_batch, encode_batch, encode_transaction
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import AUTH, USERS
from flockmq.rlog.tables import Listener, Tables


class Log:
    """A log whose entries are applied as they are written."""

    def __init__(self) -> None:
        self.tables = Tables()
        self._written = 0

    async def write(self, shard: str, ops: Sequence[Op]) -> StreamId:
        self._written += 1
        at = StreamId(1, self._written)
        self.tables.shards[shard].apply(at, decode_batch(encode_batch([encode_transaction("a@1", at.sequence, ops)])))
        return at

    def on_change(self, table: str, listener: Listener[object, object]) -> None:
        self.tables.named(table).listeners.append(listener)


class Cluster:
    """One log; a bootstrap is made anew for each core that comes to lead."""

    def __init__(self, file: Path, *, replace: bool) -> None:
        self.file = file
        self._replace = replace
        self._log = Log()
        rlog = cast(Rlog, self._log)
        self._admin = Admin(rlog, Bans(), HashPool(), Pbkdf2(iterations=4096), None)

    async def lead(self, content: str) -> None:
        self.file.write_text(content)
        await Bootstrap(self.file, "plain", self._admin, cast(Rlog, self._log), replace=self._replace).take_in()

    def has(self, user_id: str, password: str) -> bool:
        user = self._log.tables.users.get(user_id)
        return user is not None and hashing.is_right(password.encode(), user.password_hash)

    async def remove(self, user_id: str) -> None:
        await self._log.write(AUTH, [USERS.delete(user_id)])


def csv(*users: tuple[str, str]) -> str:
    return "user_id,password,is_superuser\n" + "".join(f"{name},{password},false\n" for name, password in users)


OLD, NEW = csv(("meter", "old")), csv(("meter", "new"), ("gate", "new"))


@pytest.mark.parametrize("replace", [False, True])
async def test_a_content_is_taken_in_once(tmp_path: Path, replace: bool) -> None:
    cluster = Cluster(tmp_path / "users.csv", replace=replace)
    await cluster.lead(OLD)
    assert cluster.has("meter", "old")
    await cluster.remove("meter")
    await cluster.lead(OLD)
    assert not cluster.has("meter", "old")


@pytest.mark.parametrize(("replace", "password"), [(False, "old"), (True, "new")])
async def test_users_that_are_there_stay_or_become_as_a_new_content_says(
    tmp_path: Path, replace: bool, password: str
) -> None:
    cluster = Cluster(tmp_path / "users.csv", replace=replace)
    await cluster.lead(OLD)
    await cluster.lead(NEW)
    assert cluster.has("meter", password)
    assert cluster.has("gate", "new")


async def test_with_replace_an_earlier_content_counts_again_when_it_comes_back(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "users.csv", replace=True)
    for content, password in ((OLD, "old"), (NEW, "new"), (OLD, "old"), (NEW, "new")):
        await cluster.lead(content)
        assert cluster.has("meter", password)
