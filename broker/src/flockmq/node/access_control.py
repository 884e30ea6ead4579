"""Applies authentication, authorization and bans to the clients of a node.

    CONNECT ─▶ bans ─▶ plugins ─▶ chain, or AUTH packets ─▶ bans of the authenticated user ─▶ clients.authenticated

Invariants:
- A refused client gets the reason code of the specification.
- A new ban also disconnects connected clients.
- A client whose login has expired is disconnected within EXPIRY_CHECK_S.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Set
from functools import partial
from typing import Final

from flockmq.auth.authenticator import Attempt
from flockmq.auth.bans import Key, one_client
from flockmq.auth.built_in import ScramExchange
from flockmq.auth.chain import Outcome
from flockmq.auth.login_expiry import LoginExpiry
from flockmq.auth.service import AuthService
from flockmq.auth.stored_authorization import SentMessage, StoredAuthorization, decoded, encode
from flockmq.bounds import AUTH_EXCHANGE_MAX_BYTES, KICK_SLICE_CLIENTS
from flockmq.clock import Clock
from flockmq.default_callbacks import ignore
from flockmq.mqtt.message import Publish, Will
from flockmq.mqtt.packets import Auth as AuthPacket
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import unwrap
from flockmq.node.connect_waits import ConnectWaits
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.protocol.channel import ADMITTING, CONNECTED, Channel
from flockmq.protocol.client import ALLOWED, ASKED, DENIED, PUBLISH, SUBSCRIBE, UNKNOWN, Principal
from flockmq.protocol.ports import AccessPort

log: Final = logging.getLogger(__name__)

EXPIRY_CHECK_S: Final = 1.0
NOT_THE_CLIENTS_DOING: Final = frozenset(
    (
        *(Reason.SERVER_SHUTTING_DOWN, Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED, Reason.ADMINISTRATIVE_ACTION),
        Reason.QUOTA_EXCEEDED,
    )
)
"""Disconnects with these reason codes don't count as flapping, because the client didn't cause them."""


Admit = Callable[[Channel, Connect, Principal, Properties | None], None]


class AccessControl(AccessPort):
    """`find` returns the connection of a client id, `connections` those of this node. `flush` makes the reactor write
    queued output. `admit` continues with an authenticated client."""

    def __init__(
        self,
        auth: AuthService,
        hooks: PluginHooks,
        admit: Admit,
        find: Callable[[bytes], Channel | None],
        connections: Callable[[], Iterable[Channel | None]],
        flush: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.auth: Final = auth
        self._hooks = hooks
        self._admit = admit
        self._find = find
        self._connections = connections
        self._flush = flush
        self._clock = clock
        self.waits: Final = ConnectWaits()
        self._exchanges: dict[Channel, tuple[ScramExchange, Connect | None]] = {}
        """The running exchange of each channel, with its CONNECT, or None for a re-authentication."""
        self._hosts: dict[Channel, str] = {}
        """Client addresses for flapping detection, because a closed channel doesn't know its address any more."""
        self._login_expiry: LoginExpiry[Channel] = LoginExpiry()
        self._banned: dict[Key | None, None] = {}
        self._revoked: set[bytes | None] = set()
        """Ids of users that lost rights; None stands for any user."""
        self._kicking: asyncio.Task[None] | None = None
        self.sends_away: bool = False
        """True while this node sends its clients to other nodes and accepts none."""
        self.on_principal: Callable[[Channel], None] = ignore
        """Called after a re-authentication, because the client's rights may have changed."""
        auth.bans.on_ban = self._on_ban
        auth.user_revocation.on_revoked = self._on_revoked

    async def watch(self) -> None:
        """Disconnect clients whose login has expired. Runs until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_CHECK_S)
            for channel in self._login_expiry.due(self._clock.wall()):
                log.info("client %r is sent away: what it was granted ran out", channel.client_id().decode())
                channel.close(Reason.MAXIMUM_CONNECT_TIME)
                self._flush()

    # Connecting.

    def admit(self, channel: Channel, connect: Connect) -> None:
        """Authenticate the client, then admit, challenge or refuse it."""
        if self.sends_away:
            channel.send_away(True)
            return
        peer = channel.peer()
        if peer.host == UNKNOWN:  # the client is gone, and its address can't be found out any more
            channel.lost()
            return
        if self.auth.minds_flapping:
            self._hosts[channel] = peer.host
        if self.auth.bans.banned(connect.client_id, connect.user_name, peer.host):
            self._refuse(channel, Reason.BANNED)
            return
        known = self._hooks.authenticate(channel, connect)
        if isinstance(known, int):
            self._refuse(channel, known)
        elif known is not None:
            self._admitted(channel, connect, Outcome(Reason.SUCCESS, known))
        elif channel.authentication_method is not None:
            self._begin(channel, connect, channel.authentication_method)
        else:
            attempt = Attempt(connect.client_id, connect.user_name, connect.password, peer, channel.has_ended)
            self.auth.chain.authenticate(attempt, partial(self._decided, channel, connect))
        if channel.state == ADMITTING and channel not in self._exchanges:
            self.waits.note(channel, self._clock.monotonic())

    def _begin(self, channel: Channel, connect: Connect, method: bytes) -> None:
        exchange = self.auth.chain.exchange(method, Attempt(connect.client_id, None, None, channel.peer()))
        if exchange is None:
            self._refuse(channel, Reason.BAD_AUTHENTICATION_METHOD)  # [MQTT-4.12.0-1]
            return
        self._exchanges[channel] = (exchange, connect)
        self._feed(channel, None if connect.properties is None else connect.properties.authentication_data)

    def continued(self, channel: Channel, packet: AuthPacket) -> None:
        """Handle an AUTH packet: the next step of an exchange, or the start of a re-authentication [MQTT-4.12.1]."""
        method = channel.authentication_method
        assert method is not None, "the channel refuses AUTH without a method"
        if packet.reason == Reason.RE_AUTHENTICATE and channel.state == CONNECTED:
            exchange = self.auth.chain.exchange(method, Attempt(channel.client_id(), None, None, channel.peer()))
            if exchange is None:  # a plugin authenticated the client; plugins have no AUTH exchange
                channel.close(Reason.PROTOCOL_ERROR)
                return
            self._exchanges[channel] = (exchange, None)
        if channel not in self._exchanges or packet.reason == Reason.SUCCESS:
            channel.close(Reason.PROTOCOL_ERROR)
            return
        self._feed(channel, None if packet.properties is None else packet.properties.authentication_data)

    def _feed(self, channel: Channel, data: bytes | None) -> None:
        exchange, connect = self._exchanges[channel]
        answer = self.auth.chain.feed(exchange, (data or b"")[: AUTH_EXCHANGE_MAX_BYTES + 1])
        if isinstance(answer, bytes):
            channel.challenged(answer)
            return
        del self._exchanges[channel]
        if connect is None:
            self._reauthenticated(channel, answer)
        else:
            self._decided(channel, connect, answer)

    def _decided(self, channel: Channel, connect: Connect, outcome: Outcome) -> None:
        if channel.state != ADMITTING:
            return
        if outcome.principal is None:
            self._refuse(channel, outcome.reason)
        else:
            self._admitted(channel, connect, outcome)
            if channel.state == ADMITTING:
                self.waits.note(channel, self._clock.monotonic())
        self._flush()

    def _admitted(self, channel: Channel, connect: Connect, outcome: Outcome) -> None:
        principal, session = outcome.principal, channel.session
        assert principal is not None
        assert session is not None
        if self._is_banned(channel, principal.username, outcome.client_id or connect.client_id):
            self._refuse(channel, Reason.BANNED)  # the authenticated user is banned, or a ban was added meanwhile
            return
        extra = None
        if outcome.client_id is not None and not connect.client_id:
            if len(outcome.client_id) > channel.limits.max_clientid_len:  # it contains what the client calls itself
                self._refuse(channel, Reason.CLIENT_IDENTIFIER_NOT_VALID)
                return
            connect.client_id = session.client_id = outcome.client_id
            extra = Properties()
            extra.assigned_client_identifier = outcome.client_id  # [MQTT-3.2.2-16]
        if channel.authentication_method is not None:
            extra = extra or Properties()
            extra.authentication_method = channel.authentication_method
            extra.authentication_data = outcome.data or None
        self._admit(channel, connect, principal, extra)

    def connected(self, channel: Channel) -> None:
        """CONNACK was queued. Disconnect the client if it was banned, or its user deleted, meanwhile."""
        self._note_expiry(channel, channel.principal)
        self._kick_if_banned(channel)
        self._kick_if_revoked(channel)

    def _reauthenticated(self, channel: Channel, outcome: Outcome) -> None:
        """Give the client its new rights. If it is another user now, disconnect it [MQTT-4.12.1-2]."""
        principal = outcome.principal
        if principal is None or principal.username != channel.principal.username:
            channel.close(Reason.NOT_AUTHORIZED)
            return
        self._login_expiry.remove(channel.client_id(), channel)
        self.auth.authorizer.forget(channel.client_id(), channel.principal)
        channel.principal = principal
        channel.set_must_authorize(self.must_authorize(principal))
        self._note_expiry(channel, principal)
        channel.reauthenticated(outcome.data)
        self.on_principal(channel)

    def _refuse(self, channel: Channel, reason: int) -> None:
        if reason == Reason.BANNED:
            self.auth.chain.results["banned"] += 1
        channel.refuse(reason)

    def _note_expiry(self, channel: Channel, principal: Principal) -> None:
        if principal.expires_at_s and not channel.has_ended():
            self._login_expiry.add(channel.client_id(), principal.expires_at_s, channel)

    def gone(self, channel: Channel, client_id: bytes) -> None:
        """A connection has ended. It may have been unauthenticated."""
        self._exchanges.pop(channel, None)
        self._login_expiry.remove(client_id, channel)
        self.auth.authorizer.forget(client_id, channel.principal)
        self.auth.authorizer.gone(channel)
        host = self._hosts.pop(channel, None)
        if host is not None and channel.admitted_once and self._is_its_doing(channel):
            self.auth.disconnected(channel.principal.username, client_id, host)

    def _is_its_doing(self, channel: Channel) -> bool:
        if channel.close_reason == Reason.SESSION_TAKEN_OVER:  # counts only if the same user must have done that
            return bool(channel.principal.username) and channel.limits.binds_client_ids(
                identifies(self.auth, self._hooks)
            )
        return channel.close_reason not in NOT_THE_CLIENTS_DOING

    # What a client may do.

    def must_authorize(self, principal: Principal) -> bool:
        return not principal.superuser and (self._hooks.must_authorize() or self.auth.authorizer.must_check(principal))

    def fingerprint(self, channel: Channel) -> bytes | None:
        """As `Authorizer.fingerprint`; also b"" if a plugin decides."""
        if self._hooks.must_authorize() and not channel.principal.superuser:
            return b""
        return self.auth.authorizer.fingerprint(channel.client_id(), channel.principal, channel.peer)

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        """As `AuthorizationPort.authorize`. Rules check the topic without a prefix such as `$share/group/`."""
        prefix, topic = unwrap(topic)
        verdict = self._hooks.authorize(channel, action, prefix, topic, qos, retain)
        if verdict is not None:
            return verdict
        client_id, principal, peer = channel.client_id(), channel.principal, channel.peer
        authorizer = self.auth.authorizer
        verdict = authorizer.check(client_id, principal, peer, action, topic, qos, retain)
        if verdict == ASKED:
            answered = partial(self._answered, done)
            authorizer.ask(client_id, principal, peer, action, topic, qos, retain, channel, answered)
        return verdict

    def _answered(self, done: Callable[[int], None], verdict: int) -> None:
        done(verdict)
        self._flush()

    # Offline clients, of which only client id and user name are known.

    def rules_by_name(self, client_id: bytes, user: bytes) -> bytes:
        """As `SessionRequest.rules`; b"" if rules need more than these two names."""
        return b"" if self._hooks.must_authorize() else self.auth.authorizer.fingerprint_by_name(client_id, user)

    def is_denied_by_name(self, client_id: bytes, user: bytes, filter: bytes, qos: int) -> bool:
        return self.auth.authorizer.is_denied_by_name(client_id, user, SUBSCRIBE, unwrap(filter)[1], qos)

    def is_gone(self, user: bytes) -> bool:
        """Whether nobody can log in as this user any more."""
        return not self._hooks.must_authenticate() and self.auth.is_gone(user)

    # Messages that are published after their client has gone.

    def authorization(self, channel: Channel, sent: SentMessage, published: bytes = b"") -> StoredAuthorization:
        """As `DeferredAuthorization.make`."""
        client_id, principal, peer = channel.client_id(), channel.principal, channel.peer()
        by_plugin = self._plugin_verdict(channel, sent) == ALLOWED
        return self.auth.deferred_authorization.make(client_id, principal, peer, sent, published, by_plugin=by_plugin)

    def will_authorization(self, channel: Channel, message: Publish) -> bytes:
        """The encoded authorization to store with the client's will."""
        return encode(self.authorization(channel, SentMessage(message.topic, message.qos, message.retain)))

    def may_leave(self, channel: Channel, will: Will) -> bool:
        """Whether the client may still publish its will when its connection ends. HTTP services aren't asked here, but
        when the will is due."""
        client_id, principal, message = channel.client_id(), channel.principal, will.message
        authorization = decoded(will.authorization, client_id, principal.username)
        sent = authorization.sent_message(message.topic, message.qos, message.retain)
        verdict = self._plugin_verdict(channel, sent)
        if verdict is None:
            topic = unwrap(sent.topic)[1]
            check = self.auth.authorizer.check
            verdict = check(client_id, principal, authorization.peer, PUBLISH, topic, sent.qos, sent.retain)
        return verdict != DENIED

    def _plugin_verdict(self, channel: Channel, sent: SentMessage) -> int | None:
        if channel.principal.superuser or not self._hooks.must_authorize():
            return None
        prefix, topic = unwrap(sent.topic)
        return self._hooks.authorize(channel, PUBLISH, prefix, topic, sent.qos, sent.retain)

    def denied(self, channel: Channel, action: int, topic: bytes) -> bool:
        log.debug("client %r may not do %d to %r", channel.client_id().decode(), action, topic.decode())
        return self.auth.authorizer.disconnects

    # Bans and revoked users among connected clients.

    def _is_banned(self, channel: Channel, username: bytes, client_id: bytes) -> bool:
        return not self.auth.bans.is_empty() and self.auth.bans.banned(client_id, username, channel.peer().host)

    def _on_ban(self, key: Key | None) -> None:
        """Disconnect clients later, because the table is being changed now."""
        self._banned[key] = None
        self._kick_soon()

    def _on_revoked(self, user_id: bytes | None) -> None:
        self._revoked.add(user_id)
        self._kick_soon()

    def _kick_soon(self) -> None:
        if self._kicking is None or self._kicking.done():
            self._kicking = asyncio.ensure_future(self._kick())

    async def _kick(self) -> None:
        """Disconnect banned and revoked clients. A ban of one client id needs one look-up; anything else needs a scan
        of all clients, done in slices."""
        while self._banned or self._revoked:
            await asyncio.sleep(0)
            banned, self._banned = self._banned, {}
            revoked, self._revoked = self._revoked, set()
            client_ids = [None if key is None else one_client(key) for key in banned]
            for client_id in client_ids:
                channel = None if client_id is None else self._find(client_id)
                if channel is not None:
                    self._kick_if_banned(channel)
            if None in client_ids or revoked:
                await self._go_through(None in client_ids, revoked)
            self._flush()

    async def _go_through(self, bans: bool, revoked: Set[bytes | None]) -> None:
        for place, channel in enumerate(list(self._connections()), start=1):
            if channel is not None and bans:
                self._kick_if_banned(channel)
            if channel is not None and (None in revoked or channel.principal.user_id in revoked):
                self._kick_if_revoked(channel)
            if place % KICK_SLICE_CLIENTS == 0:
                self._flush()
                await asyncio.sleep(0)

    def _kick_if_banned(self, channel: Channel) -> None:
        if channel.state == CONNECTED and self._is_banned(channel, channel.principal.username, channel.client_id()):
            log.info("client %r is banned, and sent away", channel.client_id().decode())
            self._send_away(channel)

    def _kick_if_revoked(self, channel: Channel) -> None:
        if channel.state == CONNECTED and self.auth.user_revocation.is_revoked(channel.principal):
            log.info("client %r is sent away: its user was deleted or changed", channel.client_id().decode())
            self._send_away(channel)

    def _send_away(self, channel: Channel) -> None:
        """Disconnect the client, and drop its will."""
        if channel.will is not None:
            channel.will = None
            channel.router.counters.dropped_revoked += 1
        channel.close(Reason.NOT_AUTHORIZED)  # 0x8A isn't one of DISCONNECT's codes


def identifies(auth: AuthService, hooks: PluginHooks) -> bool:
    """Whether the node authenticates clients at all."""
    return auth.chain.identifies or hooks.must_authenticate()
