"""The authentication chain: asks its authenticators in order; the first that knows the client decides.

Invariants:
- `done` is called once, unless the client disconnects or the node stops first.
- If the chain has authenticators, a client that sends a user name or password is never accepted as anonymous. Nor is
  any client while one of the authenticators is busy or unavailable.
- A refused client isn't told which part of its credentials was wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final, NamedTuple

from flockmq import tasks
from flockmq.auth.authenticator import Attempt, Authenticator, Granted, LoginRefused, Pass, Verdict
from flockmq.auth.built_in import ScramExchange
from flockmq.auth.failed_logins import Begun, FailedLogins
from flockmq.bounds import REFUSALS_LOGGED_PER_S
from flockmq.clock import SYSTEM, Clock
from flockmq.config.auth_settings import FailedLoginsSettings as Settings
from flockmq.logs import Sparing
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import PeerInfo, Principal

log: Final = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """The result of a CONNECT or a re-authentication. `principal` is set only if `reason` is SUCCESS."""

    reason: Reason
    principal: Principal | None = None
    client_id: bytes | None = None
    """The client id that the broker assigns to the client, or None."""
    data: bytes = b""
    """The Authentication Data property of the answer."""


Done = Callable[[Outcome], None]


class Chain:
    """If `allow_anonymous` is None, anonymous clients may connect from this machine only, not through a load balancer,
    and only if the chain is empty."""

    def __init__(
        self,
        links: Sequence[Authenticator],
        allow_anonymous: bool | None,
        scram: Callable[[Attempt], ScramExchange] | None = None,
        clock: Clock = SYSTEM,
        slow_down: Settings = Settings(),  # noqa: B008  # it is frozen
    ) -> None:
        self.identifies: Final = bool(links) or scram is not None
        """True if the chain has any authenticator."""
        self.failed_logins: Final = FailedLogins(slow_down, clock.monotonic)
        self.results: Counter[str] = Counter()
        self._refusals = Sparing(log, REFUSALS_LOGGED_PER_S, clock.monotonic)
        self._links = links
        self._allow_anonymous = allow_anonymous
        self._scram = scram
        self._now_s = clock.wall
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def waiting(self) -> int:
        """How many clients wait for their verdict."""
        return len(self._tasks)

    async def start(self) -> None:
        await asyncio.gather(*(link.start() for link in self._links))

    async def stop(self) -> None:
        await tasks.end(*self._tasks)
        await asyncio.gather(*(link.stop() for link in self._links))

    def exchange(self, method: bytes, attempt: Attempt) -> ScramExchange | None:
        """Begin an enhanced authentication; None if the method isn't offered [MQTT-4.12.0-1]."""
        return self._scram(attempt) if self._scram is not None and method == ScramExchange.method else None

    def feed(self, exchange: ScramExchange, data: bytes) -> bytes | Outcome:
        """Pass on the client's next message. Returns the challenge, or the outcome."""
        if exchange.is_challenged and not self.failed_logins.may_try(exchange.attempt):
            return self._slowed(exchange.attempt)
        answer = exchange.feed(data)
        return answer if isinstance(answer, bytes) else self._outcome(exchange.attempt, *answer)

    def authenticate(self, attempt: Attempt, done: Done) -> None:
        """Calls `done` before this returns if all that decides is in memory, else later."""
        if not self.failed_logins.may_try(attempt):
            done(self._slowed(attempt))
            return
        passes: list[Pass] = []
        for place, link in enumerate(self._links):
            answer = _checked(link, attempt)
            if isinstance(answer, Coroutine):
                task = asyncio.ensure_future(self._go_on(attempt, place, answer, passes, done))
                self._tasks[task] = None
                task.add_done_callback(partial(self._ended, self.failed_logins.begun(attempt)))
                return
            if not isinstance(answer, Pass):
                done(self._outcome(attempt, answer))
                return
            passes.append(answer)
        done(self._unknown(attempt, passes))

    async def _go_on(
        self, attempt: Attempt, place: int, asked: Coroutine[None, None, Verdict], passes: list[Pass], done: Done
    ) -> None:
        answer: Verdict = await _guarded(asked)
        while isinstance(answer, Pass):
            passes.append(answer)
            place += 1
            if place == len(self._links):
                done(self._unknown(attempt, passes))
                return
            checked = _checked(self._links[place], attempt)
            answer = await _guarded(checked) if isinstance(checked, Coroutine) else checked
        done(self._outcome(attempt, answer))

    def _ended(self, begun: Begun, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)
        self.failed_logins.ended(begun)

    def _outcome(self, attempt: Attempt, verdict: Verdict, data: bytes = b"") -> Outcome:
        """Convert a verdict, and count it."""
        if isinstance(verdict, Pass):
            return self._unknown(attempt, [verdict])
        if isinstance(verdict, Granted) and 0 < verdict.expires_at_s <= self._now_s():
            verdict = LoginRefused(Reason.BAD_USER_NAME_OR_PASSWORD, "what it was granted ran out")
        if isinstance(verdict, LoginRefused):
            return self._refused(attempt, verdict.reason, verdict.why)
        self.results["success"] += 1
        self.failed_logins.succeeded(attempt, verdict.username)
        principal = Principal(
            verdict.username,
            superuser=verdict.is_superuser,
            rules=verdict.rules,
            expires_at_s=verdict.expires_at_s,
            attributes=verdict.attributes,
            user_id=verdict.user_id,
            user=verdict.user,
        )
        return Outcome(Reason.SUCCESS, principal, verdict.client_id, data)

    def _unknown(self, attempt: Attempt, passes: Sequence[Pass]) -> Outcome:
        """The outcome if no authenticator decided."""
        if Pass.BUSY in passes:
            self.results["busy"] += 1
            return Outcome(Reason.SERVER_BUSY)
        if Pass.UNAVAILABLE in passes:
            self.results["unavailable"] += 1
            return Outcome(Reason.SERVER_UNAVAILABLE)
        is_nameless = attempt.username is None and attempt.password is None
        may_be_anonymous = self._allow_anonymous
        if may_be_anonymous is None:
            may_be_anonymous = not self.identifies and is_local(attempt.peer)
        if may_be_anonymous and (is_nameless or not self.identifies):
            self.results["anonymous"] += 1
            return Outcome(Reason.SUCCESS, Principal(attempt.username or b""))
        reason = Reason.NOT_AUTHORIZED if is_nameless else Reason.BAD_USER_NAME_OR_PASSWORD
        return self._refused(attempt, reason, "it is unknown")

    def _refused(self, attempt: Attempt, reason: Reason, why: str) -> Outcome:
        self.results["denied"] += 1
        self._refusals.info("client %r from %s is refused: %s", *_named(attempt), why)
        if reason == Reason.BAD_USER_NAME_OR_PASSWORD:
            self.failed_logins.failed(attempt)
        return Outcome(reason)

    def _slowed(self, attempt: Attempt) -> Outcome:
        """Refuse without checking the credentials, even if they may be right."""
        self.results["slowed"] += 1
        self._refusals.info("client %r from %s must wait: too many of its logins failed", *_named(attempt))
        return Outcome(Reason.CONNECTION_RATE_EXCEEDED)


def _named(attempt: Attempt) -> tuple[str | None, str]:
    return attempt.value("clientid"), attempt.peer.host


def _checked(link: Authenticator, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]:
    """Call an authenticator. If it raises, it counts as unavailable."""
    try:
        return link.check(attempt)
    except Exception:
        log.exception("a link of the authentication chain failed")
        return Pass.UNAVAILABLE


async def _guarded(asked: Coroutine[None, None, Verdict]) -> Verdict:
    """Like `_checked`, for a coroutine."""
    try:
        return await asked
    except Exception:
        log.exception("a link of the authentication chain failed")
        return Pass.UNAVAILABLE


def is_local(peer: PeerInfo) -> bool:
    """Whether it came by a loopback address, or a Unix socket. What a load balancer calls so is its own machine."""
    is_loopback = peer.host.startswith(("127.", "::ffff:127.")) or peer.host in ("", "::1")
    return is_loopback and not peer.is_balanced
