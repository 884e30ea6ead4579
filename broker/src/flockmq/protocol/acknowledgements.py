"""PUBACK, PUBREC, PUBREL and PUBCOMP of one client: passes them to the session, and answers at once where possible.

Short forms are processed in runs, by offset. All others, and those the session doesn't know, take the slow path. If the
session returns LATER, its owner answers: it sends PUBREL and PUBCOMP after it has committed the change.

An acknowledgement for an unknown packet id is accepted: the client may repeat it, or it may belong to the client's
former connection. One of the wrong type for a known packet id is a protocol error: the exchange would never end.
"""

from __future__ import annotations

from mypy_extensions import i64

from flockmq.mqtt import decode, encode, frame
from flockmq.mqtt.errors import PacketError, protocol_error
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import Channel
from flockmq.routing.sink import FLOWING
from flockmq.session.client_session import DONE, LATER, UNKNOWN


def pubacks(channel: Channel, data: bytes, at: i64, end: i64) -> i64:
    """Process a run of short PUBACKs while their packet ids are known. Returns where the run ends."""
    session = channel.session
    assert session is not None
    first = at
    while at + 4 <= end and data[at] == 0x40 and data[at + 1] == 2:
        if not session.puback(data[at + 2] << 8 | data[at + 3]):
            break
        at += 4
    channel.router.counters.packets_received[frame.PUBACK] += (at - first) >> 2
    if channel.flow != FLOWING:
        channel.progressed()
    return at


def steps(channel: Channel, data: bytes, at: i64, end: i64) -> i64:
    """Process a run of short PUBRECs, PUBRELs and PUBCOMPs while their packet ids are known. Returns where it ends."""
    session = channel.session
    assert session is not None
    answers: list[bytes] = []
    pubrecs: i64 = 0
    pubrels: i64 = 0
    pubcomps: i64 = 0
    while at + 4 <= end and data[at + 1] == 2:
        first = data[at]
        packet_id = data[at + 2] << 8 | data[at + 3]
        if packet_id == 0:
            break
        if first == 0x50:
            heard = session.pubrec(packet_id, False)
            if heard == DONE:
                answers.append(b"\x62\x02" + data[at + 2 : at + 4])
            elif heard == UNKNOWN:
                break
            pubrecs += 1
        elif first == 0x62:
            heard = session.pubrel(packet_id)
            if heard == DONE:
                answers.append(b"\x70\x02" + data[at + 2 : at + 4])
            elif heard == UNKNOWN:
                break
            pubrels += 1
        elif first == 0x70 and session.pubcomp(packet_id):
            pubcomps += 1
        else:
            break
        at += 4
    received = channel.router.counters.packets_received
    received[frame.PUBREC] += pubrecs
    received[frame.PUBREL] += pubrels
    received[frame.PUBCOMP] += pubcomps
    if answers:
        channel.put(b"".join(answers))
    if channel.flow != FLOWING:
        channel.progressed()
    return at


def acknowledgement(channel: Channel, kind: int, body: bytes) -> None:
    """Process one packet of any form. Raises PacketError."""
    session = channel.session
    assert session is not None
    version = channel.protocol_version
    packet_id, reason = decode.ack(kind, version, body, channel.limits.strict_mode)
    if kind == frame.PUBACK:
        if not session.puback(packet_id) and session.contradicts(frame.PUBACK, packet_id):
            raise _contradiction("PUBACK", "MQTT-4.3.3-3")
    elif kind == frame.PUBREC:
        heard = session.pubrec(packet_id, reason >= 0x80)
        if heard == UNKNOWN and session.contradicts(frame.PUBREC, packet_id):
            raise _contradiction("PUBREC", "MQTT-4.3.2-3")
        if heard != LATER and reason < 0x80:
            channel.put(encode.pub_ack(frame.PUBREL, version, packet_id, _reason(heard)))
    elif kind == frame.PUBREL:
        heard = session.pubrel(packet_id)
        if heard != LATER:
            channel.put(encode.pub_ack(frame.PUBCOMP, version, packet_id, _reason(heard)))
    elif not session.pubcomp(packet_id) and session.contradicts(frame.PUBCOMP, packet_id):
        raise _contradiction("PUBCOMP", "MQTT-4.3.3-5")
    if channel.flow != FLOWING:
        channel.progressed()


def _contradiction(packet: str, statement: str) -> PacketError:
    return protocol_error(f"{packet} of a message that isn't to be acknowledged by it", statement)


def _reason(heard: int) -> int:
    return Reason.SUCCESS if heard == DONE else Reason.PACKET_IDENTIFIER_NOT_FOUND
