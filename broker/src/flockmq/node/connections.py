"""This node's connections by client id: admission, session takeover, disconnect. There is one per client id
cluster-wide.

    CONNECT ─▶ authenticated ─▶ attach at the owner (which closes an older connection on any node) ─▶ CONNACK

A clean session runs here. A durable session runs at its owner; here is only its session proxy (`remote_sessions`).
Client ids that the broker assigns are treated like others [MQTT-3.1.3-7].

Invariants: `by_id` has exactly the connections that hold a token from their owner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flockmq.bounds import REFUSALS_LOGGED_PER_S
from flockmq.clock import Clock
from flockmq.default_callbacks import ignore, never
from flockmq.logs import Sparing
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish, Will
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_unpublishable
from flockmq.node.connection_registrations import ConnectionRegistrations
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.sys_topics import SysTopics
from flockmq.protocol.channel import ADMITTING, CONNECTED, Channel
from flockmq.protocol.clean_session_end import CleanSessionEnd
from flockmq.protocol.client import ALLOWED, ANONYMOUS, ASKED, PUBLISH, UNDECIDED, Principal
from flockmq.publishing.delayed import check_publishable
from flockmq.quotas import Usage
from flockmq.rlog.retained_order import author_of
from flockmq.session.client_session import ClientSession
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.clean_session_wills import will_origin
from flockmq.session_rpc.client import SessionRpcClient
from flockmq.session_rpc.messages import Admission, AttachError, OtherUser, OverQuota, SessionRequest, nonce_of
from flockmq.session_rpc.ports import Registration
from flockmq.session_rpc.remote_sessions import RemoteSessions
from flockmq.telemetry.counters import Counters
from flockmq.telemetry.metrics import Reasons

log: Final = logging.getLogger(__name__)

OnEvent = Callable[[str, bytes, Channel], None]
"""(kind, client id, connection): it is `connected`, `disconnected`, or `taken_over` by a newer one."""


class Connections:
    """`flush` makes the reactor write queued output. `must_authorize` tells whether a client is subject to rules."""

    def __init__(
        self,
        sessions: CleanSessionEnd,
        remote_sessions: RemoteSessions,
        counters: Counters,
        flush: Callable[[], None],
        plugin_hooks: PluginHooks,
        sys_topics: SysTopics,
        on_event: OnEvent,
        clock: Clock,
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self.by_id: dict[bytes, Channel] = {}
        self.attaching: set[Channel] = set()
        """Connections whose attach isn't answered yet."""
        self.owners: SessionRpcClient
        self.on_connected: Callable[[Channel], None] = ignore
        """Called when CONNACK was queued."""
        self.ends = Reasons("disconnects", "before_connack")
        self.must_authorize: Callable[[Principal], bool] = never
        self.refuses: Callable[[bytes], bool] = is_unpublishable
        """Whether no client may publish to this topic, not even its will."""
        self.authorization: Callable[[Channel, Publish], bytes] = _no_authorization
        """Returns the authorization to store with a will (`Will.authorization`)."""
        self.usage: Callable[[bytes], Usage | None] = ignore
        """Returns the quota usage of a user."""
        self.reauthorize: Callable[[Channel], None] = ignore
        """Authorizes the client's subscriptions again under the current rules."""
        self.registrations = ConnectionRegistrations(token_bytes)
        self.hold_s: float = 0.0
        """How long owners hold back the wills of evicted clients; 0.0 means that they publish them at once."""
        self._sessions = sessions
        self._remote_sessions = remote_sessions
        self._counters = counters
        self._flush = flush
        self._plugin_hooks = plugin_hooks
        self._sys_topics = sys_topics
        self._on_event = on_event
        self._clock = clock
        self._token_bytes = token_bytes
        self._violations = Sparing(log, REFUSALS_LOGGED_PER_S, clock.monotonic)

    # Called by connections.

    def authenticated(
        self, channel: Channel, connect: Connect, principal: Principal, extra: Properties | None = None
    ) -> None:
        """The client is authenticated, or accepted as anonymous. Authorize its will, and attach it at its owner."""
        if channel.state != ADMITTING:
            return
        session = channel.session
        assert isinstance(session, LocalSession)
        must_authorize = self.must_authorize(principal)
        channel.principal = ANONYMOUS if principal.is_nobody() and not must_authorize else principal
        channel.set_must_authorize(must_authorize)
        if not session.client_id:
            session.client_id = b"auto-" + self._token_bytes(10).hex().encode()
        session.usage = self.usage(principal.username)
        will = channel.will
        if will is not None:
            if not self._may_be_published(channel, will):
                return
            will.authorization = self.authorization(channel, will.message)
        verdict = ALLOWED
        if will is not None and channel.must_authorize:
            message = will.message
            decided = partial(self._will_authorized, channel, connect, extra)
            verdict = channel.authorize(PUBLISH, message.topic, message.qos, message.retain, decided)
        if verdict == ALLOWED:
            self._attach(channel, connect, extra)
        elif verdict != ASKED:
            channel.refuse(Reason.NOT_AUTHORIZED, "the will's topic")

    def _may_be_published(self, channel: Channel, will: Will) -> bool:
        """Check the will's topic. If it is invalid, refuse the client with 0x90 [section 3.2.2.2], or before MQTT 5.0
        with "not authorized", which is closest."""
        try:
            check_publishable(will.message.topic, self._clock.wall(), self.refuses)
        except ValueError as error:
            reason = Reason.TOPIC_NAME_INVALID if channel.protocol_version == 5 else Reason.NOT_AUTHORIZED
            channel.refuse(reason, f"the will's topic: {error}")
            self._flush()
            return False
        return True

    def _will_authorized(self, channel: Channel, connect: Connect, extra: Properties | None, verdict: int) -> None:
        if channel.state == ADMITTING:
            if verdict == ALLOWED:
                self._attach(channel, connect, extra)
            elif verdict == UNDECIDED:
                channel.refuse(Reason.SERVER_UNAVAILABLE, "nobody can say whether it may have its will")
            else:
                channel.refuse(Reason.NOT_AUTHORIZED, "the will's topic")
            self._flush()

    def _attach(self, channel: Channel, connect: Connect, extra: Properties | None) -> None:
        session = channel.session
        assert isinstance(session, LocalSession)
        older = self.by_id.get(session.client_id)
        # A new owner may not know the older connection yet, so check its user here too.
        if older is not None and self.registrations.is_other_users(channel, session, older):
            channel.refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID)
            return
        if channel.will is not None and not session.expiry_s and not _may_keep(session, channel.will):
            channel.refuse(Reason.QUOTA_EXCEEDED, "its user has no room for its will")
            self._flush()
            return
        request = self.registrations.make(channel, connect, session)
        answered = partial(self._answered, channel, session, connect, request, extra)
        self.attaching.add(channel)
        self.owners.attach(session.client_id, request, answered)

    def gone(self, channel: Channel, session: ClientSession, will: Will | None) -> None:
        client_id = session.client_id
        token = channel.token
        if isinstance(token, int):
            if self.by_id.get(client_id) is channel:
                del self.by_id[client_id]
            hold_s = 0.0 if will is None or channel.close_reason != Reason.USE_ANOTHER_SERVER else self.hold_s
            if session.is_remote():
                nonce = nonce_of(self._remote_sessions.request(token))
                self._remote_sessions.remove(token)
                expiry_s = session.expiry_s if channel.admitted_once else -1
                if hold_s:
                    self.owners.evict(client_id, token, expiry_s, nonce, hold_s, None)
                else:
                    self.owners.detach(client_id, token, expiry_s, with_will=will is not None, nonce=nonce)
            else:
                request = self.registrations.gone(token, session)
                if request is not None and hold_s:
                    self.owners.evict(client_id, token, -1, request.nonce, hold_s, request)
                    will = None
                elif request is not None:
                    if will is not None:
                        will.message.origin = will_origin(request.nonce)
                    self.owners.detach(client_id, token, 0 if channel.admitted_once else -1, nonce=request.nonce)
                else:
                    self.owners.detach(client_id, token)
        if channel.admitted_once:
            if isinstance(session, LocalSession):
                if will is not None and isinstance(token, int):
                    will.message.author = author_of(client_id, token, is_will=True)
                self._sessions.leave(session, will)
            self._on_event("disconnected", client_id, channel)
            self.ends.note(channel.close_reason)
            self._sys_topics.disconnected(channel)
            self._plugin_hooks.disconnected(channel)

    def violated(self, channel: Channel, error: PacketError) -> None:
        """Log a protocol error. The rate is limited, so that a hostile client can't fill the log file."""
        address, client_id = channel.address(), channel.client_id().decode()
        if client_id:
            text = "client %r from %s: %s; closed with 0x%02X"
            self._violations.warning(text, client_id, address, error, error.reason)
        else:
            self._violations.warning("before CONNECT, from %s: %s; closed with 0x%02X", address, error, error.reason)

    # Called by owners and by the node.

    def kick(self, client_id: bytes, token: int) -> bool:
        channel = self._holder(client_id, token)
        if channel is None:
            return False
        self._take_over(client_id, channel)
        self._flush()
        return True

    def overflow(self, client_id: bytes, token: int) -> None:
        channel = self._holder(client_id, token)
        if channel is not None:
            channel.overflow()
            self._flush()

    def connections(self) -> Iterator[Registration]:
        for client_id, channel in list(self.by_id.items()):
            if isinstance(channel.token, int):
                request = self._remote_sessions.request(channel.token) or self.registrations.of(channel, channel.token)
                yield Registration(client_id, channel.token, request)

    def has_will_at_owner(self, client_id: bytes) -> bool:
        """Whether the owner publishes this client's will if this node is purged."""
        channel = self.by_id.get(client_id)
        if channel is None:
            return False
        session = channel.session
        return self.registrations.has_will(channel.token) or (
            session is not None and session.is_remote() and channel.will is not None
        )

    def clean_session_of(self, client_id: bytes) -> LocalSession | None:
        """The clean session of a client that is connected here."""
        channel = self.by_id.get(client_id)
        session = None if channel is None else channel.session
        return session if isinstance(session, LocalSession) else None

    def holds(self, client_id: bytes, token: int) -> bool:
        channel = self.by_id.get(client_id)
        return channel is not None and channel.token == token

    def close(self, client_id: bytes, reason: int, *, ends_session: bool = True) -> bool:
        """Disconnect this client. Returns False if it isn't connected here."""
        channel = self.by_id.get(client_id)
        if channel is None:
            return False
        if channel.session is not None and ends_session:
            channel.session.expiry_s = 0
        channel.close(reason)
        self._flush()
        return True

    def send_away(self, client_id: bytes, token: int) -> bool:
        """Disconnect on behalf of the REST API. Returns False if the connection has already ended."""
        channel = self._holder(client_id, token)
        if channel is None or channel.state != CONNECTED:
            return False
        log.info("client %r is sent away by the management", client_id.decode())
        channel.close(Reason.ADMINISTRATIVE_ACTION)
        self._flush()
        return True

    # Inside.

    def _holder(self, client_id: bytes, token: int) -> Channel | None:
        channel = self.by_id.get(client_id)
        return channel if channel is not None and channel.token == token else None

    def _take_over(self, client_id: bytes, older: Channel) -> None:
        self._counters.takeovers += 1
        self._on_event("taken_over", client_id, older)
        self._plugin_hooks.taken_over(client_id)
        if older.state == ADMITTING:  # its session proxy isn't complete yet
            older.refuse(Reason.SERVER_UNAVAILABLE)
        else:
            older.close(Reason.SESSION_TAKEN_OVER)

    def _answered(
        self,
        channel: Channel,
        session: LocalSession,
        connect: Connect,
        request: SessionRequest | None,
        extra: Properties | None,
        answer: Admission | AttachError,
    ) -> None:
        self.attaching.discard(channel)
        if isinstance(answer, AttachError):
            log.info("client %r isn't admitted: %s", session.client_id, answer)
            channel.refuse(_reason_of(answer))
        elif channel.state != ADMITTING:
            expiry_s = 0 if answer.begins else -1  # It left before CONNACK: the session stays as it was.
            nonce = nonce_of(request)
            self.owners.detach(session.client_id, answer.token, expiry_s, with_will=False, nonce=nonce)
        else:
            older = self.by_id.get(session.client_id)
            if older is not None:  # the owner is new and doesn't know the older connection yet
                self._take_over(session.client_id, older)
            self.by_id[session.client_id] = channel
            channel.token = answer.token
            self._admitted(channel, session, connect, request, extra, answer)
        self._flush()

    def _admitted(
        self,
        channel: Channel,
        made: LocalSession,
        connect: Connect,
        request: SessionRequest | None,
        extra: Properties | None,
        admission: Admission,
    ) -> None:
        session: ClientSession = made
        if admission.is_durable:
            assert request is not None
            session = self._remote_sessions.add(channel, made, admission.token, request, admission.must_reauthorize)
        else:
            self.registrations.admitted(admission.token, made, request)
        channel.admitted(connect, admission.token, session, admission.present, extra)
        if not channel.admitted_once:
            return  # Its CONNACK would be too large for it: it was refused.
        self._counters.connects += 1
        if admission.begins:
            self.owners.report(session.client_id, admission.token, b"")
        self._on_event("connected", session.client_id, channel)
        self._sys_topics.connected(channel, connect, session)
        self._plugin_hooks.connected(channel, session, admission.present)
        self.on_connected(channel)
        if request is None or not admission.is_durable or not self.registrations.owners_keep_wills():
            return
        # The owner waits for that, or rules changed since the attach was sent.
        if admission.must_reauthorize or request.rules != self.registrations.rules_of(channel):
            self.reauthorize(channel)


def _reason_of(error: AttachError) -> int:
    """The CONNACK reason code. None fits an attach that a newer one superseded, so that one gets SERVER_UNAVAILABLE."""
    if isinstance(error, OtherUser):
        return Reason.CLIENT_IDENTIFIER_NOT_VALID
    return Reason.QUOTA_EXCEEDED if isinstance(error, OverQuota) else Reason.SERVER_UNAVAILABLE


def _may_keep(session: LocalSession, will: Will) -> bool:
    """Whether the user's quota has room for the will of this clean session."""
    usage = session.usage
    return usage is None or usage.may_queue(len(session.client_id) + len(will.message.packet), is_away=False)


def _no_authorization(channel: Channel, message: Publish) -> bytes:
    return b""
