"""Builds the `SessionRequest` that a node sends to the owner of a client id for each connection.

Invariants: the owner also keeps the will of a clean session, in case this node dies. Such a will counts towards its
user's quota of queued bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from flockmq.default_callbacks import ignore, never
from flockmq.mqtt.message import Will
from flockmq.mqtt.packets import Connect
from flockmq.protocol.channel import Channel
from flockmq.session.client_session import ClientSession
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.client_registry import are_different_users
from flockmq.session_rpc.messages import SessionRequest, WillRow


class ConnectionRegistrations:
    """The registrations of the connections of one node."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self.will_of: Callable[[Channel, Will | None], Will | None] = _unchanged
        """Returns the client's will, rewritten as it will be published, or None."""
        self.identifies: Callable[[], bool] = never
        """Whether the node authenticates clients."""
        self.rules_of: Callable[[Channel], bytes | None] = ignore
        """Returns the fingerprint of a client's rules, as in `SessionRequest.rules`."""
        self.owners_keep_wills: Callable[[], bool] = never
        """True once all nodes know that owners keep the wills and the users of clean sessions (cluster version 2)."""
        self._token_bytes = token_bytes
        self._with_will: dict[int, SessionRequest] = {}
        """Clean sessions whose owner keeps their will, by token."""

    def make(self, channel: Channel, connect: Connect, session: LocalSession) -> SessionRequest | None:
        """What a new connection asks the owner for. None for a clean session without a will whose client id isn't bound
        to a user."""
        is_clean_session = connect.clean_start and not session.expiry_s
        if is_clean_session and not self.owners_keep_wills():
            return None
        if is_clean_session and channel.will is None:
            return self._owned(channel, session)
        if channel.will is not None:
            channel.will = self.will_of(channel, channel.will)
        will = channel.will
        return SessionRequest(
            channel.protocol_version,
            connect.clean_start,
            session.expiry_s,
            session.window,
            session.max_packet_bytes,
            session.limits.name,
            self._token_bytes(8),
            None if will is None else _row(will),
            self._user(channel, session),
            self.rules_of(channel) if not is_clean_session and self.owners_keep_wills() else None,
        )

    def of_nobody(self) -> SessionRequest | None:
        """What an operator asks for who ends a client's session: the client isn't back by that."""
        if not self.owners_keep_wills():
            return None
        return SessionRequest(5, True, 0, 0, 0, "", self._token_bytes(8))

    def admitted(self, token: int, session: LocalSession, request: SessionRequest | None) -> None:
        """The owner admitted a clean session. Remember its will if the owner has it."""
        if request is not None and request.will is not None and self.owners_keep_wills():
            self._keep(token, session, msgspec.structs.replace(request, clean_start=True, expiry_s=0))

    def of(self, channel: Channel, token: int) -> SessionRequest | None:
        """The `SessionRequest` of an existing clean session, for a new owner. A session that began before owners kept
        wills gets one here."""
        session = channel.session
        if not isinstance(session, LocalSession) or not self.owners_keep_wills():
            return None
        request = self._with_will.get(token)
        if request is None and channel.will is not None:
            will = channel.will = self.will_of(channel, channel.will)
            if will is not None:
                zone, user = session.limits.name, self._user(channel, session)
                request = SessionRequest(
                    channel.protocol_version, True, 0, 0, 0, zone, self._token_bytes(8), _row(will), user
                )
                self._keep(token, session, request)
        return request or self._owned(channel, session)

    def gone(self, token: int, session: ClientSession) -> SessionRequest | None:
        """The connection has ended. Returns its `SessionRequest` if the owner has its will."""
        request = self._with_will.pop(token, None)
        if request is not None:
            _count(session, request, -1)
        return request

    def has_will(self, token: object) -> bool:
        """Whether the owner keeps this connection's will."""
        return token in self._with_will

    def is_other_users(self, channel: Channel, session: ClientSession, older: Channel) -> bool:
        """Whether the older connection belongs to another user."""
        if older.session is None:
            return False
        return are_different_users(self._user(channel, session), self._user(older, older.session))

    def _keep(self, token: int, session: LocalSession, request: SessionRequest) -> None:
        self._with_will[token] = request
        _count(session, request, 1)

    def _owned(self, channel: Channel, session: ClientSession) -> SessionRequest | None:
        """The `SessionRequest` of a clean session without a will: it only tells the owner the user, if client ids are
        bound."""
        user = self._user(channel, session)
        return None if user is None else SessionRequest(channel.protocol_version, True, 0, 0, 0, "", b"", None, user)

    def _user(self, channel: Channel, session: ClientSession) -> bytes | None:
        """The user that the client id now belongs to; None if client ids aren't bound to users."""
        return channel.principal.username if session.limits.binds_client_ids(self.identifies()) else None


def _count(session: ClientSession, request: SessionRequest, sign: int) -> None:
    """Add the will to the queued bytes of its user, or subtract it."""
    if isinstance(session, LocalSession) and session.usage is not None and request.will is not None:
        session.usage.queued(sign * (len(session.client_id) + len(request.will.packet)))


def _row(will: Will) -> WillRow:
    return WillRow(will.delay_s, will.message.version, will.message.packet, will.authorization)


def _unchanged(channel: Channel, will: Will | None) -> Will | None:
    return will
