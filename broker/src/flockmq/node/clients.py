"""This node's connections by client id: admission, takeover, the end. One connection per client id, cluster-wide.

    CONNECT ─▶ authenticated ─▶ the client id's home (closes an older connection, wherever it is) ─▶ session ─▶ CONNACK

A session that lasts stays on the node of its last connection, and moves when its client comes back elsewhere
(`handover`). Client ids that the broker assigns are like any other [MQTT-3.1.3-7].

What always holds: `by_id` has exactly the connections that hold a token; a lasting session whose client is away holds
the token of its last connection.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from flockmq.home.service import AttachError, Done
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.session.channel import ADMITTING, Channel
from flockmq.session.counters import Counters
from flockmq.session.opening import Will
from flockmq.session.port import ALLOWED, ASKED, PUBLISH
from flockmq.session.principal import Principal
from flockmq.session.session import Session
from flockmq.session.sessions import Sessions

log: Final = logging.getLogger(__name__)

VIOLATIONS_LOGGED_PER_S: Final = 10
OnEvent = Callable[[str, bytes, int, int], None]
"""(kind, client id, reason code, protocol version) of a connection event."""


class Homes(Protocol):
    def attach(self, client_id: bytes, clean: bool, done: Done) -> None: ...
    def detach(self, client_id: bytes, token: int) -> None: ...


class Handovers(Protocol):
    """Sessions on their way between nodes."""

    def give(self, session: Session, token: int, to: str) -> None:
        """Hand a session that is away here to the node that its client is at, then `detach`."""
        ...

    def take(self, client_id: bytes, token: int, clean: bool, then: Callable[[], None]) -> None:
        """Put what came of this client's session in place, if anything did and it doesn't start clean, and go on."""
        ...


class Watcher(Protocol):
    """Who wants to know of every connection."""

    def connected(self, channel: Channel, connect: Connect, session: Session, is_present: bool) -> None:
        """CONNACK is on its way; the session was there before, or not."""
        ...

    def disconnected(self, channel: Channel, session: Session) -> None: ...

    def taken_over(self, client_id: bytes) -> None: ...


class Clients:
    """`flush` has what was put outside a turn written; `must_authorize` says whether a client is to be asked about."""

    def __init__(
        self, me: str, sessions: Sessions, counters: Counters, flush: Callable[[], None], on_event: OnEvent
    ) -> None:
        self.by_id: dict[bytes, Channel] = {}
        self.homes: Homes | None = None
        self.handovers: Handovers | None = None
        self.watcher: Watcher | None = None
        self.must_authorize: Callable[[Principal], bool] = _no_rules
        self._me = me
        self._sessions = sessions
        self._counters = counters
        self._flush = flush
        self._on_event = on_event
        self._violations = 0
        self._violations_since_s = 0.0

    def rename(self, me: str) -> None:
        """This node is another incarnation."""
        self._me = me

    # What a connection asks of its node.

    def authenticated(
        self, channel: Channel, connect: Connect, principal: Principal, extra: Properties | None = None
    ) -> None:
        """The client is who it says, or may be anonymous: attach it at its home."""
        if channel.state != ADMITTING:
            return
        session = channel.session
        assert session is not None
        channel.principal = principal
        channel.must_be_asked_about(self.must_authorize(principal))
        if not session.client_id:
            session.client_id = b"auto-" + secrets.token_hex(10).encode()
        will = channel.will
        verdict = ALLOWED
        if will is not None and channel.must_authorize:
            message = will.message
            decided = partial(self._will_judged, channel, connect, extra)
            verdict = channel.port.authorize(channel, PUBLISH, message.topic, message.qos, message.retain, decided)
        if verdict == ALLOWED:
            self._attach(channel, connect, extra)
        elif verdict != ASKED:
            channel.refuse(Reason.NOT_AUTHORIZED, "the will's topic")

    def _will_judged(self, channel: Channel, connect: Connect, extra: Properties | None, allowed: bool) -> None:
        if channel.state == ADMITTING:
            if allowed:
                self._attach(channel, connect, extra)
            else:
                channel.refuse(Reason.NOT_AUTHORIZED, "the will's topic")
            self._flush()

    def _attach(self, channel: Channel, connect: Connect, extra: Properties | None) -> None:
        session = channel.session
        assert session is not None
        answered = partial(self._answered, channel, session, connect, extra)
        self._home().attach(session.client_id, connect.clean_start, answered)

    def gone(self, channel: Channel, session: Session, will: Will | None) -> None:
        client_id = session.client_id
        token = channel.token
        if isinstance(token, int) and self.by_id.get(client_id) is channel:
            del self.by_id[client_id]
        if channel.admitted_once:
            lasts = self._sessions.leave(session, token, will, time.monotonic())
        else:
            lasts = isinstance(token, int) and self._sessions.keep(client_id, token)
        if isinstance(token, int) and not lasts:
            self._home().detach(client_id, token)
        if channel.admitted_once:
            self._on_event("disconnected", client_id, channel.close_reason, channel.protocol_version)
            if self.watcher is not None:
                self.watcher.disconnected(channel, session)

    def violated(self, channel: Channel, error: PacketError) -> None:
        """One line, and not too many of them: a hostile client must not fill the log."""
        now_s = time.monotonic()
        if now_s - self._violations_since_s >= 1.0:
            if self._violations > VIOLATIONS_LOGGED_PER_S:
                log.warning("%d more protocol violations", self._violations - VIOLATIONS_LOGGED_PER_S)
            self._violations_since_s, self._violations = now_s, 0
        self._violations += 1
        if self._violations <= VIOLATIONS_LOGGED_PER_S:
            name = repr(channel.client_id().decode()) if channel.client_id() else "(before CONNECT)"
            log.warning("client %s from %s: %s; closed with 0x%02X", name, channel.address(), error, error.reason)

    def expired(self, ended: list[tuple[bytes, object]]) -> None:
        """Sessions whose clients stayed away too long."""
        for client_id, token in ended:
            if isinstance(token, int):
                self._home().detach(client_id, token)

    # What homes ask of this node.

    def kick(self, client_id: bytes, token: int, to: str, clean: bool) -> bool:
        """Close this connection; what lasts of its session goes to the node `to`, or, if the newcomer starts clean,
        ends. The home hears of it by `detach`. False: there is neither.
        """
        channel = self.by_id.get(client_id)
        if channel is not None and channel.token == token:
            self._take_over(client_id, channel)
            self._flush()
            if client_id not in self._sessions.away:
                return True
        absence = self._sessions.away.get(client_id)
        if absence is None or absence.token != token:
            return False
        if clean:
            self._sessions.end(absence.session)
        elif to != self._me:
            assert self.handovers is not None
            self.handovers.give(absence.session, token, to)
            return True
        self._home().detach(client_id, token)
        return True

    def tokens(self) -> Iterator[tuple[bytes, int]]:
        for client_id, channel in list(self.by_id.items()):
            if isinstance(channel.token, int):
                yield client_id, channel.token
        for client_id, token in self._sessions.tokens():
            if isinstance(token, int):
                yield client_id, token

    def close(self, client_id: bytes, reason: int) -> bool:
        """End this client's connection, and its session; False if it isn't here."""
        channel = self.by_id.get(client_id)
        if channel is None:
            return False
        if channel.session is not None:
            channel.session.expiry_s = 0
        channel.close(reason)
        self._flush()
        return True

    # Inside.

    def _take_over(self, client_id: bytes, older: Channel) -> None:
        self._counters.takeovers += 1
        if self.watcher is not None:
            self.watcher.taken_over(client_id)
        if older.state == ADMITTING:  # its session is on its way here
            older.refuse(Reason.SERVER_UNAVAILABLE)
        else:
            older.close(Reason.SESSION_TAKEN_OVER)

    def _answered(
        self, channel: Channel, session: Session, connect: Connect, extra: Properties | None, answer: int | AttachError
    ) -> None:
        if isinstance(answer, AttachError):
            log.info("client %r isn't admitted: %s", session.client_id, answer)
            channel.refuse(Reason.SERVER_UNAVAILABLE)  # there is no code for "superseded" in CONNACK
            self._flush()
            return
        client_id = session.client_id
        older = self.by_id.get(client_id)
        if older is not None:  # its home is new and hasn't heard of it yet
            self._take_over(client_id, older)
        if channel.state == ADMITTING:
            self.by_id[client_id] = channel
            channel.token = answer
        assert self.handovers is not None
        opened = partial(self._open, channel, session, connect, extra, answer)
        self.handovers.take(client_id, answer, connect.clean_start, opened)

    def _open(self, channel: Channel, session: Session, connect: Connect, extra: Properties | None, token: int) -> None:
        """What there is of its session is here."""
        if channel.state == ADMITTING:
            self._admitted(channel, connect, token, extra)
        elif channel.token is None and not self._sessions.keep(session.client_id, token):
            self._home().detach(session.client_id, token)
        self._flush()

    def _admitted(self, channel: Channel, connect: Connect, token: int, extra: Properties | None) -> None:
        fresh = channel.session
        assert fresh is not None
        session, present = self._sessions.open(fresh, connect.clean_start)
        self._counters.connects += 1
        channel.admitted(connect, token, session, present, extra)
        self._on_event("connected", session.client_id, Reason.SUCCESS, channel.protocol_version)
        if self.watcher is not None:
            self.watcher.connected(channel, connect, session, present)

    def _home(self) -> Homes:
        assert self.homes is not None, "clients come after the homes are there"
        return self.homes


def _no_rules(principal: Principal) -> bool:
    return False
