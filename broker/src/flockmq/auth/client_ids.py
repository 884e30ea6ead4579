"""Which client ids a client may have, by who it is: a template, in which `*` stands for any letters. Pure.

    clientid = "${username}-*"

What always holds: only the template's `*` stands for any letters, never one in a client's own text. A client that lacks
what the template names is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Coroutine
from dataclasses import replace
from typing import Final

from flockmq.auth.authenticator import Attempt, Authenticator, Granted, LoginRefused, Verdict
from flockmq.auth.template import Template
from flockmq.mqtt.reason import Reason

CLIENT_ID_VALUES: Final = ("username", "peerhost", "listener", "cert_common_name", "cert_subject")
RANDOM_BYTES: Final = 10


class ClientIds:
    """Raises ValueError."""

    def __init__(self, text: str) -> None:
        self._parts = [Template(part, CLIENT_ID_VALUES) for part in text.split("*")]
        if len(self._parts) == 1 and not self._parts[0].names:
            raise ValueError(f"{text!r} would be one client's alone; name what differs, as in ${{username}}-*")

    def judged(self, attempt: Attempt, verdict: Verdict) -> Verdict:
        """Refuses a client with another's client id. A client that gives none gets one that it may have."""
        if not isinstance(verdict, Granted):
            return verdict
        parts = self._rendered(attempt, verdict)
        if parts is not None and not attempt.client_id:
            return replace(verdict, client_id=secrets.token_hex(RANDOM_BYTES).join(parts).encode())
        if parts is not None and fits(parts, attempt.client_id.decode()):
            return verdict
        return LoginRefused(Reason.CLIENT_IDENTIFIER_NOT_VALID, "its client id isn't one that it may have")

    def _rendered(self, attempt: Attempt, granted: Granted) -> list[str] | None:
        """None: the client lacks something. Its name is the one that was found."""

        def value(name: str) -> str | None:
            return granted.username.decode() if name == "username" else attempt.value(name)

        if not all(value(name) for part in self._parts for name in part.names):
            return None
        return [part.render(value) for part in self._parts]


class BoundToClientIds:
    """A link of the chain that lets its clients in by their own client ids only."""

    def __init__(self, link: Authenticator, client_ids: ClientIds) -> None:
        self._link = link
        self._client_ids = client_ids
        self.start = link.start
        self.stop = link.stop

    def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]:
        answer = self._link.check(attempt)
        if isinstance(answer, Coroutine):
            return self._awaited(attempt, answer)
        return self._client_ids.judged(attempt, answer)

    async def _awaited(self, attempt: Attempt, asked: Coroutine[None, None, Verdict]) -> Verdict:
        return self._client_ids.judged(attempt, await asked)


def fits(parts: list[str], text: str) -> bool:
    """Whether `text` has the parts in their order, with any letters between them."""
    first, *others = parts
    if not others:
        return text == first
    last = others.pop()
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for part in others:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
