"""Authentication against users in the log (backend `built_in_database`), by password or SCRAM-SHA-256.

Invariants:
- When a client is accepted, its user still exists and still has the same rights, however long the check took.
- Neither response times nor SCRAM challenges reveal whether a user exists or is disabled.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from flockmq.auth import hashing, scram
from flockmq.auth.authenticator import Attempt, Granted, LoginRefused, Pass, Verdict
from flockmq.auth.client_ids import ClientIds
from flockmq.auth.hash_pool import Busy, HashPool, VerifiedPasswords
from flockmq.auth.unknown_user_hashes import UnknownUserHashes, of_disabled
from flockmq.auth.unknown_user_iterations import UnknownUserIterations
from flockmq.auth.user_revocation import Lookup, enabled, is_disabled, loses
from flockmq.bounds import PASSWORD_MAX_BYTES
from flockmq.config.auth_settings import BuiltInSettings
from flockmq.mqtt.reason import Reason
from flockmq.rlog.schema import User

WRONG = LoginRefused(Reason.BAD_USER_NAME_OR_PASSWORD, "the password is wrong")


class Passwords:
    """Checks passwords against hashes, in the hash pool."""

    def __init__(self, pool: HashPool, verified: VerifiedPasswords) -> None:
        self._pool = pool
        self._verified = verified

    def knows(self, password: bytes, stored: str) -> bool:
        """Whether this password was already found to match this hash."""
        return self._verified.knows(password, stored)

    async def is_right(self, attempt: Attempt, password: bytes, user_id: str, stored: str | None, decoy: str) -> bool:
        """If `stored` is None, the result is False, but it takes as long as a check of `decoy`, a hash that no password
        matches. Raises Busy."""
        work = partial(hashing.is_right, password, stored or decoy)
        same = self._verified.sum(password, stored or decoy + user_id)  # each unknown user has its own sum too
        right = await self._pool.run(attempt.peer.host, work, attempt.is_gone, same)
        if right and stored:
            self._verified.add(password, stored)
        return right and bool(stored)


class BuiltInAuthenticator:
    def __init__(
        self, settings: BuiltInSettings, user: Lookup, passwords: Passwords, unknown_user_hashes: UnknownUserHashes
    ) -> None:
        self._by_client_id = settings.user_id_type == "clientid"
        self._unknown_user_hashes = unknown_user_hashes
        self._user = user
        self._passwords = passwords

    async def start(self) -> None:
        """Nothing to start: the tables are the log's."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]:
        user_id = attempt.client_id if self._by_client_id else attempt.username
        if not user_id or attempt.password is None:
            return Pass.UNKNOWN
        user = self._user(user_id.decode())
        if len(attempt.password) > PASSWORD_MAX_BYTES:  # perhaps a token for the next authenticator
            return Pass.UNKNOWN if user is None else WRONG
        if user is not None and self._passwords.knows(attempt.password, user.password_hash):
            return _granted(user_id, user)
        return self._checked(attempt, attempt.password, user_id, user)

    async def _checked(self, attempt: Attempt, password: bytes, user_id: bytes, user: User | None) -> Verdict:
        name = user_id.decode()
        stored = None if user is None or is_disabled(user) else user.password_hash
        decoy = self._unknown_user_hashes.hash_for(name) if user is None else of_disabled(user)
        try:
            right = await self._passwords.is_right(attempt, password, name, stored, decoy)
        except Busy:
            return Pass.BUSY
        if user is None:
            return Pass.UNKNOWN
        return _still_granted(user_id, user, self._user) if right else WRONG


def _still_granted(user_id: bytes, then: User, lookup: Lookup) -> Granted | LoginRefused:
    """Check the user again: the proof was right for the row `then`, but the row may have changed while it was
    checked."""
    now = lookup(user_id.decode())
    return WRONG if now is None or loses(then, now) else _granted(user_id, now)


def _granted(user_id: bytes, user: User) -> Granted:
    """The user name is what was authenticated. Nobody checked the one that a client sends beside its client id."""
    return Granted(user_id, is_superuser=user.is_superuser, user_id=user_id, user=user)


def _verifier(user: User) -> scram.Verifier | None:
    """The user's SCRAM verifier; None if it has none, or an unreadable one."""
    try:
        return scram.Verifier.parse(enabled(user).scram)
    except ValueError:
        return None


class ScramExchange:
    """One SCRAM exchange with a client. `feed` takes a message of the client. It returns the challenge or, at the end,
    the verdict and the server signature."""

    method = scram.METHOD

    def __init__(
        self,
        user: Lookup,
        iterations: UnknownUserIterations,
        unknown_user_secret: Callable[[], bytes],
        client_ids: ClientIds | None,
        attempt: Attempt,
    ) -> None:
        self.attempt: Final = attempt
        """Its user name is set from the client's first message."""
        self._lookup = user
        self._iterations = iterations
        self._unknown_user_secret = unknown_user_secret
        self._client_ids = client_ids
        self._server: scram.ScramServer | None = None
        self._user: User | None = None

    @property
    def is_challenged(self) -> bool:
        """The challenge was sent; the client's next message is the proof."""
        return self._server is not None

    def feed(self, data: bytes) -> bytes | tuple[Verdict, bytes]:
        try:
            if self._server is None:
                return self._begin(data)
            proof = self._server.finish(data)
        except scram.ScramError as error:
            return LoginRefused(Reason.BAD_USER_NAME_OR_PASSWORD, f"SCRAM: {error}"), b""
        if self._user is None:
            return WRONG, b""
        granted: Verdict = _still_granted(self.attempt.username or b"", self._user, self._lookup)
        if self._client_ids is not None:
            granted = self._client_ids.checked(self.attempt, granted)
        return granted, proof

    def _begin(self, data: bytes) -> bytes:
        first = scram.ClientFirst.parse(data)
        self.attempt.username = first.user.encode()
        user = self._lookup(first.user)
        verifier = None if user is None else _verifier(user)
        if verifier is None:
            unknown_user_secret = self._unknown_user_secret()
            iterations = self._iterations.count_for(first.user, unknown_user_secret)
            verifier = scram.Verifier.for_unknown_user(first.user, iterations, unknown_user_secret)
        elif user is not None and not is_disabled(user):
            self._user = user
        self._server = scram.ScramServer(first, verifier)
        return self._server.challenge
