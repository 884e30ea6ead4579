"""What the owners of client ids are told of the connections here; and of whose wills they keep copies.

What always holds: the will of a session that ends with its connection is kept by its client id's owner, too, for the
case that this node dies; what is told of it counts as what waits for its user.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from flockmq.mqtt.message import Will
from flockmq.mqtt.packets import Connect
from flockmq.protocol.channel import Channel
from flockmq.session.client_session import ClientSession
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.client_registry import are_different_users
from flockmq.session_rpc.messages import Opening, WillRow


class Openings:
    """Of the connections of one node."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self.will_of: Callable[[Channel], Will | None] = _as_said
        """The will that a client leaves behind, as it is to be published."""
        self.identifies: Callable[[], bool] = _no
        """Clients are asked who they are."""
        self.rules_of: Callable[[Channel], bytes | None] = _no_rules_hold
        """What stands for the rules that hold for a client, as in `Opening`."""
        self.owners_keep_wills: Callable[[], bool] = _no
        """All nodes know that owners keep the wills of sessions that are here, and whose these are."""
        self._token_bytes = token_bytes
        self._guests: dict[int, Opening] = {}
        """By token, of those whose wills are at the owners of their client ids."""

    def make(self, channel: Channel, connect: Connect, session: LocalSession) -> Opening | None:
        """For a connection that is to be admitted. None: the session starts and ends with it, has no will, and is
        nobody's."""
        is_clean_session = connect.clean_start and not session.expiry_s
        if is_clean_session and not self.owners_keep_wills():
            return None
        if is_clean_session and channel.will is None:
            return self._owned(channel, session)
        will = channel.will = self.will_of(channel)
        return Opening(
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

    def admitted(self, token: int, session: LocalSession, opening: Opening | None) -> None:
        """The session ends with its connection."""
        if opening is not None and opening.will is not None and self.owners_keep_wills():
            self._keep(token, session, msgspec.structs.replace(opening, clean_start=True, expiry_s=0))

    def of(self, channel: Channel, token: int) -> Opening | None:
        """For a connection that is here; of one that came before owners kept wills, too."""
        session = channel.session
        if not isinstance(session, LocalSession) or not self.owners_keep_wills():
            return None
        guest = self._guests.get(token)
        if guest is None and channel.will is not None:
            will = channel.will = self.will_of(channel)
            if will is not None:
                zone, user = session.limits.name, self._user(channel, session)
                guest = Opening(channel.protocol_version, True, 0, 0, 0, zone, self._token_bytes(8), _row(will), user)
                self._keep(token, session, guest)
        return guest or self._owned(channel, session)

    def gone(self, token: int, session: ClientSession) -> Opening | None:
        """The connection is: what was told of it, if its will is at the owner."""
        guest = self._guests.pop(token, None)
        if guest is not None:
            _count(session, guest, -1)
        return guest

    def has_will(self, token: object) -> bool:
        """The owner of this connection's client id has its will, as it is to be published."""
        return token in self._guests

    def are_of_others(self, channel: Channel, session: ClientSession, older: Channel | None) -> bool:
        """The older connection is another user's."""
        if older is None or older.session is None:
            return False
        return are_different_users(self._user(channel, session), self._user(older, older.session))

    def _keep(self, token: int, session: LocalSession, guest: Opening) -> None:
        self._guests[token] = guest
        _count(session, guest, 1)

    def _owned(self, channel: Channel, session: ClientSession) -> Opening | None:
        """Of a session that starts and ends with its connection, and has no will, the owner knows the user."""
        user = self._user(channel, session)
        return None if user is None else Opening(channel.protocol_version, True, 0, 0, 0, "", b"", None, user)

    def _user(self, channel: Channel, session: ClientSession) -> bytes | None:
        """Whose the client id is from now on."""
        return channel.principal.username if session.limits.binds_client_ids(self.identifies()) else None


def _count(session: ClientSession, guest: Opening, sign: int) -> None:
    """As what waits for its user."""
    if isinstance(session, LocalSession) and session.usage is not None and guest.will is not None:
        session.usage.queued(sign * (len(session.client_id) + len(guest.will.packet)))


def _row(will: Will) -> WillRow:
    return WillRow(will.delay_s, will.message.version, will.message.packet, will.authorization)


def _as_said(channel: Channel) -> Will | None:
    return channel.will


def _no() -> bool:
    return False


def _no_rules_hold(channel: Channel) -> bytes | None:
    return None
