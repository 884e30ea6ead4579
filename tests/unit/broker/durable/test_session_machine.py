"""A durable session from its owner to its client, while everything between them crashes.

    publisher ──▶ owner ──stream──▶ session proxy ──connection──▶ client
                  disk ◀─reports──       ◀──────────────

Each arrow is a queue that hypothesis drains a little at a time, and loses: an owner crashes with all that isn't durable
(and with or without what was, but not answered), streams to a session proxy are cut, connections are lost. What must
hold for every message that was durable before its publisher heard so: at QoS 1 it comes, at QoS 2 it comes exactly
once, in its order; one that expires may not come, but not out of order; and what MQTT wants of each connection holds
on each.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from flockmq.durable.message_queue import PACKET_IDS
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import RELEASED, WAITS
from flockmq.mqtt.frame import remaining_length
from flockmq.routing.sink import Sink
from flockmq.session.client_session import DONE, UNKNOWN
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.session.remote_session import AGAIN, SETTLED, RemoteSession
from unit.broker.durable.session_owner import CLIENT, Disk, SessionOwner, ToProxy
from unit.broker.protocol.harness import Owners, split

WINDOW = 3
EXPIRY_S = 10
FEW = st.integers(0, 6)


class Client:
    """A client that keeps its QoS 2 state over its connections, as it must."""

    def __init__(self) -> None:
        self.got: dict[int, list[int]] = {1: [], 2: []}
        self.stored: set[int] = set()


class Connection:
    """The session proxy of one connection, what is under way on it, and what the client saw there."""

    def __init__(self, client: Client, late: list[bytes]) -> None:
        self.client = client
        self.sink = Sink([], 4)
        self.proxy = RemoteSession(LocalSession(self.sink, CLIENT, Limits(), WINDOW, expiry_s=100), Owners(), 1)
        self.proxy.send_again()
        self.to_client: deque[bytes] = deque()
        self.from_client: deque[bytes] = deque(late)
        self.late = {packet[2] << 8 | packet[3] for packet in late}
        """Packet ids of the PUBRECs that answer the former connection: they may be said twice."""
        self.to_owner: deque[bytes] = deque()
        self.under_way: dict[int, int] = {}
        """Packet id -> first byte of what the client heard last of it, until it answered the last."""
        self.released: list[int] = []

    def arrive(self, chunk: bytes) -> None:
        self._put(self.proxy.arrived(chunk))
        self.take_reports()

    def _put(self, data: bytes) -> None:
        self.to_client.extend(split(data))

    def take_reports(self) -> None:
        if reports := self.proxy.take_reports():
            self.to_owner.append(reports)

    def client_hears(self) -> None:
        packet = self.to_client.popleft()
        if packet[0] >> 4 == 3:
            self._publish(packet)
            return
        packet_id = packet[2] << 8 | packet[3]
        if packet[0] == 0x62:
            expected = self.under_way.get(packet_id) in (None, 2) or packet_id in self.late
            assert expected, "a PUBREL that comes again, or before its PUBREC"
            self.under_way[packet_id] = 3
            self.client.stored.discard(packet_id)
            self.from_client.append(b"\x70\x02" + packet[2:4])

    def _publish(self, packet: bytes) -> None:
        _, body = remaining_length(packet, 1)
        packet_id, number, qos = packet[body + 3] << 8 | packet[body + 4], int(packet[body + 5 :]), packet[0] >> 1 & 3
        client = self.client
        is_late = packet_id in self.late
        assert packet_id not in self.under_way or is_late, "a packet id of something else, or a PUBLISH sent again"
        assert len(self.under_way) < WINDOW or is_late, "more than the client takes"
        self.under_way[packet_id] = 1 if qos == 1 else 2
        known = packet_id in client.stored if qos == 2 else number in client.got[1]
        if not known:
            client.got[qos].append(number)
        else:
            assert packet[0] & 8, "a duplicate that doesn't say so"
        if qos == 2:
            client.stored.add(packet_id)
        self.from_client.append((b"\x40\x02" if qos == 1 else b"\x50\x02") + packet_id.to_bytes(2, "big"))

    def client_says(self) -> None:
        packet = self.from_client.popleft()
        packet_id = packet[2] << 8 | packet[3]
        if packet[0] == 0x40:
            assert self.proxy.puback(packet_id)
            del self.under_way[packet_id]
        elif packet[0] == 0x70:
            assert self.proxy.pubcomp(packet_id) or packet_id in self.late
            self.under_way.pop(packet_id, None)
        else:
            if packet_id in self.late:
                self.under_way.setdefault(packet_id, 2)
            heard = self.proxy.pubrec(packet_id, False)
            assert heard != UNKNOWN
            if heard == DONE:
                self.to_client.append(b"\x62\x02" + packet[2:4])
        for held in self.sink.out:
            self._put(held)
        self.sink.out.clear()
        self.take_reports()


class DurableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(max_inflight=WINDOW)
        self.client = Client()
        self.disk = Disk()
        self.owner = SessionOwner(self.disk, self.limits)
        self.session: DurableSession = self.owner.opened(window=WINDOW)
        self.session.leave(self.owner.router.away4)
        self.stream: deque[bytes] = deque()
        self.connection: Connection | None = None
        self.unsaid: list[bytes] = []
        """PUBRECs that the client had no time to say on its former connection."""
        self.number = 0
        self.promised: dict[int, set[int]] = {1: set(), 2: set()}
        self.sent: dict[int, list[int]] = {1: [], 2: []}

    # The owner.

    @rule(qos=st.integers(1, 2), expiries=st.lists(st.sampled_from((-1, EXPIRY_S)), min_size=1, max_size=3))
    def publishes(self, qos: int, expiries: list[int]) -> None:
        for expiry_s in expiries:
            self.number += 1
            self.sent[qos].append(self.number)
            self.owner.send(self.session, str(self.number), qos, expiry_s=expiry_s)
            if expiry_s < 0:
                self.disk.barrier(partial(self._durable, qos, self.number))
        self._turn_ends()

    @rule()
    def messages_expire(self) -> None:
        self.owner.router.host.now_s += EXPIRY_S

    def _durable(self, qos: int, number: int, is_durable: bool) -> None:
        assert is_durable
        self.promised[qos].add(number)

    def commits(self, count: int) -> None:
        self.disk.commit(count)
        self._turn_ends()

    def _turn_ends(self) -> None:
        self.owner.commit_state.request_barriers()
        sink = self.session.sink
        if isinstance(sink, ToProxy):
            taken = sink.taken()
            for packet in taken:
                self._is_durable(packet)
            self.stream.extend(taken)

    def _is_durable(self, packet: bytes) -> None:
        """What the owner says is so on its disk. No packet id comes round in so few messages."""
        on_disk = {}
        for field, value in self.disk.fields().items():
            if field[:1] == b"q":
                on_disk[(int.from_bytes(field[1:], "big") - 1) % PACKET_IDS + 1] = value[0]
        if packet[0] == 0x62:
            packet_id = packet[2] << 8 | packet[3]
            assert on_disk.get(packet_id) == RELEASED
        elif packet[0] == SETTLED and packet != AGAIN:
            assert packet[3] << 8 | packet[4] not in on_disk
        elif packet[0] != SETTLED:
            assert on_disk.get(packet[5] << 8 | packet[6]) == WAITS

    def owner_crashes(self, executed: int, arrives: int) -> None:
        """With what is under way to and from it; the next owner is another core."""
        self._arrive(arrives)
        self.stream.clear()
        self.disk.commit(executed, tells=False)
        self.disk = Disk(self.disk.sessions)
        self.owner = SessionOwner(self.disk, self.limits, self.owner.router.host.now_s)
        self.session = self.owner.restored()
        if self.connection is not None:
            self.connection.to_owner.clear()
            self._attach()

    # The session proxy.

    def _arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.stream))):
            chunk = self.stream.popleft()
            if self.connection is not None:
                self.connection.arrive(chunk)

    def stream_arrives(self, count: int) -> None:
        self._arrive(count)

    def stream_is_cut(self, count: int) -> None:
        """From some place on; the owner sends again, over a new link or the old one."""
        self._arrive(count)
        self.stream.clear()
        self.session.send_again()
        self._turn_ends()

    def link_is_lost(self, count: int) -> None:
        """With what is under way both ways; the session proxy's node registers again."""
        assert self.connection is not None
        self._arrive(count)
        self.stream.clear()
        self.connection.to_owner.clear()
        self._attach()

    def reports_arrive(self, count: int) -> None:
        reports = deque[bytes]() if self.connection is None else self.connection.to_owner
        for _ in range(min(count, len(reports))):
            self.session.reported(reports.popleft())
        self._turn_ends()

    # The client.

    @precondition(lambda self: self.connection is None)
    @rule(says_late=st.booleans())
    def connects(self, says_late: bool) -> None:
        self.connection = Connection(self.client, self.unsaid if says_late else [])
        self._attach()

    def _attach(self) -> None:
        self.session.resume(self.owner.fresh(window=WINDOW))
        self.session.send_again()
        self._turn_ends()

    def connection_is_lost(self, reported: int) -> None:
        self.reports_arrive(reported)
        assert self.connection is not None
        self.unsaid = [packet for packet in self.connection.from_client if packet[0] == 0x50]
        self.connection = None
        self.stream.clear()
        self.session.leave(self.owner.router.away4)
        self._turn_ends()

    @precondition(lambda self: self.connection is not None and self.connection.to_client)
    @rule(count=FEW)
    def client_hears(self, count: int) -> None:
        for _ in range(0 if self.connection is None else min(count, len(self.connection.to_client))):
            self.connection.client_hears()

    @precondition(lambda self: self.connection is not None and self.connection.from_client)
    @rule(count=FEW)
    def client_says(self, count: int) -> None:
        for _ in range(0 if self.connection is None else min(count, len(self.connection.from_client))):
            self.connection.client_says()

    # What happens next.

    @rule(steps=st.lists(st.tuples(st.integers(0, 4), FEW), min_size=1, max_size=15))
    def time_passes(self, steps: list[tuple[int, int]]) -> None:
        goes_on = (self.commits, self.stream_arrives, self.client_hears, self.client_says, self.reports_arrive)
        for which, count in steps:
            goes_on[which](count)

    @rule(count=FEW, executed=FEW)
    def owner_is_killed(self, count: int, executed: int) -> None:
        self.owner_crashes(executed, count)

    @precondition(lambda self: self.connection is not None)
    @rule(which=st.integers(0, 2), count=FEW)
    def something_breaks(self, which: int, count: int) -> None:
        (self.stream_is_cut, self.link_is_lost, self.connection_is_lost)[which](count)

    # In the end.

    def teardown(self) -> None:
        if self.connection is None:
            self.connects(False)
        connection = self.connection
        assert connection is not None
        for _ in range(20 * (self.number + 10)):
            queues = (self.disk.waiting, self.stream, connection.to_owner, connection.to_client, connection.from_client)
            if not any(queues):
                break
            self.commits(1000)
            self.stream_arrives(1000)
            self.client_hears(1000)
            self.client_says(1000)
            self.reports_arrive(1000)
        got = self.client.got
        assert len(got[2]) == len(set(got[2])), "QoS 2 came twice"
        for qos in (1, 2):
            assert self.promised[qos] <= set(got[qos]) <= set(self.sent[qos]), "lost, or made up"
            assert got[qos] == sorted(got[qos]), "out of order"
        assert not [field for field in self.disk.fields() if field[:1] == b"q"], "not forgotten on disk"
        assert not connection.proxy._states, "not forgotten by the session proxy"
        assert not self.client.stored
        assert not self.session.messages.inflight
        assert not self.session.messages.queue


TestDurableMachine = DurableMachine.TestCase
TestDurableMachine.settings = settings(max_examples=100, stateful_step_count=30)
