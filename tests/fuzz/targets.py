"""What is fuzzed, and what must hold for any bytes: `codec` takes one packet apart, `connection` drives whole ones.

A target takes bytes and returns; it raises when something that always holds didn't. Nothing of it does I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from conformance.wire import CONNACK, DISCONNECT, V5, V31, V311, parsed
from flockmq.mqtt import decode, encode, frame
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import parse_publish
from flockmq.mqtt.packets import Connect, Subscribe, Unsubscribe
from flockmq.mqtt.topic_aliases import IncomingAliases
from flockmq.protocol.channel import CLOSED
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish, split

VERSIONS: Final = (V31, V311, V5)


def codec(data: bytes) -> None:
    """One packet in each version: refused by PacketError alone, or accepted as exactly what it says."""
    if len(data) < 2:
        return
    for version in VERSIONS:
        try:
            frame.check_flags(data[0], version)
            length, at = frame.remaining_length(data, 1, version)
        except PacketError:
            continue
        if length != frame.INCOMPLETE and at + length <= len(data):
            _packet(version, data[: at + length], at)


def _packet(version: int, packet: bytes, at: int) -> None:
    body = packet[at:]
    kind = packet[0] >> 4
    decoders: dict[int, Callable[[], object]] = {
        frame.CONNECT: partial(decode.connect, body),
        frame.SUBSCRIBE: partial(decode.subscribe, version, body),
        frame.UNSUBSCRIBE: partial(decode.unsubscribe, version, body),
        frame.DISCONNECT: partial(decode.disconnect, version, body),
        frame.AUTH: partial(decode.auth, body),
        frame.PINGREQ: partial(decode.pingreq, body),
        frame.PUBLISH: partial(_publish, version, packet, at),
    }
    for ack in (frame.PUBACK, frame.PUBREC, frame.PUBREL, frame.PUBCOMP):
        decoders[ack] = partial(decode.ack, ack, version, body)
    if kind not in decoders:
        return
    try:
        taken = decoders[kind]()
    except PacketError:
        return
    again = _encoded(version, taken)
    if again is not None:
        assert len(again) <= len(packet) + 4, "accepted as something longer"
        length, start = frame.remaining_length(again, 1)
        assert _fields(_again(version, taken, again[start : start + length])) == _fields(taken)


def _publish(version: int, packet: bytes, at: int) -> None:
    """What is parsed stands in the packet; its forms in both versions are whole packets with the same payload."""
    kept = 5 if version == V5 else 4
    message = parse_publish(packet, 0, at, len(packet), kept, IncomingAliases(8))
    payload = message.payload()
    assert packet.endswith(payload)
    for to_version in (4, 5):
        for qos in range(message.qos + 1):
            form = message.form(to_version, qos, False)
            assert split(form) == [form]
            length, start = frame.remaining_length(form, 1, 5)
            assert start + length == len(form)
            assert form.endswith(payload)


def _encoded(version: int, taken: object) -> bytes | None:
    if isinstance(taken, Connect):
        return encode.connect(taken)
    if isinstance(taken, Subscribe):
        return encode.subscribe(version, taken.packet_id, taken.subscriptions, taken.properties)
    if isinstance(taken, Unsubscribe):
        return encode.unsubscribe(version, taken.packet_id, taken.filters, taken.properties)
    return None


def _again(version: int, taken: object, body: bytes) -> object:
    if isinstance(taken, Connect):
        return decode.connect(body)
    if isinstance(taken, Subscribe):
        return decode.subscribe(version, body)
    return decode.unsubscribe(version, body)


def _fields(packet: object) -> object:
    """A packet as plain data."""
    if isinstance(packet, list):
        return [_fields(item) for item in packet]
    names = [name for name in dir(packet) if not name.startswith("_")]
    if isinstance(packet, (int, bytes, tuple)) or packet is None:
        return packet
    return {name: _fields(getattr(packet, name)) for name in names}


def _small(strict_mode: bool) -> Limits:
    return Limits(
        max_packet_size=4096,
        max_inflight=3,
        max_mqueue_len=8,
        max_awaiting_rel=3,
        max_topic_alias=4,
        max_session_expiry_interval=2**32 - 2,  # one more is for ever
        strict_mode=strict_mode,
    )


SMALL: Final = _small(False)
STRICT: Final = _small(True)


def connection(data: bytes) -> None:
    """Reads of up to three connections, the third in strict mode, cut as the bytes say; a fourth, who is decent,
    notices nothing.

    A read is a byte that says whose it is and what comes behind it (2 bits each), a byte with its length, and itself.
    """
    node = Node(SMALL)
    witness = node.client("witness", 5)
    node.subscribe(witness, ("witness", 0))
    clients = [Client(node.router, node.port, limits) for limits in (SMALL, SMALL, STRICT)]
    everybody = list(clients)
    at = 0
    while at + 2 <= len(data):
        control, size = data[at], data[at + 1]
        read, at = data[at + 2 : at + 2 + size], at + 2 + size
        client = clients[control % 3]
        if client.paused == 0 and read:
            client.feed(read)
        if control & 0x10:
            client.lost()
        if control & 0x20:
            node.router.host.now_s += 1.0
        if control & 0x40:
            clients[control % 3] = node.opened()
            everybody.append(clients[control % 3])
        if control & 0x80:
            _answer(node)
        node.turn()
        _check_answers(client)
    greeting = publish(5, "witness", "hello")
    witness.packets()
    assert greeting in node.feed(witness, greeting)
    _check_gone(node, [*everybody, witness])


def _answer(node: Node) -> None:
    """The node's log answers what waits for it, or holds it back from now on."""
    port = node.port
    port.hold = not port.hold
    while port.claiming:
        port.claiming.pop(0)({})
    while port.unanswered:
        port.unanswered.pop(0)(0, False)
    while port.inbound:
        port.inbound.pop(0).logged(0)


def _check_answers(client: Client) -> None:
    """Whole packets of the client's version, and none behind a DISCONNECT or a CONNACK that refuses."""
    packets = client.packets()
    for position, packet in enumerate(packets):
        length, at = frame.remaining_length(packet, 1, 5)
        assert at + length == len(packet)
        answer = parsed(V5 if client.protocol_version == 5 else V311, packet[0], packet[at:])
        if answer.kind == DISCONNECT or (answer.kind == CONNACK and answer.reason >= 0x80):
            assert position == len(packets) - 1
            assert client.state == CLOSED


def _check_gone(node: Node, everybody: list[Client]) -> None:
    """Nothing of them is left once they are gone."""
    for client in everybody:
        client.lost()
    node.port.hold = True
    _answer(node)
    node.turn()
    router = node.router
    assert (len(router.pauses.slow), router.partials.bytes, router.counters.subscriptions) == (0, 0, 0)
    assert len(router.local) == 0
    assert all(
        client.state == CLOSED and client.session is None and client.publish_queue is None for client in everybody
    )


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {"codec": codec, "connection": connection}
