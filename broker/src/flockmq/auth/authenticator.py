"""The interface of authenticators: a login attempt comes in, a verdict comes out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from flockmq.auth.rules import Rules
from flockmq.default_callbacks import never
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import PeerInfo
from flockmq.rlog.schema import User


@dataclass(slots=True)
class Attempt:
    """The credentials of one CONNECT or re-authentication, and the connection they came over."""

    client_id: bytes
    username: bytes | None
    password: bytes | None = field(repr=False)
    peer: PeerInfo
    is_gone: Callable[[], bool] = never
    """True once the client has disconnected, so authenticators can skip the work."""

    def value(self, name: str) -> str | None:
        """The value of the placeholder `${name}`, or None if this client has none. Raises ValueError if it is a
        password that isn't UTF-8."""
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
    """Raises ValueError, with a message that holds no part of the password."""
    try:
        return password.decode()
    except UnicodeDecodeError:
        raise ValueError("the password isn't UTF-8 text") from None


ATTEMPT_VALUES = ("clientid", "username", "password", "peerhost", "listener", "cert_common_name", "cert_subject")


@dataclass(frozen=True, slots=True)
class Granted:
    """The client is authenticated."""

    username: bytes
    is_superuser: bool = False
    rules: Rules | None = None
    """Access rules of this client alone, from a token or an HTTP answer."""
    expires_at_s: float = 0.0
    """Seconds since the epoch; 0 means never."""
    attributes: dict[str, str] | None = None
    client_id: bytes | None = None
    """The client id that the broker assigns to the client, or None."""
    user_id: bytes = b""
    """The key of `user`."""
    user: User | None = None
    """The user's row in the log that the client was authenticated against."""


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The credentials are wrong. The chain asks no other authenticator. `why` is logged and holds no secret."""

    reason: Reason
    why: str


class Pass(Enum):
    """This authenticator can't decide. The chain asks the next one."""

    UNKNOWN = "unknown"
    """It doesn't know the client."""
    UNAVAILABLE = "unavailable"
    """The service that it must ask doesn't answer."""
    BUSY = "busy"
    """Its queue is full."""


Verdict = Granted | LoginRefused | Pass


class Authenticator(Protocol):
    """One authenticator of the chain. `check` returns the verdict if it is in memory, else a coroutine that finds
    it."""

    def check(self, attempt: Attempt) -> Verdict | Coroutine[None, None, Verdict]: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
