"""Slows down password guessing: after too many failed logins a client must wait longer and longer. No I/O.

Failures are counted per address (an IPv6 host counts as its /64) and name at that address. The user name and the client
id both count as names. After `max_count` failures one login is tried after each wait. A client that logged in before
from the same address, with the same user name and client id, has a counter of its own.

Invariants:
- Failures at one address never delay a client at another address, nor a client that logged in before from the same
  address.
- If an address fails with many names, a name without failures is still not delayed. But from then on each name there is
  delayed after its first failure instead of after `max_count`; and for `max_wait`, if it has failed so often that its
  names may have been forgotten. So a name that is forgotten is guessed no faster.
- At most FAILED_LOGINS_MAX names and addresses are remembered, FAILED_LOGINS_KEPT_OF_ADDRESS_MAX of one address, and
  KNOWN_CLIENTS_MAX clients. So an address that fails with very many names has only its own forgotten, and a user that
  logs in with very many client ids has no other user's clients forgotten.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from flockmq.auth.addresses import network
from flockmq.auth.authenticator import Attempt
from flockmq.bounds import (
    FAILED_LOGINS_KEPT_OF_ADDRESS_MAX,
    FAILED_LOGINS_KEPT_S,
    FAILED_LOGINS_MAX,
    FAILED_LOGINS_OF_ADDRESS_MAX,
    KNOWN_CLIENTS_LOOKED_AT_MAX,
    KNOWN_CLIENTS_MAX,
    LOGINS_OF_NAME_MAX,
)
from flockmq.config.auth_settings import FailedLoginsSettings as Settings

Begun = tuple[int, tuple[int, ...]]
"""(hash of the password, hashes of the names that the login counts for)"""
FIRST_WAIT_S = 1.0
DOUBLED_MAX = 32


class _Failures:
    __slots__ = ("address", "count", "last_s", "next_s")

    def __init__(self, address: int) -> None:
        self.address = address
        """Its hash."""
        self.count = 0
        self.last_s = 0.0
        self.next_s = 0.0
        """The earliest time of the next login; 0 if there is no wait."""


class FailedLogins:
    def __init__(
        self,
        settings: Settings,
        now_s: Callable[[], float],
        room: int = FAILED_LOGINS_MAX,
        room_of_address: int = FAILED_LOGINS_KEPT_OF_ADDRESS_MAX,
    ) -> None:
        self._settings = settings
        self._now_s = now_s
        self._room = room
        self._room_of_address = min(room, room_of_address)
        self._failures: OrderedDict[int, _Failures] = OrderedDict()
        """Key: the hash of an address, or of a name at an address. The latest failure is last."""
        self._keys_of: dict[int, OrderedDict[int, None]] = {}
        """The keys of each address, in the same order."""
        self._under_way: dict[int, Counter[int]] = {}
        """Logins being checked, by name at an address: hashes of the passwords, because the same password twice is only
        one guess."""
        self._known: OrderedDict[int, bytes] = OrderedDict()
        """The hash of a client that logged in → its user. The latest login is last."""
        self._known_of: Counter[bytes] = Counter()
        """How many of these each user has."""

    def configure(self, settings: Settings) -> None:
        """Other settings. What was counted stays, unless nothing is to be counted any more."""
        self._settings = settings
        if not settings.enable:
            self._failures.clear()
            self._keys_of.clear()

    def __len__(self) -> int:
        return len(self._failures)

    def may_try(self, attempt: Attempt) -> bool:
        """Whether this login may be checked now. If a wait has just ended, this call uses up its one try."""
        if not (self._failures or self._under_way):
            return True
        now_s, guess, found = self._now_s(), hash(attempt.password), []
        for key in self._keys(attempt):
            failures, guesses = self._remembered(key, now_s), self._under_way.get(key, ())
            is_one_too_many = len(guesses) >= LOGINS_OF_NAME_MAX and guess not in guesses
            if is_one_too_many or (failures is not None and failures.next_s > now_s):
                return False
            if failures is not None and failures.next_s:
                found.append(failures)
        for failures in found:
            failures.next_s = now_s + self._wait_s(failures.count)
        return True

    def begun(self, attempt: Attempt) -> Begun:
        """Count a login whose check takes time. Pass the result to `ended` when the check is over."""
        guess, keys = hash(attempt.password), self._keys(attempt) if self._counts(attempt) else ()
        for key in keys:
            self._under_way.setdefault(key, Counter())[guess] += 1
        return guess, keys

    def ended(self, begun: Begun) -> None:
        guess, keys = begun
        for key in keys:
            guesses = self._under_way[key]
            guesses[guess] -= 1
            if not guesses[guess]:
                del guesses[guess]
            if not guesses:
                del self._under_way[key]

    def failed(self, attempt: Attempt) -> None:
        if not self._counts(attempt):
            return
        now_s, keys = self._now_s(), self._keys(attempt)
        address = hash(network(attempt.peer.host))
        of_address = self._count(address, address, now_s).count
        is_known = len(keys) == 1 and keys[0] in self._known
        free = self._settings.max_count if is_known or of_address <= FAILED_LOGINS_OF_ADDRESS_MAX else 1
        may_be_forgotten = not is_known and of_address > self._room_of_address // 2  # a failure counts for two names
        for key in keys:
            failures = self._count(key, address, now_s)
            if failures.count >= free:
                wait_s = self._settings.max_wait if may_be_forgotten else self._wait_s(failures.count)
                failures.next_s = now_s + wait_s

    def succeeded(self, attempt: Attempt, user: bytes) -> None:
        """`user`: as whom the client was authenticated, whatever it called itself."""
        if not self._counts(attempt):
            return
        if self._failures:
            for key in self._keys(attempt):
                self._forget(key)
        self._remember(_client(attempt), user)

    def _remember(self, client: int, user: bytes) -> None:
        known, of_user = self._known, self._known_of
        if client in known:
            self._forget_known(client)
        if len(known) >= KNOWN_CLIENTS_MAX:
            if of_user[user] * len(of_user) >= KNOWN_CLIENTS_MAX:  # it has its share: it replaces one of its own
                for _ in range(KNOWN_CLIENTS_LOOKED_AT_MAX):
                    if known[next(iter(known))] == user:
                        break
                    known.move_to_end(next(iter(known)))
                else:
                    return
            self._forget_known(next(iter(known)))
        known[client] = user
        of_user[user] += 1

    def _forget_known(self, client: int) -> None:
        user = self._known.pop(client)
        self._known_of[user] -= 1
        if not self._known_of[user]:
            del self._known_of[user]

    def _counts(self, attempt: Attempt) -> bool:
        """Only attempts with a user name or a password count."""
        return self._settings.enable and (attempt.username is not None or attempt.password is not None)

    def _keys(self, attempt: Attempt) -> tuple[int, ...]:
        client = _client(attempt)
        if client in self._known:
            return (client,)
        where = network(attempt.peer.host)
        names = (("username", attempt.username), ("clientid", attempt.client_id))
        return tuple(hash((where, kind, name)) for kind, name in names if name)

    def _wait_s(self, count: int) -> float:
        doubled = min(max(count - self._settings.max_count, 0), DOUBLED_MAX)
        return min(FIRST_WAIT_S * 2.0**doubled, self._settings.max_wait)

    def _remembered(self, key: int, now_s: float) -> _Failures | None:
        failures = self._failures.get(key)
        if failures is not None and now_s - failures.last_s > FAILED_LOGINS_KEPT_S:
            self._forget(key)
            return None
        return failures

    def _count(self, key: int, address: int, now_s: float) -> _Failures:
        """Count one more failure for this key of an address."""
        failures = self._remembered(key, now_s)
        if failures is None:
            failures = self._failures[key] = _Failures(address)
        failures.count += 1
        failures.last_s = now_s
        self._failures.move_to_end(key)
        keys = self._keys_of.setdefault(address, OrderedDict())
        keys[key] = None
        keys.move_to_end(key)
        if len(keys) > self._room_of_address:
            self._forget(next(iter(keys)))
        elif len(self._failures) > self._room:
            self._forget(next(iter(self._failures)))
        return failures

    def _forget(self, key: int) -> None:
        failures = self._failures.pop(key, None)
        if failures is not None:
            keys = self._keys_of[failures.address]
            del keys[key]
            if not keys:
                del self._keys_of[failures.address]


def _client(attempt: Attempt) -> int:
    return hash((network(attempt.peer.host), attempt.username, attempt.client_id))
