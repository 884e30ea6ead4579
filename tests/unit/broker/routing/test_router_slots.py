"""Messages for durable sessions go to the dispatcher, once for all slots, and are acknowledged when it says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import ORIGINS_WINDOW
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.routing import forwarded
from flockmq.routing.message_id import (
    ORIGIN,
    Origins,
    is_node_source,
    node_source,
    number_of,
    origin_of,
    session_source,
    source_of,
)
from flockmq.routing.shared_frames import unwrap, wrap
from flockmq.routing.sink import CONGESTED, Sink
from flockmq.routing.targets import NodeTarget, SlotDispatcher, SlotSet, SlotTarget
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish

NO_LOCAL = 0x05
SESSION = session_source(b"12345678")


class Post(SlotDispatcher):
    """Accepts when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[list[int], int, bytes, bytes]] = []
        self.messages: list[tuple[list[int], bytes, bytes]] = []
        self.waiting: list[Callable[[], None]] = []
        self.has_room = True
        self.slow: list[Sink] = []

    def takes(self, slots: SlotSet, message: Publish, *, can_be_refused: bool = True) -> bool:
        return self.has_room and not self.is_short

    def put_run(self, slots: SlotSet, version: int, chunk: bytes, publisher: bytes) -> None:
        self.runs.append((slots.numbers, version, chunk, publisher))

    def put_acknowledged(self, slots: SlotSet, message: Publish, on_accepted: Callable[[], None]) -> int:
        if not self.has_room:
            return -1
        self.messages.append((slots.numbers, message.packet, message.publisher))
        self.waiting.append(on_accepted)
        return 1

    def slow_queues(self, slots: SlotSet, publisher: bytes) -> list[Sink]:
        return self.slow


class OtherNode(NodeTarget):
    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[int, bytes]] = []

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        self.taken.append((version, packet))
        on_accepted()
        return True


@pytest.fixture
def node() -> Node:
    node = Node()
    node.router.dispatcher = Post()
    for filter, slot in ((b"a", SlotTarget(7)), (b"#", SlotTarget(9)), (b"+", SlotTarget(7))):
        node.router.remote.add(filter, slot)
    return node


def post(node: Node) -> Post:
    assert isinstance(node.router.dispatcher, Post)
    return node.router.dispatcher


def test_a_fanout_has_each_slot_once_and_crosses(node: Node) -> None:
    fan = node.router.route(b"a").fanout
    assert fan.slots is not None
    assert (sorted(fan.slots.numbers), fan.crosses, fan.reaches_nobody) == ([7, 9], True, False)
    assert fan.sessions4 is None
    assert fan.sessions5 is None


def test_qos_1_is_acknowledged_when_every_owner_has_it(node: Node) -> None:
    publisher = node.client("p")
    packet = publish(4, "a", "x", qos=1, packet_id=3)
    assert node.feed(publisher, packet) == []
    ((slots, taken, by),) = post(node).messages
    assert (sorted(slots), taken, by) == ([7, 9], packet, b"")
    post(node).waiting[0]()
    node.turn()
    assert publisher.packets() == [b"\x40\x02\x00\x03"]


def test_qos_0_goes_as_runs_that_say_which_5_0_client_published_them(node: Node) -> None:
    old, new = node.client("old"), node.client("new", 5)
    run = publish(4, "a", "1") + publish(4, "a", "2")
    node.feed(old, run)
    node.feed(new, publish(5, "a", "3"))
    (_, version, chunk, by), (_, other, _, author) = post(node).runs
    assert (version, chunk, by) == (4, run, b"")
    assert (other, author) == (5, b"new")


def test_a_queue_without_room_refuses_to_a_5_0_client_and_ends_a_3_1_1_client(node: Node) -> None:
    post(node).has_room = False
    new, old = node.client("n", 5), node.client("o")
    assert node.feed(new, publish(5, "a", "x", qos=1, packet_id=1)) == [b"\x40\x03\x00\x01\x97"]
    assert node.feed(old, publish(4, "a", "x", qos=1, packet_id=1)) == []
    assert old.state == CLOSED
    assert node.router.counters.dropped_no_room == 2


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_retained_before_redis_was_short_of_memory_is_not_refused(node: Node, qos: int) -> None:
    publisher = node.client("n", 5)
    node.port.hold = True
    node.feed(publisher, publish(5, "a", "x", qos=qos, packet_id=1, retain=True))
    (pending,) = node.port.inbound
    post(node).is_short = True
    pending.logged(Reason.SUCCESS)
    assert len(post(node).messages) == 1
    post(node).waiting[0]()
    node.turn()
    assert [packet[2:4] for packet in publisher.packets()] == [b"\x00\x01"], "no reason code: success"


def test_what_would_be_retained_while_redis_is_short_of_memory_is_refused_and_not_logged(node: Node) -> None:
    publisher = node.client("n", 5)
    node.port.hold = post(node).is_short = True
    assert node.feed(publisher, publish(5, "a", "x", qos=1, packet_id=1, retain=True)) == [b"\x40\x03\x00\x01\x97"]
    assert node.port.inbound == []


def test_who_publishes_to_a_slow_queue_pauses_until_it_drained(node: Node) -> None:
    queue = Sink(node.router.turn, 5)
    queue.flow = CONGESTED
    post(node).slow, post(node).congested = [queue], 1
    one, two = node.client("1"), node.client("2")
    node.feed(one, publish(4, "a", "x", qos=1, packet_id=1))
    node.feed(two, publish(4, "a", "x"))
    assert (one.paused, two.paused) == (1, 1)
    node.router.pauses.release(queue)
    node.turn()
    assert (one.paused, two.paused) == (0, 0)


def test_what_a_member_here_has_no_room_for_is_anothers_or_refused() -> None:
    """A slot whose last member left passes on what was dealt out to it."""
    owner, filter = Node(Limits(max_mqueue_len=1)), b"$share/g/a"
    member = owner.client("m")
    owner.subscribe(member, (filter.decode(), 1))
    refused: list[bytes] = []
    owner.router.shared.on_refused = lambda _, message, _accepted: refused.append(message.payload())
    counters, given = owner.router.counters, 0
    while not member.has_ended():
        packet = publication(4, 1, False, b"a", b"%d" % given, b"").packet
        (item,) = unwrap(wrap(filter, 0, 0, packet))
        owner.router.shared.pass_on(item, 4, None)
        given += 1
    assert counters.dropped_no_member + len(refused) == given, "nobody is left, and none is forgotten"


def subscriber(node: Node, client_id: str, options: int) -> Client:
    client = node.client(client_id, 5, Connect(5, client_id.encode()))
    node.subscribe(client, ("a", options))
    return client


def test_no_local_goes_by_the_client_id_where_the_connection_is_elsewhere() -> None:
    owner = Node()
    me, other = subscriber(owner, "me", NO_LOCAL), subscriber(owner, "other", NO_LOCAL)
    run = publish(5, "a", "1")
    forwarded.take_run(owner.router, 5, run, b"me")
    owner.turn()
    assert (me.packets(), other.packets()) == ([], [run])
    message = publication(5, 1, False, b"a", b"2", b"")
    message.publisher = b"other"
    owner.router.delivery.deliver(owner.router.route(b"a").fanout, message, None)
    owner.turn()
    assert (len(me.packets()), other.packets()) == (1, [])
    forwarded.take(owner.router, 5, run)
    owner.turn()
    assert me.packets() == other.packets() == [run]


def test_a_message_with_an_origin_is_forwarded_with_it_and_delivered_once() -> None:
    here, there = Node(), Node()
    link = OtherNode()
    here.router.remote.add(b"a", link)
    local, remote = here.client("local"), there.client("remote")
    for node, client in ((here, local), (there, remote)):
        node.subscribe(client, ("a", 2))
    for number in (1, 2, 1, 2, 3):
        message = publication(4, 2, False, b"a", b"%d" % number, b"")
        message.origin = origin_of(SESSION, number)
        fan = here.router.route(b"a").fanout
        assert here.router.forward(fan, message, lambda: None) == 1
        here.router.delivery.deliver(fan, message, None)
    for version, chunk in link.taken:
        assert version == 4 | ORIGIN
        forwarded.take(there.router, version, chunk)
    for node, client in ((here, local), (there, remote)):
        node.turn()
        assert [packet[-1:] for packet in client.packets()] == [b"1", b"2", b"3"]


def test_many_packets_with_their_origins_come_in_one_chunk() -> None:
    there = Node()
    client = there.client("c")
    there.subscribe(client, ("a", 2))
    packets = [publication(4, 2, False, b"a", b"%d" % number, b"").packet for number in range(3)]
    chunk = b"".join(origin_of(SESSION, number) + packet for number, packet in enumerate(packets))
    forwarded.take(there.router, 4 | ORIGIN, chunk + chunk)
    there.turn()
    assert len(client.packets()) == 3


def test_an_origin_is_a_source_and_a_number() -> None:
    origin = origin_of(SESSION, 2**64 - 1)
    assert (len(origin), source_of(origin), number_of(origin)) == (16, SESSION, 2**64 - 1)
    assert is_node_source(node_source("a@1"))
    assert not is_node_source(session_source(b"\xff" * 8))
    assert node_source("a@1") != node_source("a@2")
    process = "a@0123456789abcdef"
    assert node_source(f"{process}0000") == node_source(f"{process}0001"), "whichever of its lives it is"


def test_of_many_sources_those_are_known_that_were_heard_last() -> None:
    origins = Origins(2)
    one, two, three = (session_source(bytes((n,)) * 8) for n in (1, 2, 3))
    assert [origins.is_new(origin_of(source, 5)) for source in (one, two, one, three)] == [True, True, False, True]
    assert len(origins) == 2
    assert not origins.is_new(origin_of(one, 5))
    assert origins.is_new(origin_of(two, 5))


def test_what_comes_behind_a_later_one_is_new_once() -> None:
    """Its client sent that again at another node."""
    origins = Origins()
    numbers = (7, 20, 9, 8, 9, 7, 20, 21)
    seen = [number for number in numbers if not origins.is_new(origin_of(SESSION, number))]
    assert seen == [9, 7, 20]
    assert origins.is_new(origin_of(SESSION, 21 + ORIGINS_WINDOW))
    assert not origins.is_new(origin_of(SESSION, 21)), "too long ago to be known"
    assert origins.is_new(origin_of(SESSION, 22))
    assert origins.is_new(origin_of(SESSION, 2**64 - 1))


@given(st.lists(st.integers(0, 20) | st.integers(0, 2 * ORIGINS_WINDOW)))
def test_each_number_is_new_once_and_those_long_before_the_last_never(numbers: list[int]) -> None:
    origins, seen = Origins(), set[int]()
    for number in numbers:
        is_known = number in seen or max(seen, default=0) - number >= ORIGINS_WINDOW
        assert origins.is_new(origin_of(SESSION, number)) != is_known
        seen.add(number)
