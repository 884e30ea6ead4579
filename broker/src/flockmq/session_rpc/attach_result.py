"""What an attach comes to: an Admission, or an AttachError that says why the client id can't be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flockmq.session_rpc import messages


class AttachError(Exception):
    """Why the client id can't be had; the text is for the log."""


class OwnerUnreachable(AttachError):
    """No owner answered in time: CONNACK 0x88, the client may try again."""


class OwnerFull(AttachError):
    """So much waits at its owner to be committed that no more is taken, or it has a session that can't be read: CONNACK
    0x88, the client may try again."""


class Anothers(AttachError):
    """Another user has a connection or a session of that client id: CONNACK 0x85 [MQTT-3.1.4-2]."""


class OverQuota(AttachError):
    """Its user has as many sessions, or as much waits for them, as one may have: CONNACK 0x97."""


class Superseded(AttachError):
    """A newer connection of the same client id took its place: 0x8E."""


class Admission(NamedTuple):
    """The connection holds the client id. `lasts`: its session runs at its owner; `present`: it was there before;
    `absent`: there was nothing that had to end; `unjudged`: nothing is sent before its subscriptions are judged."""

    token: int
    lasts: bool
    present: bool
    absent: bool = False
    unjudged: bool = False

    @property
    def begins(self) -> bool:
        """Its session lasts, and begins with it: it ends again where the client never hears of it."""
        return self.lasts and not self.present


Done = Callable[[Admission | AttachError], None]


def admission_of(token: int, flags: int) -> Admission:
    """`flags`: those of an answer, as in `messages`."""
    lasts, present = bool(flags & messages.LASTS), bool(flags & messages.PRESENT)
    absent, unjudged = bool(flags & messages.ABSENT), bool(flags & messages.UNJUDGED)
    return Admission(token, lasts, present, absent, unjudged)


def refusal_of(status: int, client_id: bytes) -> AttachError | None:
    """What an owner says; None: it admits the connection."""
    if status == messages.FULL:
        why = "too much waits for Redis there, or the session that Redis has can't be read (then an alarm says so)"
        return OwnerFull(f"the owner of {client_id!r} does not admit it now: {why}")
    if status == messages.ANOTHERS:
        return Anothers(f"the client id {client_id!r} is another user's")
    if status == messages.OVER_QUOTA:
        return OverQuota(f"the user of {client_id!r} has all that one may have")
    if status == messages.SUPERSEDED:
        return superseded(client_id)
    return None


def superseded(client_id: bytes) -> Superseded:
    return Superseded(f"a newer connection has the client id {client_id!r}")
