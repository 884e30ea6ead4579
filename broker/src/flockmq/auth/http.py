"""Authentication by an HTTP service (mechanism `password_based`, backend `http`)."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from flockmq.auth.addresses import network
from flockmq.auth.authenticator import ATTEMPT_VALUES, Attempt, Granted, LoginRefused, Pass, Verdict
from flockmq.auth.http_service import HttpService, ServiceAnswer, Unanswered
from flockmq.auth.rules import claimed
from flockmq.auth.service_turns import Overloaded
from flockmq.bounds import EXPIRES_MAX_S
from flockmq.clock import Clock
from flockmq.config.auth_settings import HttpSettings
from flockmq.mqtt.reason import Reason

log: Final = logging.getLogger(__name__)


class HttpAuthenticator:
    def __init__(self, settings: HttpSettings, where: str, clock: Clock) -> None:
        self._service = HttpService(settings, ATTEMPT_VALUES, where, clock)

    async def start(self) -> None:
        await self._service.start()

    async def stop(self) -> None:
        await self._service.stop()

    async def check(self, attempt: Attempt) -> Verdict:
        try:
            answer = await self._service.ask(attempt.value, network(attempt.peer.host))
        except Overloaded:
            return Pass.BUSY
        except Unanswered:
            return Pass.UNAVAILABLE
        return self._verdict(attempt, answer)

    def _verdict(self, attempt: Attempt, answer: ServiceAnswer) -> Verdict:
        match answer.result:
            case "allow":
                try:
                    rules = None if answer.acl is None else claimed(answer.acl)
                except (ValueError, msgspec.ValidationError) as error:
                    log.warning("client %r has an acl that can't be read: %s", attempt.value("clientid"), error)
                    return LoginRefused(Reason.NOT_AUTHORIZED, "the service's acl can't be read")
                if answer.expire_at is not None and not 0 < answer.expire_at < EXPIRES_MAX_S:
                    log.warning(
                        "client %r has an expire_at that is no time: %r; say it in seconds since the epoch",
                        attempt.value("clientid"),
                        answer.expire_at,
                    )
                    return LoginRefused(Reason.NOT_AUTHORIZED, "the service's expire_at is no time")
                return Granted(
                    attempt.username or b"",
                    is_superuser=answer.is_superuser,
                    rules=rules,
                    expires_at_s=answer.expire_at or 0.0,
                    attributes=answer.client_attrs or None,
                )
            case "deny":
                return LoginRefused(Reason.BAD_USER_NAME_OR_PASSWORD, "the service denies it")
            case "ignore":
                return Pass.UNKNOWN
        log.warning("an answer's result is none of allow, deny, ignore")
        return Pass.UNAVAILABLE
