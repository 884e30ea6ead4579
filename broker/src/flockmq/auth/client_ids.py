"""Which client ids a client may use: those that match a template, in which `*` matches any text. No I/O.

    clientid = "${username}-*"

Invariants: only a `*` of the template matches any text; one in the client's own values doesn't. A client without a
value that the template names is refused.
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
    """Raises ValueError for a template that can't be used."""

    def __init__(self, text: str) -> None:
        self._parts = [Template(part, CLIENT_ID_VALUES) for part in text.split("*")]
        if len(self._parts) == 1 and not self._parts[0].names:
            raise ValueError(f"{text!r} would be one client's alone; name what differs, as in ${{username}}-*")

    def checked(self, attempt: Attempt, verdict: Verdict) -> Verdict:
        """Refuse a client whose client id doesn't match. Assign one that matches to a client that sent none."""
        if not isinstance(verdict, Granted):
            return verdict
        parts = self._rendered(attempt, verdict)
        if parts is not None and not attempt.client_id:
            return replace(verdict, client_id=secrets.token_hex(RANDOM_BYTES).join(parts).encode())
        if parts is not None and fits(parts, attempt.client_id.decode()):
            return verdict
        return LoginRefused(Reason.CLIENT_IDENTIFIER_NOT_VALID, "its client id isn't one that it may have")

    def _rendered(self, attempt: Attempt, granted: Granted) -> list[str] | None:
        """The texts between the `*`; None if the client lacks a value. The user name is that of the verdict."""

        def value(name: str) -> str | None:
            return granted.username.decode() if name == "username" else attempt.value(name)

        if not all(value(name) for part in self._parts for name in part.names):
            return None
        return [part.render(value) for part in self._parts]


class BoundToClientIds:
    """An authenticator that accepts a client of another authenticator only if its client id matches."""

    def __init__(self, link: Authenticator, client_ids: ClientIds) -> None:
        self._link = link
        self._client_ids = client_ids
        self.start = link.start
        self.stop = link.stop

    def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]:
        answer = self._link.check(attempt)
        if isinstance(answer, Coroutine):
            return self._awaited(attempt, answer)
        return self._client_ids.checked(attempt, answer)

    async def _awaited(self, attempt: Attempt, asked: Coroutine[None, None, Verdict]) -> Verdict:
        return self._client_ids.checked(attempt, await asked)


def fits(parts: list[str], text: str) -> bool:
    """Whether `text` is these parts in order, with any text between them."""
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
