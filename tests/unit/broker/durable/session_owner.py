"""An owner alone: a writer whose disk commits when it is told to, and a way to a session proxy, which keeps all."""

from __future__ import annotations

from collections.abc import Callable

from flockmq.bounds import (
    SINK_CONGESTED_MAX_S,
)
from flockmq.default_callbacks import ignore
from flockmq.durable.commit_queue import CommitState
from flockmq.durable.pending_writes import PendingWrites, SlotWriter
from flockmq.durable.proxy_sink import ProxyNode, ProxySink
from flockmq.durable.restored_session import restored
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import Meta
from flockmq.mqtt.message import Publish, Will, publication
from flockmq.routing.message_id import origin_of
from flockmq.routing.router import Router
from flockmq.routing.sink import CONGESTED, LAGGING, SinkHost
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session.remote_session import (
    AGAIN,
    PUBACK,
    SETTLED,
    pair,
)
from flockmq.telemetry.counters import Counters

IDENTITY = bytes(range(16))
CLIENT = b"c"
WALL_S = 1_700_000_000.0
QOS1, QOS2, DUP1, DUP2 = 0x32, 0x34, 0x3A, 0x3C
Op = tuple[bytes, dict[bytes, bytes | None]] | Callable[[bool], None]


class Disk(SlotWriter):
    """What was put, in its order: `commit` makes it durable, as far as one says."""

    def __init__(self, sessions: dict[bytes, dict[bytes, bytes]] | None = None) -> None:
        super().__init__(7, PendingWrites(), ignore, ignore)
        self.sessions = {} if sessions is None else sessions
        self.waiting: list[Op] = []

    def put(self, client_id: bytes, field: bytes, value: bytes, other: bytes = b"", other_value: bytes = b"") -> None:
        self.waiting.append((client_id, {field: value, other: other_value} if other else {field: value}))

    def delete(self, client_id: bytes, field: bytes) -> None:
        self.waiting.append((client_id, {field: None}))

    def drop(self, client_id: bytes) -> None:
        self.waiting.append((client_id, {}))

    def barrier(self, done: Callable[[bool], None]) -> None:
        if self.waiting:
            self.waiting.append(done)
        else:
            done(True)

    def fields(self) -> dict[bytes, bytes]:
        return self.sessions.get(CLIENT, {})

    def commit(self, count: int | None = None, *, tells: bool = True) -> None:
        """The first `count` of what waits. `tells` False: the answer is lost on its way."""
        taken = self.waiting[:count]
        del self.waiting[:count]
        for op in taken:
            if callable(op):
                if tells:
                    op(True)
            else:
                self._execute(*op)

    def _execute(self, client_id: bytes, changes: dict[bytes, bytes | None]) -> None:
        if not changes:
            self.sessions.pop(client_id, None)
        for field, value in changes.items():
            if value is None:
                self.sessions.get(client_id, {}).pop(field, None)
            else:
                self.sessions.setdefault(client_id, {})[field] = value


class ToProxy(ProxySink):
    """What was put is taken as it is, by `taken`, or sorted: `packets`, and what was `told`."""

    def __init__(self, router: Router, version: int) -> None:
        super().__init__(router, version, ignore, ignore, self._flow_changed, ProxyNode("replicant-0@1"), CLIENT, 1)
        self.overflown: Callable[[], None] = ignore
        self.flows: list[int] = []
        self._packets: list[bytes] = []
        self._told: list[tuple[int, int]] = []

    def overflow(self) -> None:
        self.overflown()

    def _flow_changed(self, _: ProxySink) -> None:
        self.flows.append(self.flow)

    def taken(self) -> list[bytes]:
        taken = self.out.copy()
        self.out.clear()
        self.out_bytes = 0
        return taken

    def packets(self) -> list[bytes]:
        self._sort()
        packets, self._packets = self._packets, []
        return packets

    def told(self) -> list[tuple[int, int]]:
        self._sort()
        told, self._told = self._told, []
        return told

    def _sort(self) -> None:
        for packet in self.taken():
            if packet[0] != SETTLED:
                self._packets.append(packet)
            elif packet != AGAIN:
                self._told.append((packet[2], packet[3] << 8 | packet[4]))


class SessionOwner:
    """One owner: its router, its commit_state, and the slot of one client."""

    def __init__(self, disk: Disk | None = None, limits: Limits | None = None, now_s: float = 1000.0) -> None:
        self.limits = limits or Limits()
        self.disk = disk or Disk()
        self.router = Router(SinkHost(Counters()), self.limits.max_packet_size)
        self.router.host.now_s = now_s
        self.commit_state = CommitState(WALL_S - 1000.0)

    def fresh(
        self,
        version: int = 4,
        *,
        window: int = 32,
        max_packet_bytes: int = 0,
        expiry_s: int = 100,
        will: Will | None = None,
        identity: bytes = IDENTITY,
        client_id: bytes = CLIENT,
    ) -> DurableSession:
        meta = Meta(identity, expiry_s, version, will)
        sink = ToProxy(self.router, version)
        return DurableSession(
            self.disk, self.commit_state, meta, sink, client_id, self.limits, window, max_packet_bytes
        )

    def opened(self, version: int = 4, *, window: int = 32, will: Will | None = None) -> DurableSession:
        session = self.fresh(version, window=window, will=will)
        session.opened()
        self.settle()
        return session

    def restored(self) -> DurableSession:
        return restored(self.disk, self.commit_state, CLIENT, self.disk.fields(), self.router, lambda _: self.limits)

    def settle(self) -> None:
        """The turn ends, and all it put becomes durable; and what follows from that."""
        self.commit_state.request_barriers()
        while self.disk.waiting:
            self.disk.commit()
            self.commit_state.request_barriers()

    def send(
        self, session: DurableSession, payload: str, qos: int = 1, *, expiry_s: int = -1, share: bytes = b""
    ) -> None:
        self.router.delivery.send(
            session, message(payload, qos, session.sink.protocol_version, expiry_s), qos, False, b"", share
        )


def message(payload: str, qos: int, version: int = 4, expiry_s: int = -1) -> Publish:
    """Of a publisher that counts from 9 on."""
    encoded = b"" if expiry_s < 0 or version == 4 else b"\x02" + expiry_s.to_bytes(4, "big")
    made = publication(version, qos, False, b"t", payload.encode(), encoded, expiry_s)
    made.packet_id = 9 if qos else 0
    return made


def to_proxy(session: DurableSession) -> ToProxy:
    assert isinstance(session.sink, ToProxy)
    return session.sink


def add_subscription(session: DurableSession, subscription: Subscription) -> None:
    """It has it, and its owner has put it."""
    session.subscriptions.add(subscription)
    session.record.write_subscription(subscription)


def heard(session: DurableSession) -> list[tuple[int, int, bytes]]:
    """(first byte, packet id, payload) of each packet; of 3.1.1, on a topic of one message."""
    packets = to_proxy(session).packets()
    return [
        (packet[0], 0, packet[5:])
        if packet[0] == 0x30
        else (packet[0], packet[2] << 8 | packet[3], b"")
        if packet[0] == 0x62
        else (packet[0], packet[5] << 8 | packet[6], packet[7:])
        for packet in packets
    ]


def origin(number: int) -> bytes:
    """Of what the client publishes."""
    return origin_of(IDENTITY[:8], number)


def messages_on(disk: Disk) -> list[bytes]:
    return sorted(field for field in disk.fields() if field[:1] == b"q")


def back(
    owner: SessionOwner, session: DurableSession, version: int = 4, *, window: int = 32, max_packet_bytes: int = 0
) -> None:
    """A connection takes the session over, and hears it all."""
    session.resume(owner.fresh(version, window=window, max_packet_bytes=max_packet_bytes))
    owner.settle()
    session.send_again()
    owner.settle()


def lag(owner: SessionOwner, session: DurableSession) -> None:
    """It acknowledged nothing for as long as publishers are paused for it."""
    proxy = to_proxy(session)
    assert proxy.flow == CONGESTED
    owner.router.host.now_s += SINK_CONGESTED_MAX_S + 0.1
    proxy.check_progress(session.outgoing.is_held_up())
    assert proxy.flow == LAGGING


def all_read(owner: SessionOwner, session: DurableSession) -> list[bytes]:
    """What its client gets when it acknowledges all that comes."""
    received = []
    while packets := heard(session):
        for _, packet_id, payload in packets:
            received.append(payload)
            session.reported(pair(PUBACK, packet_id))
        owner.settle()
    return received


def full(owner: SessionOwner) -> DurableSession:
    """One whose client is away, with five messages, and no room for more."""
    session = owner.opened(window=1)
    session.leave(owner.router.away4)
    for number in range(5):
        owner.send(session, str(number))
    owner.settle()
    return session


def elsewhere(owner: SessionOwner) -> tuple[SessionOwner, DurableSession]:
    """The owner crashes, with all that isn't durable."""
    owner.disk.waiting.clear()
    other = SessionOwner(owner.disk, owner.limits, now_s=owner.router.host.now_s)
    return other, other.restored()
