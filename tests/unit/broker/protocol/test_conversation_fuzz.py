"""Whatever clients send: no exception, nobody else disturbed, and nothing of them left when they are gone."""

from __future__ import annotations

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect, ConnectWill, SubscribeEntry
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.routing.sink import FLOWING
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish, split

TOPICS = ("a", "a/b", "c/1", "c/2", "witness/not", "long/" + "x" * 600)
FILTERS = (b"#", b"a/#", b"c/+", b"a", b"$share/g/a", b"+/+")
EVER_S = 1e6
SMALL = Limits(max_packet_size=2000, max_inflight=2, max_mqueue_len=8, max_awaiting_rel=3)
STRICT = Limits(max_packet_size=2000, max_inflight=2, max_mqueue_len=8, max_awaiting_rel=3, strict_mode=True)


def packet(seed: random.Random, version: int) -> bytes:
    packet_id = seed.randrange(1, 6)
    kind = seed.randrange(10)
    if kind < 4:
        qos = seed.randrange(3)
        return publish(
            version,
            seed.choice(TOPICS),
            "x" * seed.choice((0, 1, 100, 1500)),
            qos=qos,
            packet_id=packet_id if qos else 0,
            retain=seed.random() < 0.2,
            dup=qos > 0 and seed.random() < 0.2,
        )
    if kind == 4:
        requests = [SubscribeEntry(seed.choice(FILTERS), seed.randrange(3)) for _ in range(seed.randrange(1, 4))]
        return encode.subscribe(version, packet_id, requests)
    if kind == 5:
        return encode.unsubscribe(version, packet_id, [seed.choice(FILTERS)])
    if kind < 9:
        return bytes((seed.choice((0x40, 0x40, 0x50, 0x62, 0x70)), 2, 0, packet_id))
    return encode.PINGREQ if seed.random() < 0.9 else encode.disconnect(version, 0)


def mutated(seed: random.Random, stream: bytes) -> bytes:
    """A few bytes changed, taken out, repeated or put in."""
    data = bytearray(stream)
    for _ in range(seed.choice((0, 0, 1, 1, 2, 5))):
        at = seed.randrange(len(data))
        what = seed.randrange(4)
        if what == 0:
            data[at] = seed.choice((0, 1, 0x7F, 0x80, 0xFF, seed.randrange(256)))
        elif what == 1:
            del data[at : at + seed.randrange(1, 9)]
        elif what == 2:
            data[at:at] = data[at : at + seed.randrange(1, 40)]
        else:
            data[at:at] = seed.randbytes(seed.randrange(1, 9))
        if not data:
            return b""
    return bytes(data)


def pieces(seed: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(seed.randrange(len(data) + 1) for _ in range(seed.randrange(6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


def answer_some(seed: random.Random, node: Node) -> None:
    """The log answers in its order, now and then."""
    node.port.hold = seed.random() < 0.7
    while node.port.inbound and seed.random() < 0.7:
        node.port.inbound.pop(0).logged(seed.choice((Reason.SUCCESS, Reason.SUCCESS, Reason.QUOTA_EXCEEDED)))
    while node.port.unanswered and seed.random() < 0.7:
        node.port.unanswered.pop(0)(seed.choice((Reason.SUCCESS, Reason.SUCCESS, Reason.UNSPECIFIED_ERROR)), False)


def check_gone(node: Node, clients: list[Client]) -> None:
    for client in clients:
        client.lost()
    while node.port.inbound:
        node.port.inbound.pop(0).logged(Reason.SUCCESS)
    while node.port.unanswered:
        node.port.unanswered.pop(0)(Reason.SUCCESS, False)
    node.turn()
    router = node.router
    assert (len(router.pauses.slow), router.partials.bytes, router.counters.subscriptions) == (0, 0, 0)
    assert len(router.local) == 0
    assert all(client.state == CLOSED and client.session is None and client.publish_queue is None for client in clients)


@settings(max_examples=300)
@given(st.integers(0, 2**64))
@example(1_041_619_807)  # whose third client's session lasts
def test_hostile_clients_disturb_nobody_and_leave_nothing(number: int) -> None:
    seed = random.Random(number)
    node = Node(SMALL)
    witness = node.client("witness", seed.choice((4, 5)))
    node.subscribe(witness, ("witness/#", 0))
    clients: list[Client] = []
    reads: list[list[bytes]] = []
    for index in range(3):
        version = seed.choice((3, 4, 5))
        will = ConnectWill(b"a/b", b"gone", 1, seed.random() < 0.5, None) if seed.random() < 0.5 else None
        stream = encode.connect(Connect(version, b"c%d" % index, will=will))
        stream += b"".join(packet(seed, 5 if version == 5 else 4) for _ in range(30))
        clients.append(Client(node.router, node.port, seed.choice((SMALL, SMALL, STRICT))))
        reads.append(pieces(seed, mutated(seed, stream)))
    rounds = 0
    while any(reads):
        rounds += 1
        chosen = seed.randrange(3)
        if reads[chosen] and clients[chosen].paused == 0:
            clients[chosen].feed(reads[chosen].pop(0))
        elif rounds > 200:
            break
        clients[chosen].stuck = seed.random() < 0.3
        answer_some(seed, node)
        node.router.host.now_s += seed.choice((0.0, 0.1, 1.0))
        for slow in list(node.router.pauses.slow):
            if not slow.check_progress(node.router.host.now_s):
                node.router.pauses.slow.pop(slow, None)
        node.turn()
        for client in clients:
            split(client.written)  # whole packets only
    message = publish(witness.protocol_version, "witness/1", str(number))
    witness.packets()
    assert message in node.feed(witness, message)
    assert witness.flow == FLOWING
    check_gone(node, [*clients, witness])
