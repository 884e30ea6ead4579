"""What a client says of itself when it connects, and what an authenticator makes of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from flockmq.auth.rules import Rules
from flockmq.mqtt.reason import Reason
from flockmq.protocol.peer import PeerInfo
from flockmq.rlog.schema import User


@dataclass(slots=True)
class Attempt:
    """`is_gone`: nobody waits for the answer any more, so no work needs to be spent on it."""

    client_id: bytes
    username: bytes | None
    password: bytes | None = field(repr=False)
    peer: PeerInfo
    is_gone: Callable[[], bool] = lambda: False

    def value(self, name: str) -> str | None:
        """What `${name}` stands for; None: this client has none. Raises ValueError for a password that is no text."""
        certificate = self.peer.certificate
        match name:
            case "clientid":
                return self.client_id.decode()
            case "username":
                return None if self.username is None else self.username.decode()
            case "password":
                return None if self.password is None else _text(self.password)
            case "peerhost":
                return self.peer.host
            case "listener":
                return self.peer.listener
            case "cert_common_name":
                return None if certificate is None else certificate.common_name
            case "cert_subject":
                return None if certificate is None else certificate.subject
        raise KeyError(name)


def _text(password: bytes) -> str:
    """The text exactly as it was said. Raises ValueError, which repeats nothing of it."""
    try:
        return password.decode()
    except UnicodeDecodeError:
        raise ValueError("the password isn't UTF-8 text") from None


ATTEMPT_VALUES = ("clientid", "username", "password", "peerhost", "listener", "cert_common_name", "cert_subject")


@dataclass(frozen=True, slots=True)
class Granted:
    """The client is who it says. `client_id`: the one that it must have. `expires_at_s`: since the epoch; 0: never.
    `user_id` and `user`: the row of the log's users that says so."""

    username: bytes
    is_superuser: bool = False
    rules: Rules | None = None
    expires_at_s: float = 0.0
    attributes: dict[str, str] | None = None
    client_id: bytes | None = None
    user_id: bytes = b""
    user: User | None = None


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The client isn't who it says, and nobody else is asked. `why` is for the log, and holds nothing secret."""

    reason: Reason
    why: str


class Pass(Enum):
    """This link doesn't know the client; another may."""

    UNKNOWN = "unknown"
    UNAVAILABLE = "unavailable"
    """The service that would know couldn't be asked."""
    BUSY = "busy"


Verdict = Granted | LoginRefused | Pass


class Authenticator(Protocol):
    """One link of the chain. It answers at once what it has in memory."""

    def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
