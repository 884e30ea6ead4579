"""Decides what a client may publish and subscribe to: by the client's own rules first, then by each source in order.

Invariants:
- A cached decision is at most `ttl` old and was made under the current rules. A client has at most `max_size` of them.
- A service that doesn't answer neither allows nor denies anything.
- `$SYS` topics about other clients are only for superusers and for clients that a rule explicitly allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from itertools import dropwhile
from typing import Final, Self

from flockmq import tasks
from flockmq.auth.http_service import Unanswered
from flockmq.auth.request_queue import RequestQueue
from flockmq.auth.rule_sources import CLIENTID, HttpRules, LogRules, Source
from flockmq.auth.rules import Rules, Subject, digest, reveals_clients
from flockmq.auth.service_turns import Overloaded
from flockmq.bounds import AUTHORIZATIONS_MAX_TOPIC_BYTES
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import AuthorizationSettings
from flockmq.default_callbacks import ignore
from flockmq.protocol.client import ALLOWED, ASKED, DENIED, UNDECIDED, PeerInfo, Principal

log: Final = logging.getLogger(__name__)

Peer = Callable[[], PeerInfo]
"""Returns the client's address and certificate. Called only if no decision is cached."""
Key = tuple[int, bytes, int, bool]
"""(action, topic, QoS, retain)"""
Check = Callable[[], bool | None]
Answers = dict[Key, tuple[bool, float]]
"""Key → (is it allowed?, when the cached decision expires)."""


class Authorizer:
    """Also the listener of the rules table. It calls `on_change` when all earlier decisions are void, and `on_rules`
    with the key of the rules that changed, or None if any may have. `in_turn` runs a check for a user when that user's
    turn comes (see `node.authorization_turns`)."""

    def __init__(
        self,
        settings: AuthorizationSettings,
        sources: Sequence[Source | HttpRules],
        now_s: Callable[[], float] = SYSTEM.monotonic,
    ) -> None:
        self.on_change: Callable[[], None] = ignore
        self.on_rules: Callable[[tuple[str, str] | None], None] = ignore
        self.in_turn: Callable[[bytes, Check], Awaitable[bool | None]] = _at_once
        self.results: Counter[str] = Counter()
        self.looked_at: int = 0
        """How many rules were checked since the start."""
        self.disconnects = settings.deny_action == "disconnect"
        self.revoking_disconnects = settings.revoked_subscriptions == "disconnect"
        self._sources = sources
        self._asks = [source for source in sources if isinstance(source, HttpRules)]
        self._from_asked = list(dropwhile(lambda source: not isinstance(source, HttpRules), sources))
        """The first HTTP source, and all sources behind it."""
        self._no_match = settings.no_match
        self._size = settings.cache.max_size
        self._ttl_s = settings.cache.ttl
        self._now_s = now_s
        self._cached: dict[bytes, tuple[Principal, Answers]] = {}
        """Cached decisions by client id, with the principal that they were made for."""
        self._requests = RequestQueue()
        self._fresher: asyncio.Task[None] | None = None

    @property
    def cached(self) -> int:
        """How many clients have cached decisions."""
        return len(self._cached)

    @property
    def waiting(self) -> int:
        return len(self._requests)

    async def start(self) -> None:
        await asyncio.gather(*(source.start() for source in self._asks))
        if self._asks and self._ttl_s:
            self._fresher = asyncio.ensure_future(self._ask_again())

    async def stop(self) -> None:
        await tasks.end(self._fresher)
        await self._requests.stop()
        await asyncio.gather(*(source.stop() for source in self._asks))

    def configure(self, settings: AuthorizationSettings) -> None:
        """Other settings, except for the sources and the cache."""
        self.disconnects = settings.deny_action == "disconnect"
        self.revoking_disconnects = settings.revoked_subscriptions == "disconnect"
        if settings.no_match != self._no_match:
            self._no_match = settings.no_match
            self._changed(None)

    def must_check(self, principal: Principal) -> bool:
        """False if this client may do everything, even after a change of rules."""
        if principal.superuser:
            return False
        return bool(self._sources) or principal.rules is not None or self._no_match == "deny"

    def fingerprint(self, client_id: bytes, principal: Principal, peer: Peer) -> bytes | None:
        """A hash of everything that decides about this client. While it is the same, every decision is the same. None
        if the client may do everything. b"" if an HTTP service decides, because its answers can't be predicted."""
        if not self.must_check(principal):
            return None
        if self._asks:
            return b""
        subject = _subject(client_id, principal, peer)
        own = [principal.rules] if isinstance(principal.rules, Rules) else []
        rules = [*own, *self._about(subject)]
        where = f"{subject.peerhost} {subject.common_name}" if any(some.asks_where for some in rules) else ""
        decides = f"{self._no_match} {len(own)} {principal.rules is None}"
        return digest(principal.username, decides.encode(), where.encode(), *(some.digest for some in rules))

    def fingerprint_by_name(self, client_id: bytes, username: bytes) -> bytes:
        """The fingerprint of an offline client without rules of its own; b"" if rules need its address or
        certificate."""
        principal = Principal(username)
        subject = _subject(client_id, principal, _nowhere)
        if any(some.asks_where for some in self._about(subject)):
            return b""
        return self.fingerprint(client_id, principal, _nowhere) or b""

    def is_denied_by_name(self, client_id: bytes, username: bytes, action: int, topic: bytes, qos: int) -> bool:
        return (
            self.check_offline(_subject(client_id, Principal(username), _nowhere), action, topic, qos, False) == DENIED
        )

    def _about(self, subject: Subject) -> list[Rules]:
        return [
            rules for source in self._sources if not isinstance(source, HttpRules) for rules in source.about(subject)
        ]

    def check(
        self, client_id: bytes, principal: Principal, peer: Peer, action: int, topic: bytes, qos: int, retain: bool
    ) -> int:
        """Returns ALLOWED, DENIED, or ASKED. For ASKED call `ask`. `topic` has no prefix such as `$share/GROUP/`
        (`mqtt.topics.unwrap` removes it)."""
        if not self.must_check(principal):
            return ALLOWED if principal.superuser or not reveals_clients(topic) else DENIED
        cached = self._cached.get(client_id)
        if cached is not None and cached[0] is principal and (answer := cached[1].get((action, topic, qos, retain))):
            if answer[1] > self._now_s():
                self.results["kept"] += 1
                return ALLOWED if answer[0] else DENIED
            del cached[1][action, topic, qos, retain]
        decision: bool | None = None
        subject = _subject(client_id, principal, peer)
        if isinstance(principal.rules, Rules):
            decision = self._decide(principal.rules, subject, action, topic, qos, retain)
        for source in self._sources:
            if decision is not None:
                break
            if isinstance(source, HttpRules):
                return ASKED
            decision = self._decide(source, subject, action, topic, qos, retain)
        answers = self._answers(client_id, principal)
        return self._decided(answers, principal, (action, topic, qos, retain), decision)

    def ask(
        self,
        client_id: bytes,
        principal: Principal,
        peer: Peer,
        action: int,
        topic: bytes,
        qos: int,
        retain: bool,
        connection: Hashable,
        done: Callable[[int], None],
    ) -> None:
        """Ask the HTTP services. Calls `done` once, after this returns: with ALLOWED, DENIED, or UNDECIDED. UNDECIDED
        means that a service doesn't answer or that `connection` has too many requests waiting.
        """
        subject = _subject(client_id, principal, peer)
        key = (action, topic, qos, retain)
        answers = self._answers(client_id, principal)
        request = partial(self._ask, subject, principal, key, answers, done)
        self._requests.ask(connection, principal.username or client_id, request, partial(self._not_asked, done))

    def check_offline(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> int:
        """Check a client that is gone, without rules of its own. Returns ALLOWED, DENIED, or ASKED. For ASKED call
        `is_still_allowed`."""
        for source in self._sources:
            if isinstance(source, HttpRules):
                return ASKED
            decision = source.decide(subject, action, topic, qos, retain)
            if decision is not None:
                return ALLOWED if decision else DENIED
        return ALLOWED if self._is_open() else DENIED

    async def is_still_allowed(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool:
        """Ask the services. If one fails to answer, the action stays allowed."""
        try:
            decision = await self._asked(subject, action, topic, qos, retain)
        except Exception as error:
            self._unanswered(error)
            return True
        return self._is_open() if decision is None else decision

    def gone(self, connection: Hashable) -> None:
        """The connection has closed. Its requests are still answered, as far as `RequestQueue` keeps them."""
        self._requests.gone(connection)

    def _not_asked(self, done: Callable[[int], None]) -> None:
        self.results["busy"] += 1
        done(UNDECIDED)

    async def _ask(
        self, subject: Subject, principal: Principal, key: Key, answers: Answers, done: Callable[[int], None]
    ) -> None:
        """If the client left or rules changed meanwhile, `answers` isn't the client's cache any more, and the decision
        is not cached."""
        try:
            decision = await self._asked(subject, *key)
        except Exception as error:
            self._unanswered(error)
            done(UNDECIDED)
            return
        done(self._decided(answers, principal, key, decision))

    async def _asked(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        """The decision of the first source that has one. `check` has already asked the sources before the first HTTP
        source."""
        decision: bool | None = None
        for source in self._from_asked:
            if decision is not None:
                break
            if isinstance(source, HttpRules):
                decision = await source.ask(subject, action, topic, qos, retain)
            else:
                user = (subject.username or subject.clientid).encode()
                decision = await self.in_turn(user, partial(self._decide, source, subject, action, topic, qos, retain))
        return decision

    def _decide(
        self, source: Source, subject: Subject, action: int, topic: bytes, qos: int, retain: bool
    ) -> bool | None:
        before = subject.looked_at
        decision = source.decide(subject, action, topic, qos, retain)
        self.looked_at += subject.looked_at - before
        return decision

    def _unanswered(self, error: Exception) -> None:
        if not isinstance(error, Unanswered | Overloaded):
            log.error("a source of access rules failed", exc_info=error)
        self.results["unavailable"] += 1

    def _is_open(self, *, has_rules: bool = False) -> bool:
        """Whether an action that no rule matches is allowed."""
        return self._no_match == "allow" or (self._no_match is None and not has_rules and not self._sources)

    def _decided(self, answers: Answers, principal: Principal, key: Key, decision: bool | None) -> int:
        if decision is None:
            decision = self._is_open(has_rules=principal.rules is not None) and not reveals_clients(key[1])
        if self._ttl_s and len(key[1]) <= AUTHORIZATIONS_MAX_TOPIC_BYTES:
            if len(answers) >= self._size:
                del answers[next(iter(answers))]
            answers[key] = (decision, self._now_s() + self._ttl_s)
        self.results["allowed" if decision else "denied"] += 1
        return ALLOWED if decision else DENIED

    def _answers(self, client_id: bytes, principal: Principal) -> Answers:
        """This client's cache. It is dropped when the client leaves, gets another principal, or rules change."""
        if not client_id or not self._ttl_s:
            return {}
        cached = self._cached.get(client_id)
        if cached is None or cached[0] is not principal:
            cached = self._cached[client_id] = (principal, {})
        return cached[1]

    def forget(self, client_id: bytes, principal: Principal) -> None:
        """Drop the cache of a client that left or has another principal now. The cache of another connection with the
        same client id stays."""
        cached = self._cached.get(client_id)
        if cached is not None and cached[0] is principal:
            del self._cached[client_id]

    def forget_all(self) -> None:
        """The node is short of memory: drop all caches."""
        self._cached.clear()

    async def _ask_again(self) -> None:
        """Every `ttl`, have connections drop what they derived from decisions. So a service's answer lives for one
        `ttl` here, and for at most one more in a connection."""
        while True:
            await asyncio.sleep(self._ttl_s)
            self.on_change()

    # The table's listener.

    def put(self, key: tuple[str, str], value: bytes, old: bytes | None) -> None:
        self._changed(key)

    def delete(self, key: tuple[str, str], old: bytes) -> None:
        self._changed(key)

    def fresh(self) -> Self:
        """The result is only a placeholder: `swap` drops the compiled rules, and they are compiled again when
        needed."""
        return type(self)(AuthorizationSettings(), ())

    def swap(self, fresh: Self) -> None:
        self._changed(None)

    def _changed(self, key: tuple[str, str] | None) -> None:
        for source in self._sources:
            if isinstance(source, LogRules):
                source.forget(key)
        if key is not None and key[0] == CLIENTID:
            self._cached.pop(key[1].encode(), None)
        else:
            self._cached.clear()
        self.on_change()
        self.on_rules(key)


def _subject(client_id: bytes, principal: Principal, peer: Peer) -> Subject:
    about = peer()
    name = None if about.certificate is None else about.certificate.common_name
    return Subject(client_id.decode(), principal.username.decode(), about.host, name)


def _nowhere() -> PeerInfo:
    return PeerInfo("", 0, "")


async def _at_once(user: bytes, check: Check) -> bool | None:
    return check()
