"""What a client may publish and subscribe to. The client's own rules are asked first, then the sources in their order.

What always holds: an answer that is kept is at most `ttl` old, and was made under the rules that hold now. Each client
keeps at most `max_size` answers. A service that doesn't answer neither permits nor denies anything. Topics that tell of
other clients are for superusers, and for clients that a rule allows them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from itertools import dropwhile
from typing import Final, Self

from flockmq.auth.http_service import Crowded, Unanswered
from flockmq.auth.request_queue import Asking
from flockmq.auth.rule_sources import CLIENTID, AskedRules, LogRules, Source
from flockmq.auth.rules import Rules, Subject, digest, tells_of_clients
from flockmq.bounds import AUTHORIZATIONS_MAX_TOPIC_BYTES
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import AuthorizationSettings
from flockmq.protocol.peer import PeerInfo
from flockmq.protocol.principal import Principal
from flockmq.protocol.verdicts import ALLOWED, ASKED, DENIED, UNTOLD

log: Final = logging.getLogger(__name__)

Peer = Callable[[], PeerInfo]
"""Called only if no answer is kept."""
Key = tuple[int, bytes, int, bool]
"""(action, topic, QoS, retain)"""
Judge = Callable[[], bool | None]
Answers = dict[Key, tuple[bool, float]]
"""Allowed or not, and until when that holds."""


class Authorizer:
    """Also the listener of the table of rules. `on_change`: whatever was allowed must be asked again; `on_rules`: these
    rules changed, None: any of them may have; `in_turn`: has a user's rules judged when there is time for it."""

    def __init__(
        self,
        settings: AuthorizationSettings,
        sources: Sequence[Source | AskedRules],
        now_s: Callable[[], float] = SYSTEM.monotonic,
    ) -> None:
        self.on_change: Callable[[], None] = _nobody
        self.on_rules: Callable[[tuple[str, str] | None], None] = _nobody_stands
        self.in_turn: Callable[[bytes, Judge], Awaitable[bool | None]] = _at_once
        self.results: Counter[str] = Counter()
        self.looked_at: int = 0
        """Rules, so far."""
        self.disconnects: Final = settings.deny_action == "disconnect"
        self.revoking_disconnects: Final = settings.revoked_subscriptions == "disconnect"
        self._sources = sources
        self._asks = [source for source in sources if isinstance(source, AskedRules)]
        self._from_asked = list(dropwhile(lambda source: not isinstance(source, AskedRules), sources))
        """The first service, and the sources behind it."""
        self._no_match = settings.no_match
        self._size = settings.cache.max_size
        self._ttl_s = settings.cache.ttl
        self._now_s = now_s
        self._kept: dict[bytes, tuple[Principal, Answers]] = {}
        """By client id, for whom it was when the answers were made."""
        self._asking = Asking()
        self._fresher: asyncio.Task[None] | None = None

    @property
    def kept(self) -> int:
        """Clients of whom answers are kept."""
        return len(self._kept)

    @property
    def waiting(self) -> int:
        return len(self._asking)

    async def start(self) -> None:
        await asyncio.gather(*(source.start() for source in self._asks))
        if self._asks and self._ttl_s:
            self._fresher = asyncio.ensure_future(self._ask_again())

    async def stop(self) -> None:
        if self._fresher is not None:
            self._fresher.cancel()
            await asyncio.gather(self._fresher, return_exceptions=True)
        await self._asking.stop()
        await asyncio.gather(*(source.stop() for source in self._asks))

    def must_check(self, principal: Principal) -> bool:
        """False: this client may do everything, whatever the rules become."""
        if principal.superuser:
            return False
        return bool(self._sources) or principal.rules is not None or self._no_match == "deny"

    def fingerprint(self, client_id: bytes, principal: Principal, peer: Peer) -> bytes | None:
        """Stands for all that decides about this client: if it is the same, so is every answer. None: it may do
        everything. b"": other services decide, which may say anything."""
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
        """The same of a client that isn't here, and has no rules of its own; b"": more must be known of it."""
        principal = Principal(username)
        subject = _subject(client_id, principal, _nowhere)
        if any(some.asks_where for some in self._about(subject)):
            return b""
        return self.fingerprint(client_id, principal, _nowhere) or b""

    def is_denied_by_name(self, client_id: bytes, username: bytes, action: int, topic: bytes, qos: int) -> bool:
        return self.judge(_subject(client_id, Principal(username), _nowhere), action, topic, qos, False) == DENIED

    def _about(self, subject: Subject) -> list[Rules]:
        return [
            rules for source in self._sources if not isinstance(source, AskedRules) for rules in source.about(subject)
        ]

    def check(
        self, client_id: bytes, principal: Principal, peer: Peer, action: int, topic: bytes, qos: int, retain: bool
    ) -> int:
        """DENIED, ALLOWED, or ASKED: then `ask`. `topic`: without `$share/…/` and the like (`mqtt.topics.unwrap`)."""
        if not self.must_check(principal):
            return ALLOWED if principal.superuser or not tells_of_clients(topic) else DENIED
        kept = self._kept.get(client_id)
        if kept is not None and kept[0] is principal and (answer := kept[1].get((action, topic, qos, retain))):
            if answer[1] > self._now_s():
                self.results["kept"] += 1
                return ALLOWED if answer[0] else DENIED
            del kept[1][action, topic, qos, retain]
        decision: bool | None = None
        subject = _subject(client_id, principal, peer)
        if isinstance(principal.rules, Rules):
            decision = self._says(principal.rules, subject, action, topic, qos, retain)
        for source in self._sources:
            if decision is not None:
                break
            if isinstance(source, AskedRules):
                return ASKED
            decision = self._says(source, subject, action, topic, qos, retain)
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
        """Ask other services. `done` is called once, in a later turn: ALLOWED, DENIED, or UNTOLD, if a source doesn't
        answer or `connection` asks too much."""
        subject = _subject(client_id, principal, peer)
        key = (action, topic, qos, retain)
        answers = self._answers(client_id, principal)
        question = partial(self._ask, subject, principal, key, answers, done)
        self._asking.ask(connection, question, partial(self._not_asked, done))

    def judge(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> int:
        """Of a client that is gone, without rules of its own: ALLOWED, DENIED, or ASKED: then `still_may`."""
        for source in self._sources:
            if isinstance(source, AskedRules):
                return ASKED
            decision = source.decide(subject, action, topic, qos, retain)
            if decision is not None:
                return ALLOWED if decision else DENIED
        return ALLOWED if self._is_open() else DENIED

    async def still_may(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool:
        """What was allowed stays allowed while nobody says otherwise."""
        try:
            decision = await self._asked(subject, action, topic, qos, retain)
        except Exception as error:
            self._unanswered(error)
            return True
        return self._is_open() if decision is None else decision

    def gone(self, connection: Hashable) -> None:
        """The connection asks no more. What it asked before is answered."""
        self._asking.gone(connection)

    def _not_asked(self, done: Callable[[int], None]) -> None:
        self.results["busy"] += 1
        done(UNTOLD)

    async def _ask(
        self, subject: Subject, principal: Principal, key: Key, answers: Answers, done: Callable[[int], None]
    ) -> None:
        """`answers` aren't kept any more if the client left meanwhile, or rules changed."""
        try:
            decision = await self._asked(subject, *key)
        except Exception as error:
            self._unanswered(error)
            done(UNTOLD)
            return
        done(self._decided(answers, principal, key, decision))

    async def _asked(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        """The answer of the first source that has one. Sources before the first service were judged already."""
        decision: bool | None = None
        for source in self._from_asked:
            if decision is not None:
                break
            if isinstance(source, AskedRules):
                decision = await source.ask(subject, action, topic, qos, retain)
            else:
                user = (subject.username or subject.clientid).encode()
                decision = await self.in_turn(user, partial(self._says, source, subject, action, topic, qos, retain))
        return decision

    def _says(self, source: Source, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        before = subject.looked_at
        decision = source.decide(subject, action, topic, qos, retain)
        self.looked_at += subject.looked_at - before
        return decision

    def _unanswered(self, error: Exception) -> None:
        if not isinstance(error, Unanswered | Crowded):
            log.error("a source of access rules failed", exc_info=error)
        self.results["unavailable"] += 1

    def _is_open(self, *, has_rules: bool = False) -> bool:
        """Whether an action is allowed that no rule says anything of."""
        return self._no_match == "allow" or (self._no_match is None and not has_rules and not self._sources)

    def _decided(self, answers: Answers, principal: Principal, key: Key, decision: bool | None) -> int:
        if decision is None:
            decision = self._is_open(has_rules=principal.rules is not None) and not tells_of_clients(key[1])
        if self._ttl_s and len(key[1]) <= AUTHORIZATIONS_MAX_TOPIC_BYTES:
            if len(answers) >= self._size:
                del answers[next(iter(answers))]
            answers[key] = (decision, self._now_s() + self._ttl_s)
        self.results["allowed" if decision else "denied"] += 1
        return ALLOWED if decision else DENIED

    def _answers(self, client_id: bytes, principal: Principal) -> Answers:
        """The answers kept for this client, until it leaves, is somebody else, or rules change."""
        if not client_id or not self._ttl_s:
            return {}
        kept = self._kept.get(client_id)
        if kept is None or kept[0] is not principal:
            kept = self._kept[client_id] = (principal, {})
        return kept[1]

    def forget(self, client_id: bytes, principal: Principal) -> None:
        """This client is gone, or is somebody else now. What is kept of another one with its client id stays."""
        kept = self._kept.get(client_id)
        if kept is not None and kept[0] is principal:
            del self._kept[client_id]

    async def _ask_again(self) -> None:
        """How long an answer of another service is kept: for `ttl`; what connections derive from it, for as long
        again."""
        while True:
            await asyncio.sleep(self._ttl_s)
            self.on_change()

    # The table's listener.

    def put(self, key: tuple[str, str], value: bytes, old: bytes | None) -> None:
        self._changed(key)

    def delete(self, key: tuple[str, str], old: bytes) -> None:
        self._changed(key)

    def fresh(self) -> Self:
        """Compiled rules are forgotten, and compiled again from the table."""
        return type(self)(AuthorizationSettings(), ())

    def swap(self, fresh: Self) -> None:
        self._changed(None)

    def _changed(self, key: tuple[str, str] | None) -> None:
        for source in self._sources:
            if isinstance(source, LogRules):
                source.forget(key)
        if key is not None and key[0] == CLIENTID:
            self._kept.pop(key[1].encode(), None)
        else:
            self._kept.clear()
        self.on_change()
        self.on_rules(key)


def _subject(client_id: bytes, principal: Principal, peer: Peer) -> Subject:
    about = peer()
    name = None if about.certificate is None else about.certificate.common_name
    return Subject(client_id.decode(), principal.username.decode(), about.host, name)


def _nowhere() -> PeerInfo:
    return PeerInfo("", 0, "")


async def _at_once(user: bytes, judge: Judge) -> bool | None:
    return judge()


def _nobody() -> None:
    """Nobody is connected yet."""


def _nobody_stands(key: tuple[str, str] | None) -> None:
    """Nor has anybody subscribed."""
