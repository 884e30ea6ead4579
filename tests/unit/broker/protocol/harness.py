"""A node without sockets: channels that are fed bytes and remember what they wrote, a port that answers at once."""

from __future__ import annotations

from collections.abc import Callable

from flockmq.clock import SYSTEM
from flockmq.mqtt import encode, frame
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish, Will
from flockmq.mqtt.packets import Auth, Connect, SubscribeEntry
from flockmq.protocol.channel import Channel
from flockmq.protocol.clean_session_end import CleanSessionEnd, CleanSessionEndPort
from flockmq.protocol.client import ALLOWED
from flockmq.protocol.conversation import Conversation
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.protocol.ports import AccessPort, AuthorizationPort, FiltersPort, HookPort, NodePort
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.router import Router
from flockmq.routing.sink import Sink, SinkHost
from flockmq.routing.subscriber import Subscription as Held
from flockmq.session.client_session import ClientSession
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.session.remote_session import RemoteSession, RemoteSessionPort
from flockmq.telemetry.counters import Counters
from flockmq.time_slices import TimeSlices


class Client(Conversation):
    """What a client sees: `packets` takes what was flushed since it was last asked."""

    def __init__(self, router: Router, port: NodePort, limits: Limits) -> None:
        super().__init__(router, port, limits)
        self.written = b""
        self.stuck = False

    def flush(self) -> None:
        if not self.stuck:
            self.written += b"".join(self.out)
            self.out.clear()
            self.out_bytes = 0

    def packets(self) -> list[bytes]:
        taken, self.written = split(self.written), b""
        return taken


class _Access(AccessPort):
    def __init__(self, port: Port) -> None:
        self.port = port

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.port.admit(channel, connect)

    def continued(self, channel: Channel, packet: Auth) -> None:
        self.port.continued(channel, packet)

    def denied(self, channel: Channel, action: int, topic: bytes) -> bool:
        return self.port.denied(channel, action, topic)


class _Judge(AuthorizationPort):
    def __init__(self, port: Port) -> None:
        self.port = port

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        return self.port.authorize(channel, action, topic, qos, retain, done)

    def must_wait(self, channel: Channel, go_on: Callable[[], None]) -> bool:
        return self.port.must_wait(channel, go_on)

    def rule_changes(self) -> int:
        return self.port.rule_changes

    def authorize_again(self, channel: Channel) -> None:
        self.port.authorized_again.append(channel)


class _Hooks(HookPort):
    def __init__(self, port: Port) -> None:
        self.port = port

    def intercept(self, channel: Channel, message: Publish) -> Publish | int:
        return self.port.intercept(channel, message)


class _Filters(FiltersPort):
    def __init__(self, port: Port) -> None:
        self.port = port

    def is_routed(self, filter: bytes) -> bool:
        return False

    def claim(
        self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None], user: bytes
    ) -> None:
        self.port.claim(filters, done)

    def unrouted(self, filters: list[bytes]) -> None:
        self.port.dropped += filters


class _Ends(CleanSessionEndPort):
    def __init__(self, port: Port) -> None:
        self.port = port

    def publish(self, will: Will, session: LocalSession) -> None:
        self.port.published.append(will.message)

    def unrouted(self, session: LocalSession, filters: list[bytes]) -> None:
        self.port.filters.unrouted(filters)

    def unrouted_later(self, session: LocalSession, filters: list[bytes]) -> None:
        self.unrouted(session, filters)

    def session_ended(self, session: LocalSession) -> None:
        self.port.session_ended(session)


class Port(NodePort):
    """Tests replace methods of its parts here. `hold` keeps claims, routes and logged writes back; `verdicts` are by
    topic, so many `judged_a_turn`; `taken` are exclusive filters that another client has, and what it hears of them.
    """

    def __init__(self) -> None:
        super().__init__(_Access(self), _Judge(self), _Hooks(self), _Filters(self), self._flushed)
        self.session_ends = _Ends(self)
        self.router: Router
        self.sessions: CleanSessionEnd
        self.hold = False
        self.asked: list[tuple[int, bytes, Callable[[int], None]]] = []
        self.verdicts: dict[bytes, int] = {}
        self.judged_a_turn = 1_000_000
        self.rule_changes = 0
        self.authorized_again: list[Channel] = []
        self.resting: list[Callable[[], None]] = []
        self.disconnects_the_denied = False
        self.replaces: Callable[[Publish], Publish | int] = lambda message: message
        self.continuations: list[Auth] = []
        self.sessions_gone: list[bytes] = []
        self.routing: list[bytes] = []
        self.unanswered: list[Callable[[int, bool], None]] = []
        self.claims: list[list[bytes]] = []
        self.claiming: list[Callable[[dict[bytes, int]], None]] = []
        self.taken: dict[bytes, int] = {}
        self.inbound: list[PendingPublish] = []
        self.dropped: list[bytes] = []
        self.published: list[Publish] = []
        self.ended: list[Channel] = []
        self.violations: list[PacketError] = []
        self.given: list[Held] = []
        self.flushes = 0

    def admit(self, channel: Channel, connect: Connect) -> None:
        made = channel.session
        assert isinstance(made, LocalSession)
        if not connect.client_id:
            made.client_id = b"assigned"
        channel.admitted(connect, 7, made, False)

    def gone(self, channel: Channel, session: ClientSession, will: Will | None) -> None:
        self.ended.append(channel)
        if channel.admitted_once and isinstance(session, LocalSession):
            self.sessions.leave(session, will)

    def session_ended(self, session: LocalSession) -> None:
        self.sessions_gone.append(session.client_id)
        self.router.shared.redispatch(session.unacknowledged_shared())

    def continued(self, channel: Channel, packet: Auth) -> None:
        self.continuations.append(packet)

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        self.asked.append((action, topic, done))
        return self.verdicts.get(topic, ALLOWED)

    def must_wait(self, channel: Channel, go_on: Callable[[], None]) -> bool:
        if len(self.asked) < self.judged_a_turn:
            return False
        self.resting.append(go_on)
        return True

    def denied(self, channel: Channel, action: int, topic: bytes) -> bool:
        return self.disconnects_the_denied

    def intercept(self, channel: Channel, message: Publish) -> Publish | int:
        return self.replaces(message)

    def unsubscribe(self, channel: Channel, session: LocalSession, filters: list[bytes]) -> list[int]:
        return self.sessions.unsubscribe(session, filters)

    def claim(self, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        self.claims.append(filters)
        if self.hold:
            self.claiming.append(done)
        else:
            done({filter: self.taken[filter] for filter in filters if filter in self.taken})

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None], user: bytes) -> None:
        if self.hold:
            self.unanswered.append(done)
            self.routing += filters
        else:
            done(0, False)

    def remember(self, inbound: PendingPublish) -> None:
        if self.hold:
            self.inbound.append(inbound)
        else:
            inbound.remembered()

    def log(self, inbound: PendingPublish) -> None:
        if self.hold:
            self.inbound.append(inbound)
        else:
            inbound.logged(0)

    def send_retained(self, subscriptions: list[Held], saw_all: bool) -> None:
        self.given += subscriptions

    def _flushed(self) -> None:
        self.flushes += 1

    def violated(self, channel: Channel, error: PacketError) -> None:
        self.violations.append(error)


class Owners(RemoteSessionPort):
    """Of sessions that run elsewhere: how often they were told that there is something to report."""

    def __init__(self) -> None:
        self.reports = 0

    def report(self, token: int) -> None:
        self.reports += 1


def remote(channel: Channel, owners: Owners | None = None) -> RemoteSession:
    """From now on its session runs elsewhere."""
    assert isinstance(channel.session, LocalSession)
    channel.session = session = RemoteSession(channel.session, owners or Owners(), 1)
    return session


class Node:
    """One router and its clients."""

    def __init__(self, limits: Limits | None = None, seed: int | None = None) -> None:
        self.limits = limits or Limits()
        self.router = Router(SinkHost(Counters()), self.limits.max_packet_size, seed=seed)
        self.soon: list[Callable[[], None]] = []
        """What is to be called in the next iteration."""
        self.port = self.serving(Port())

    def serving(self, port: Port) -> Port:
        """The port knows the router and has the sessions."""
        port.router = self.router
        port.sessions = CleanSessionEnd(self.router, port.session_ends, TimeSlices(self.soon.append, SYSTEM))
        return port

    def turn(self) -> None:
        """What the reactor does at the end of a turn."""
        router = self.router
        while router.turn or router.pauses.resumed:
            for sink in self._taken(router.turn):
                sink.dirty = False
                sink.flush()
            for channel in self._taken_channels(router.pauses.resumed):
                channel.feed(b"")

    @staticmethod
    def _taken(sinks: list[Sink]) -> list[Sink]:
        taken = sinks.copy()
        sinks.clear()
        return taken

    @staticmethod
    def _taken_channels(channels: list[PausablePublisher]) -> list[Channel]:
        taken = [channel for channel in channels if isinstance(channel, Channel)]
        channels.clear()
        return taken

    def opened(self) -> Client:
        return Client(self.router, self.port, self.limits)

    def client(self, client_id: str, version: int = 4, connect: Connect | None = None) -> Client:
        """Connected, its CONNACK taken."""
        channel = self.opened()
        answer = self.feed(channel, encode.connect(connect or Connect(version, client_id.encode())))
        assert [packet[0] for packet in answer] == [0x20]
        return channel

    def feed(self, channel: Client, data: bytes) -> list[bytes]:
        """Feed bytes, end the turn, and take the answer."""
        channel.feed(data)
        self.turn()
        return channel.packets()

    def subscribe(self, channel: Client, *filters: tuple[str, int]) -> list[bytes]:
        """`filters`: (filter, options byte)."""
        requests = [SubscribeEntry(filter.encode(), options) for filter, options in filters]
        return self.feed(channel, encode.subscribe(channel.protocol_version, 1, requests))


def publish(
    version: int,
    topic: str,
    payload: str = "",
    *,
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
    dup: bool = False,
) -> bytes:
    return encode.publish(
        version, topic.encode(), payload.encode(), qos=qos, packet_id=packet_id, retain=retain, dup=dup
    )


def split(data: bytes) -> list[bytes]:
    """Whole packets."""
    packets = []
    at = 0
    while at < len(data):
        length, body = frame.remaining_length(data, at + 1, 0)
        packets.append(data[at : body + length])
        at = body + length
    return packets


def without_words(packets: list[bytes]) -> list[bytes]:
    """The same, with a DISCONNECT and a CONNACK that refuses without their reason strings."""
    return [_short(packet) for packet in packets]


def _short(packet: bytes) -> bytes:
    if packet[0] == 0xE0 and len(packet) > 3:
        return encode.disconnect(5, packet[2])
    if packet[0] == 0x20 and len(packet) > 4 and packet[3] >= 0x80:
        return encode.connack(5, packet[3])
    return packet
