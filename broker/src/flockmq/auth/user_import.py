"""Imports users from a CSV or JSON file in EMQX's format.

    user_id,password_hash,salt,is_superuser          user_id,password,is_superuser,is_disabled
    meter-1,$argon2id$v=19$…,,false                  meter-1,secret,false,true

A core imports each version of the file once; the log keeps its SHA-256. Existing users stay unchanged, also those that
are made while others are hashed. A deleted user is imported again only from another version of the file. With `replace`
an import also overwrites existing users, and runs whenever the file isn't the version that was imported last. So
changing the file changes a password.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from flockmq import strict_json
from flockmq.auth.admin import Admin, Invalid, NewUser
from flockmq.bounds import BOOTSTRAP_BATCH_USERS, BOOTSTRAP_MAX_BYTES
from flockmq.clock import Clock
from flockmq.errors import ConfigError
from flockmq.rlog.entry import Op
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, IMPORTS, USERS, ImportedFile, User

log: Final = logging.getLogger(__name__)

Kind = Literal["plain", "hash"]
COLUMNS: Final = {"plain": "password", "hash": "password_hash"}


class UserImport:
    """`import_users` may be called repeatedly."""

    def __init__(
        self, file: Path, kind: Kind, admin: Admin, rlog: Rlog, clock: Clock, *, replace: bool = False
    ) -> None:
        self._file = file
        self._kind: Kind = kind
        self._admin = admin
        self._rlog = rlog
        self._clock = clock
        self._replace = replace
        self._seen: tuple[int, ...] = ()

    def check(self) -> None:
        """Check the file, before the node joins the cluster. Raises ConfigError."""
        self._parsed(_content(self._file))

    async def import_users(self) -> None:
        """Import the file, unless this version was imported before. Raises ConfigError, Busy, StorageError."""
        seen = await asyncio.to_thread(_signature, self._file)
        if seen == self._seen:
            return
        content = await asyncio.to_thread(_content, self._file)
        digest = hashlib.sha256(content).hexdigest()
        if not self._known(digest):
            await self._import_new(await asyncio.to_thread(self._parsed, content), digest)
        self._seen = seen

    def _parsed(self, content: bytes) -> list[NewUser]:
        return parsed(content, self._kind, self._file, self._admin.check_user)

    def _known(self, digest: str) -> bool:
        """Whether this version was imported; with `replace`, whether it was imported last."""
        known = self._rlog.tables.imports.get(digest)
        return known is not None and (not self._replace or known.at_s >= self._newest_s())

    def _newest_s(self) -> float:
        return max((taken.at_s for _, taken in self._rlog.tables.imports.items()), default=0.0)

    async def _import_new(self, users: list[NewUser], digest: str) -> None:
        there = self._rlog.tables.users
        all_rows = [(user, there.get(user.user_id)) for user in users]
        fresh = [(user, old) for user, old in all_rows if self._replace or old is None]
        for start in range(0, len(fresh), BOOTSTRAP_BATCH_USERS):
            await self._write(fresh[start : start + BOOTSTRAP_BATCH_USERS])
        # Newer than all other imports, even if another core's clock was ahead.
        at_s = max(self._clock.wall(), self._newest_s() + 0.001)
        await self._rlog.write(AUTH, [IMPORTS.put(digest, ImportedFile(at_s, len(fresh)))])
        log.info("%s: %d users, %d of them written", self._file, len(users), len(fresh))

    async def _write(self, rows: Sequence[tuple[NewUser, User | None]]) -> None:
        """Write users with their rows from before. Whom somebody makes, changes or deletes while hashes are made stays
        so; with `replace` a change counts as one from before."""
        there = self._rlog.tables.users
        while rows:
            made = [await self._admin.made(user, old) for user, old in rows]
            async with self._admin.locked(user.user_id for user, _ in rows):
                now = [there.get(user.user_id) for user, _ in rows]
                ops: list[Op] = [
                    USERS.put(user.user_id, row)
                    for (user, old), row, current in zip(rows, made, now, strict=True)
                    if current == old and row != old
                ]
                if ops:
                    await self._rlog.write(AUTH, ops)
            rows = [
                (user, current)
                for (user, old), current in zip(rows, now, strict=True)
                if self._replace and current not in (None, old)
            ]


def _signature(file: Path) -> tuple[int, ...]:
    """Changes when the file may have changed."""
    try:
        status = file.stat()
    except OSError as error:
        raise _unreadable(file, error) from None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(BOOTSTRAP_MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(file, error) from None
    if len(content) > BOOTSTRAP_MAX_BYTES:
        raise ConfigError(f"authentication.bootstrap_file: {str(file)!r} has more than {BOOTSTRAP_MAX_BYTES} bytes")
    return content


def _unreadable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"authentication.bootstrap_file: {str(file)!r} can't be read: {error.strerror}")


def parsed(content: bytes, kind: Kind, file: Path, check: Callable[[NewUser], None]) -> list[NewUser]:
    """Parse the users. Raises ConfigError, which names the file, the line and what to change, but no secrets."""
    rows: Iterable[tuple[str, object]] = (
        _json_rows(content, file) if file.suffix == ".json" else _csv_rows(content, kind, file)
    )
    users: dict[str, tuple[str, NewUser]] = {}
    for place, row in rows:
        try:
            user = msgspec.convert(row, NewUser, strict=False)
            if (user.password is None) == (kind == "plain"):
                raise ConfigError(f"{place}: a user needs a {COLUMNS[kind]}, as bootstrap_type is {kind}")
            check(user)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{place}: {error}; a user has {_fields(kind)}") from None
        except Invalid as error:
            raise ConfigError(f"{place}: user {user.user_id!r}: {error}") from None
        if user.user_id in users:
            first = users[user.user_id][0].removeprefix(f"{file}: ")
            raise ConfigError(f"{place}: user {user.user_id!r} stands in {first} too; keep one of them")
        users[user.user_id] = place, user
    return [user for _, user in users.values()]


def _fields(kind: Kind) -> str:
    return f"user_id, {COLUMNS[kind]} and, if wanted, salt, is_superuser and is_disabled (true or false)"


def _csv_rows(content: bytes, kind: Kind, file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}: line {line}: is not UTF-8; save the file as UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = list(reader.fieldnames or [])
        if twice := next((name for name in columns if columns.count(name) > 1), None):
            raise ConfigError(f"{file}: line 1: names the column {twice} twice; keep one of them")
        if missing := {"user_id", COLUMNS[kind]} - set(columns):
            raise ConfigError(
                f"{file}: line 1: has no column {' and '.join(sorted(missing))}; with bootstrap_type {kind} it must "
                f"name {_fields(kind)}"
            )
        for row in reader:
            place = f"{file}: line {reader.line_num}"
            if None in row:
                raise ConfigError(f'{place}: has more fields than line 1 has columns; put what has a comma between "')
            yield place, {name: value for name, value in row.items() if value}
    except csv.Error as error:
        raise ConfigError(
            f'{file}: line {reader.reader.line_num}: {error}; put what has a comma or a quote between "'
        ) from None


def _json_rows(content: bytes, file: Path) -> Iterable[tuple[str, dict[str, object]]]:
    try:
        rows = strict_json.decode(content, list[dict[str, object]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not a JSON list of users: {error}") from None
    return [(f"{file}: user {place}", row) for place, row in enumerate(rows, start=1)]
