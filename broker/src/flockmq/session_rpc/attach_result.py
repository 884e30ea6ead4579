"""The result of an attach: an Admission, or an AttachError with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flockmq.session_rpc import messages


class AttachError(Exception):
    """The client can't have the client id; the text is for the log."""


class OwnerUnreachable(AttachError):
    """No owner answered in time. CONNACK 0x88: the client may try again."""


class OwnerFull(AttachError):
    """Too much waits for Redis at the owner, or the session in Redis can't be read. CONNACK 0x88: the client may try
    again.
    """


class OtherUser(AttachError):
    """Another user has a connection or a session with this client id. CONNACK 0x85 [MQTT-3.1.4-2]."""


class OverQuota(AttachError):
    """The user has reached the quota of sessions or of queued messages. CONNACK 0x97."""


class Superseded(AttachError):
    """A newer connection with the same client id replaced this one: 0x8E."""


class Admission(NamedTuple):
    """The connection has the client id. `is_durable`: its session is durable and runs at its owner. `present`: the
    session existed before. `absent`: neither a session nor a connection had to end. `must_reauthorize`: the owner
    sends nothing before the subscriptions are authorized again.
    """

    token: int
    is_durable: bool
    present: bool
    absent: bool = False
    must_reauthorize: bool = False

    @property
    def begins(self) -> bool:
        """True if the connection created a durable session. It ends again if the client never gets its CONNACK."""
        return self.is_durable and not self.present


Done = Callable[[Admission | AttachError], None]


def admission_of(token: int, flags: int) -> Admission:
    """`flags`: from an answer, as in `messages`."""
    is_durable, present = bool(flags & messages.DURABLE), bool(flags & messages.PRESENT)
    absent, must_reauthorize = bool(flags & messages.ABSENT), bool(flags & messages.UNAUTHORIZED)
    return Admission(token, is_durable, present, absent, must_reauthorize)


def refusal_of(status: int, client_id: bytes) -> AttachError | None:
    """The error for the owner's answer; None: the owner admits the connection."""
    if status == messages.FULL:
        why = "too much waits for Redis there, or the session that Redis has can't be read (then an alarm says so)"
        return OwnerFull(f"the owner of {client_id!r} does not admit it now: {why}")
    if status == messages.OTHER_USER:
        return OtherUser(f"the client id {client_id!r} is another user's")
    if status == messages.OVER_QUOTA:
        return OverQuota(f"the user of {client_id!r} has reached its quota")
    if status == messages.SUPERSEDED:
        return superseded(client_id)
    return None


def superseded(client_id: bytes) -> Superseded:
    return Superseded(f"a newer connection has the client id {client_id!r}")
