"""Changes of users, rules and bans: this checks them, hashes passwords and writes the log. The REST API calls it.

A change returns when this node's tables have it. Other nodes get it when they read the log.

Invariant: what changes a part of a user's row keeps the other parts as they are when it is written, however long a hash
takes: no user that was deleted, disabled or created meanwhile is undone. (Changes of one user at several nodes in the
same moment: the last one in the log counts.)
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, Generic, Literal, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Meta

from flockmq.auth import bans, hashing, rule_sources, scram
from flockmq.auth.hash_pool import HashPool
from flockmq.auth.name_pages import page_of
from flockmq.auth.name_patterns import check_length
from flockmq.auth.rules import compile_rules
from flockmq.auth.user_revocation import disabled, enabled, is_disabled
from flockmq.bounds import AUTH_PAGE_MAX, BAN_PATTERNS_MAX, PASSWORD_MAX_BYTES, RULES_MAX_BYTES
from flockmq.clock import Clock
from flockmq.config.auth_settings import HashAlgorithm, RuleSettings
from flockmq.rlog.entry import Op
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, BANS, RULES, USERS, Ban, User
from flockmq.rlog.sorted_keys import SortedKeys
from flockmq.rlog.tables import Tables

Name = Annotated[str, Meta(min_length=1, max_length=65_535)]
OfKind = Literal["clientid", "username", "all"]
BanKind = Literal["client", "clientid", "username", "peerhost", "clientid_pattern", "username_pattern", "peerhost_net"]
T = TypeVar("T")
K = TypeVar("K", str, tuple[str, str])
LAST_YEAR = 9998  # the last that datetime can show in every time zone
VERSION_LETTERS: Final = 32


class Invalid(Exception):
    """The value of `field` in the request is invalid."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")


class Exists(Exception):
    """The object to create exists already."""


class Missing(Exception):
    """The requested object doesn't exist."""


class Unused(Exception):
    """The object to create would have no effect, because the configuration doesn't use such objects."""


# --- requests and responses -----------------------------------------------------------------------------------------


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user with either a password or a hash. `salt` is for a hash that doesn't contain its salt."""

    user_id: Name
    password: str | None = None
    password_hash: str | None = None
    salt: str = ""
    is_superuser: bool = False
    is_disabled: bool | None = None
    """None means unchanged; a new user is then enabled."""

    def __repr__(self) -> str:
        return f"NewUser({self.user_id!r}, …)"


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields that aren't given stay unchanged."""

    password: str | None = None
    password_hash: str | None = None
    salt: str = ""
    is_superuser: bool | None = None
    is_disabled: bool | None = None

    def __repr__(self) -> str:
        return "UserChange(…)"


class ShownUser(msgspec.Struct, frozen=True):
    user_id: str
    is_superuser: bool
    is_disabled: bool


class AnsweredUser(NamedTuple):
    shown: ShownUser
    version: str
    """Another one whenever anything of the user's row is another, its password too."""


class ShownRules(msgspec.Struct, frozen=True, rename={"of": "as"}):
    of: str
    who: str
    rules: msgspec.Raw
    """As the log has them, so that a page of many costs little, and what a later release wrote is shown, too."""


class NewBan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"of": "as"}):
    """A ban for `seconds` from now, `until` a time (RFC 3339), or for ever."""

    of: BanKind
    who: Name
    seconds: Annotated[float, Meta(gt=0, le=3.2e9)] | None = None
    until: datetime | None = None
    by: Annotated[str, Meta(max_length=256)] = "api"
    reason: Annotated[str, Meta(max_length=1024)] = ""


class ShownBan(msgspec.Struct, frozen=True, rename={"of": "as"}):
    of: str
    who: str
    at: datetime
    until: datetime | None
    by: str
    reason: str


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a listing. `next` is the value of `after` for the next page, or None on the last one."""

    data: list[T]
    count: int
    next: str | None


# --- the changes ----------------------------------------------------------------------------------------------------


class Admin:
    """`scram_iterations` is None if SCRAM isn't configured; then no SCRAM verifiers are made. `users_matter` and
    `rules_matter`: the configuration uses the users, and the rules, that are in the log."""

    def __init__(
        self,
        rlog: Rlog,
        bans: bans.Bans,
        pool: HashPool,
        algorithm: HashAlgorithm,
        scram_iterations: int | None,
        clock: Clock,
        *,
        users_matter: bool = True,
        rules_matter: bool = True,
    ) -> None:
        self._rlog = rlog
        self._clock = clock
        self._bans = bans
        self._pool = pool
        self._algorithm = algorithm
        self._scram_iterations = scram_iterations
        self._users: SortedKeys[str] = SortedKeys()
        self._ruled: SortedKeys[tuple[str, str]] = SortedKeys()
        self._banned: SortedKeys[tuple[str, str]] = SortedKeys()
        self._swept_to: tuple[str, str] | None = None
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By user. Who holds several has taken them in order."""
        self._users_matter = users_matter
        self._rules_matter = rules_matter
        rlog.on_change(USERS.name, self._users)
        rlog.on_change(RULES.name, self._ruled)
        rlog.on_change(BANS.name, self._banned)

    # Users.

    def users(self, after: str | None, limit: int) -> Page[ShownUser]:
        """Raises Invalid."""
        with _as_invalid("after"):
            keys, end = page_of(self._users, after, limit, str, str)
        shown = [_shown_user(key, user) for key in keys if (user := self._tables.users.get(key)) is not None]
        return Page(shown, len(self._users), end)

    def user(self, user_id: str) -> AnsweredUser:
        """Raises Missing."""
        return _answered_user(user_id, self._user(user_id))

    async def create_user(self, new: NewUser) -> AnsweredUser:
        """Raises Unused, Invalid, Exists, Busy, StorageError."""
        if not self._users_matter:
            raise Unused('nothing in authentication.chain asks for users: add "password_based:built_in_database"')
        self._check_absent(new.user_id)
        user = await self.made(new)
        async with self.locked([new.user_id]):
            self._check_absent(new.user_id)
            await self._write([USERS.put(new.user_id, user)])
        return _answered_user(new.user_id, user)

    async def update_user(self, user_id: str, change: UserChange) -> AnsweredUser:
        """Raises Missing, Invalid, Busy, StorageError."""
        while True:
            old = self._user(user_id)
            user = await self._changed(user_id, change, old)
            async with self.locked([user_id]):
                if self._tables.users.get(user_id) == old:
                    await self._write([USERS.put(user_id, user)])
                    return _answered_user(user_id, user)

    async def delete_user(self, user_id: str) -> None:
        """Raises Missing, StorageError."""
        async with self.locked([user_id]):
            self._user(user_id)
            await self._write([USERS.delete(user_id)])

    async def _changed(self, user_id: str, change: UserChange, old: User) -> User:
        """Raises Invalid, Busy."""
        is_superuser = old.is_superuser if change.is_superuser is None else change.is_superuser
        if change.password is None and change.password_hash is None:
            return _with_disabled(msgspec.structs.replace(old, is_superuser=is_superuser), change.is_disabled, old)
        given = change.password, change.password_hash, change.salt
        return await self.made(NewUser(user_id, *given, is_superuser, change.is_disabled), old)

    async def made(self, new: NewUser, old: User | None = None) -> User:
        """Make the row to write. If `new` has the password of `old`, the hash stays the same. Raises Invalid, Busy."""
        return _with_disabled(await self._enabled(new, None if old is None else enabled(old)), new.is_disabled, old)

    async def _enabled(self, new: NewUser, old: User | None) -> User:
        self.check_user(new)
        if new.password is None:
            stored = self._given_hash(new)
            verifier = old.scram if old is not None and old.password_hash == stored else ""
            return User(stored, verifier, new.is_superuser)
        stored, verifier = await self._pool.run("admin", partial(self._hashed, new.password, old))
        return User(stored, verifier, new.is_superuser)

    def check_user(self, new: NewUser) -> None:
        """Check everything before a hash is computed. Raises Invalid."""
        if (new.password is None) == (new.password_hash is None):
            raise Invalid("password", "say either password or password_hash")
        if "\0" in new.user_id:
            raise Invalid("user_id", "must not hold a NUL")
        if new.password is None:
            self._given_hash(new)
            return
        if not 0 < len(new.password.encode()) <= PASSWORD_MAX_BYTES:
            raise Invalid("password", f"must have 1 to {PASSWORD_MAX_BYTES} bytes")
        with _as_invalid("password"):
            hashing.check_password(new.password.encode(), self._algorithm)
            if self._scram_iterations is not None:
                scram.saslprep(new.password, PASSWORD_MAX_BYTES)

    def _given_hash(self, new: NewUser) -> str:
        assert new.password_hash is not None
        with _as_invalid("password_hash"):
            return hashing.from_salted(new.password_hash, new.salt, self._algorithm)

    def _hashed(self, password: str, old: User | None) -> tuple[str, str]:
        """Return the hash and the SCRAM verifier. This takes long, so it runs in a thread."""
        stored = verifier = ""
        if old is not None and hashing.is_right(password.encode(), old.password_hash):
            stored, verifier = old.password_hash, old.scram
        if self._scram_iterations is not None and not verifier:
            verifier = str(scram.Verifier.made(password, self._scram_iterations))
        return stored or hashing.made(password.encode(), self._algorithm), verifier

    @asynccontextmanager
    async def locked(self, user_ids: Iterable[str]) -> AsyncIterator[None]:
        """Hold these users' rows: from the last look at them until what follows from it is in the tables."""
        async with AsyncExitStack() as stack:
            for user_id in sorted(user_ids):
                await stack.enter_async_context(self._writing.setdefault(user_id, asyncio.Lock()))
            yield

    def _check_absent(self, user_id: str) -> None:
        if self._tables.users.get(user_id) is not None:
            raise Exists(f"user {user_id!r} is there already")

    def _user(self, user_id: str) -> User:
        user = self._tables.users.get(user_id)
        if user is None:
            raise Missing(f"there is no user {user_id!r}")
        return user

    # Rules.

    def ruled(self, after: str | None, limit: int) -> Page[ShownRules]:
        """Raises Invalid."""
        stored = self._tables.rules
        with _as_invalid("after"):
            keys, end = page_of(self._ruled, after, limit, "/".join, _split, lambda key: len(stored.get(key) or b""))
        shown = [ShownRules(*key, msgspec.Raw(raw)) for key in keys if (raw := stored.get(key))]
        return Page(shown, len(self._ruled), end)

    def rules(self, of: OfKind, who: str) -> ShownRules:
        """Raises Missing."""
        raw = self._tables.rules.get((of, who))
        if raw is None:
            raise Missing(f"{_shown_key(of, who)} has no rules")
        return ShownRules(of, who, msgspec.Raw(raw))

    async def put_rules(self, of: OfKind, who: str, rules: tuple[RuleSettings, ...]) -> ShownRules:
        """Set the rules, in place of any that exist. Raises Unused, Invalid, StorageError."""
        if not self._rules_matter:
            raise Unused('nothing in authorization.sources asks for rules: add one of type "built_in_database"')
        with _as_invalid("rules"):
            compile_rules(rules)
        raw = rule_sources.encoded(rules)
        if len(raw) > RULES_MAX_BYTES:
            raise Invalid("rules", f"have {len(raw)} bytes; {RULES_MAX_BYTES} is the most")
        await self._write([RULES.put((of, who), raw)])
        return ShownRules(of, who, msgspec.Raw(raw))

    async def delete_rules(self, of: OfKind, who: str) -> None:
        """Raises Missing, StorageError."""
        self.rules(of, who)
        await self._write([RULES.delete((of, who))])

    # Bans.

    def bans(self, after: str | None, limit: int) -> Page[ShownBan]:
        """Expired bans are listed until `sweep_bans` removes their rows. Raises Invalid."""
        with _as_invalid("after"):
            keys, end = page_of(self._banned, after, limit, "/".join, _split)
        shown = [_shown_ban(key, ban) for key in keys if (ban := self._tables.bans.get(key)) is not None]
        return Page(shown, len(self._banned), end)

    async def put_ban(self, new: NewBan) -> ShownBan:
        """Set the ban, in place of an existing one with the same key. Raises Invalid, StorageError."""
        with _as_invalid("who"):
            who = bans.normal(new.of, new.who)
            if new.of in bans.PATTERNS:
                check_length(who)
        now_s = self._clock.wall()
        if new.seconds is not None and new.until is not None:
            raise Invalid("until", "say either seconds or until")
        if new.until is not None and (new.until.tzinfo is None or new.until.year > LAST_YEAR):
            raise Invalid("until", f"must say its time zone, up to {LAST_YEAR}; for example 2030-01-01T00:00:00Z")
        until_s = 0.0 if new.seconds is None else now_s + new.seconds
        if new.until is not None:
            until_s = new.until.timestamp()
            if until_s <= now_s:
                raise Invalid("until", "is in the past")
        key = (new.of, who)
        is_new = self._tables.bans.get(key) is None
        if new.of in bans.PATTERNS and is_new and self._bans.patterns >= BAN_PATTERNS_MAX:
            raise Invalid("as", f"there are {BAN_PATTERNS_MAX} bans by pattern already; remove one first")
        ban = Ban(until_s, new.by, new.reason, now_s)
        await self._write([BANS.put(key, ban)])
        return _shown_ban(key, ban)

    async def delete_ban(self, of: str, who: str) -> None:
        """Raises Missing, StorageError."""
        try:
            key = (of, bans.normal(of, who))
        except ValueError:
            key = (of, who)
        if self._tables.bans.get(key) is None:
            raise Missing(f"{_shown_key(of, who)} isn't banned")
        await self._write([BANS.delete(key)])

    async def sweep_bans(self) -> None:
        """Remove expired bans among the next AUTH_PAGE_MAX. The next call continues behind them. A ban that is renewed
        meanwhile stays."""
        keys = self._banned.page(self._swept_to, AUTH_PAGE_MAX)
        self._swept_to = keys[-1] if len(keys) == AUTH_PAGE_MAX else None
        now_s = self._clock.wall()
        rows = ((key, self._tables.bans.get(key)) for key in keys)
        over = [key for key, ban in rows if ban is not None and bans.is_over(ban, now_s)]
        if over:
            drops = map(self._tables.bans.drop, over)
            await self._write([drop for drop in drops if drop is not None])

    @property
    def _tables(self) -> Tables:
        return self._rlog.tables

    async def _write(self, ops: list[Op]) -> None:
        await self._rlog.write(AUTH, ops)


def _shown_user(user_id: str, user: User) -> ShownUser:
    return ShownUser(user_id, user.is_superuser, is_disabled(user))


def _answered_user(user_id: str, user: User) -> AnsweredUser:
    """The version is a digest of the row, whose hash has a random salt that nobody is told: no password can be guessed
    from it."""
    version = hashlib.sha256(msgspec.msgpack.encode(user)).hexdigest()[:VERSION_LETTERS]
    return AnsweredUser(_shown_user(user_id, user), version)


def _with_disabled(user: User, is_to_be_disabled: bool | None, old: User | None) -> User:
    """Disable or enable the user as the request says. If it doesn't say, the user stays as it was."""
    if is_to_be_disabled is None:
        is_to_be_disabled = old is not None and is_disabled(old)
    return disabled(user) if is_to_be_disabled else enabled(user)


def _shown_ban(key: tuple[str, str], ban: Ban) -> ShownBan:
    until = datetime.fromtimestamp(ban.until_s, UTC) if ban.until_s else None
    return ShownBan(key[0], key[1], datetime.fromtimestamp(ban.at_s, UTC), until, ban.by, ban.reason)


@contextmanager
def _as_invalid(field: str) -> Iterator[None]:
    """What is wrong with the request's field is told as Invalid."""
    try:
        yield
    except ValueError as error:
        raise Invalid(field, str(error)) from None


def _split(text: str) -> tuple[str, str]:
    of, _, who = text.partition("/")
    return of, who


def _shown_key(of: str, who: str) -> str:
    return f"{of} {who!r}" if who else f'"{of}"'
