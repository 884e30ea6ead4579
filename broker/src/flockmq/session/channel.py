"""One client's connection: bytes in, bytes out, and what the protocol makes of them [MQTT-3, MQTT-4].

Sans-I/O: a listener feeds what it read and flushes what was put; the node answers through the port. The plain road of
QoS 0 is in `ingress`; this file takes every other packet, one at a time.

    OPENED ── CONNECT ──▶ ADMITTING ── admitted ──▶ CONNECTED ──▶ CLOSED
       └────── anything else, refused, timed out ────────────────▶ CLOSED

What always holds: nothing is processed while `paused` is not 0; bytes that were not processed stand in `_rest`, at most
one packet of `max_packet_bytes` and one read; `close` puts the last packet, and the listener closes behind it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import PARTIAL_CHUNKS_MAX, PARTIALS_MAX_BYTES, READ_MAX_BYTES, SUBSCRIBES_WAITING_MAX
from flockmq.mqtt import decode, encode, frame
from flockmq.mqtt.errors import PacketError, protocol_error
from flockmq.mqtt.properties import encode as encode_properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import check_topic_name
from flockmq.session import ingress
from flockmq.session.inbound import LOGGING, READY, Line
from flockmq.session.limits import Limits
from flockmq.session.pacing import Paced
from flockmq.session.port import NodePort
from flockmq.session.publish import Publish, parse_publish, publication
from flockmq.session.router import Router
from flockmq.session.session import Session
from flockmq.session.sink import FLOWING
from flockmq.session.subscribing import Subscribing
from flockmq.session.subscription import Subscription

OPENED: Final = 0
ADMITTING: Final = 1
CONNECTED: Final = 2
CLOSED: Final = 3

_ACK_HEADS: Final = (b"", b"\x40\x02", b"\x50\x02")


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Channel(Paced):
    """`protocol_version` is 4 for 3.1 and 3.1.1 and 5 for 5.0 (4 before CONNECT); times are the router's seconds."""

    __slots__ = (
        "_need",
        "_rest",
        "_rest_bytes",
        "admitted_once",
        "clean_end",
        "close_reason",
        "keepalive_s",
        "limits",
        "line",
        "line_paused",
        "port",
        "session",
        "state",
        "subscribes_waiting",
        "token",
        "will",
    )

    def __init__(self, router: Router, port: NodePort, limits: Limits) -> None:
        super().__init__(router, 4)
        self.port = port
        self.limits = limits
        self.state: int = OPENED
        self.session: Session | None = None
        self.line: Line | None = None
        self.line_paused: bool = False
        self.will: Publish | None = None
        self.token: object = None
        self.subscribes_waiting: int = 0
        self.keepalive_s: float = limits.idle_timeout_s
        self.clean_end: bool = False
        self.admitted_once: bool = False
        self.close_reason: int = Reason.SUCCESS
        self._rest: list[bytes] | None = None
        self._rest_bytes: int = 0
        self._need: int = 0

    def client_id(self) -> bytes:
        """Empty before CONNECT."""
        session = self.session
        return b"" if session is None else session.client_id

    def address(self) -> str:
        """The client's address, for the log; a listener knows."""
        return "?"

    def has_ended(self) -> bool:
        return self.state == CLOSED

    def is_crowded(self) -> bool:
        session = self.session
        return session is not None and session.is_crowded()

    # Bytes in.

    def feed(self, data: bytes) -> None:
        """Process what was read; never raises for what a client sent."""
        if self.state != OPENED:  # before CONNECT is whole, a byte now and then buys no time
            self.last_seen_s = self.router.now_s
        self.router.counters.bytes_received += len(data)
        rest = self._rest
        if rest is not None:
            if data:
                rest.append(data)
                self._rest_bytes += len(data)
                self.router.partial_bytes += len(data)
            if self._rest_bytes < self._need:
                self._wait(rest)
                return
            data = b"".join(rest) if len(rest) > 1 else rest[0]
            self._forget_rest()
        try:
            at = self._consume(data)
        except PacketError as error:
            self._violated(error)
            return
        if at < len(data) and self.state != CLOSED:
            self._rest = [data[at:] if at else data]
            self._rest_bytes = len(data) - at
            self.router.partial_bytes += self._rest_bytes

    def _wait(self, rest: list[bytes]) -> None:
        """For the rest of a packet, within bounds: neither crumbs nor many large beginnings may take all memory."""
        if len(rest) > PARTIAL_CHUNKS_MAX:
            rest[:] = [b"".join(rest)]
        if self.router.partial_bytes > PARTIALS_MAX_BYTES and self._rest_bytes > READ_MAX_BYTES:
            self.close(Reason.QUOTA_EXCEEDED)

    def _forget_rest(self) -> None:
        if self._rest is not None:
            self._rest = None
            self.router.partial_bytes -= self._rest_bytes

    def _consume(self, data: bytes) -> int:
        """Process whole packets; the offset of the first byte that wasn't."""
        at = 0
        end = len(data)
        self._need = 0
        while at < end and self.paused == 0 and self.state != CLOSED:
            first = data[at]
            if self.state == CONNECTED:
                if first == 0x30 and self.line is None:
                    plain_end = ingress.scan(self.router, data, at, self.protocol_version, self)
                    if plain_end != at:
                        at = plain_end
                        continue
                elif first == 0x32 and self.line is None:
                    plain_end = ingress.scan_acknowledged(self.router, data, at, self)
                    if plain_end != at:
                        at = plain_end
                        continue
                elif first == 0x40:
                    acks_end = self._pubacks(data, at, end)
                    if acks_end != at:
                        at = acks_end
                        continue
                frame.check_flags(first, self.protocol_version)
            elif first != 0x10:
                raise protocol_error("the first packet isn't CONNECT", "MQTT-3.1.0-1")
            length, body = frame.remaining_length(data, at + 1, self.protocol_version)
            if length == frame.INCOMPLETE:
                break
            packet_end = body + length
            if packet_end - at > self.limits.max_packet_bytes:
                raise PacketError(
                    Reason.PACKET_TOO_LARGE,
                    "MQTT-3.2.2-15",
                    f"packet of {packet_end - at} bytes; the limit is {self.limits.max_packet_bytes}",
                )
            if packet_end > end:
                self._need = packet_end - at
                break
            self._packet(data, at, body, packet_end)
            at = packet_end
        return at

    def _pubacks(self, data: bytes, at: int, end: int) -> int:
        """A run of PUBACKs in their short form."""
        session = self.session
        assert session is not None
        while at + 4 <= end and data[at] == 0x40 and data[at + 1] == 2:
            session.acknowledged(data[at + 2] << 8 | data[at + 3])
            at += 4
        if self.flow != FLOWING:
            self.progressed()
        return at

    def _packet(self, data: bytes, at: int, body: int, end: int) -> None:
        kind = data[at] >> 4
        if kind == frame.PUBLISH:
            self._publish(data, at, body, end)
        elif kind == frame.CONNECT:
            self._connect(data[body:end])
        elif kind == frame.PINGREQ:
            decode.pingreq(data[body:end])
            self.put(encode.PINGRESP)
        elif kind == frame.SUBSCRIBE:
            self._subscribe(data[body:end])
        elif kind == frame.UNSUBSCRIBE:
            self._unsubscribe(data[body:end])
        elif kind == frame.DISCONNECT:
            self._disconnect(data[body:end])
        elif frame.PUBACK <= kind <= frame.PUBCOMP:
            self._acknowledgement(kind, data[body:end])
        elif kind == frame.AUTH:
            raise protocol_error("AUTH without an authentication method in CONNECT", "MQTT-4.12.0-6")
        else:
            raise protocol_error(f"packet type {kind} is the server's", "section 2.1.2")

    # CONNECT.

    def _connect(self, body: bytes) -> None:
        if self.state != OPENED:
            raise protocol_error("a second CONNECT", "MQTT-3.1.0-2")
        self.protocol_version = decode.answer_version(body)
        connect = decode.connect(body)
        self.protocol_version = 5 if connect.version == 5 else 4
        properties = connect.properties
        receive_maximum = 65_535
        max_packet_bytes = 0
        if properties is not None:
            if properties.authentication_method is not None:
                raise PacketError(
                    Reason.BAD_AUTHENTICATION_METHOD, "MQTT-4.12.0-1", "no enhanced authentication method is offered"
                )
            receive_maximum = properties.receive_maximum or 65_535
            max_packet_bytes = properties.maximum_packet_size or 0
        limits = self.limits
        self.session = Session(
            self,
            connect.client_id,
            min(limits.max_inflight, receive_maximum),
            limits.max_mqueue_len,
            max_packet_bytes,
        )
        if connect.keep_alive_s:
            self.keepalive_s = connect.keep_alive_s * limits.keepalive_multiplier
        else:
            self.keepalive_s = 0.0
        will = connect.will
        if will is not None:
            self.will = publication(
                self.protocol_version,
                will.qos,
                will.retain,
                will.topic,
                will.payload,
                encode_properties(frame.PUBLISH, will.properties),
            )
        self.state = ADMITTING
        self.pause()
        self.port.admit(self, connect)

    def admitted(self, token: object, connack: bytes) -> None:
        """The node takes this connection; `token` is what the client's home knows it by."""
        if self.state != ADMITTING:
            return
        self.token = token
        self.admitted_once = True
        self.state = CONNECTED
        self.put(connack)
        self.unpause()

    def refuse(self, reason: int) -> None:
        """CONNACK with a failure, then the end [MQTT-3.1.4-5]."""
        if self.state == CLOSED:
            return
        self.router.counters.connects_refused += 1
        self.put(encode.connack(self.protocol_version, reason))
        self._end(reason)

    # PUBLISH.

    def _publish(self, data: bytes, at: int, body: int, end: int) -> None:
        message = parse_publish(data, at, body, end, self.protocol_version)
        if not self.router.knows(message.topic):
            check_topic_name(message.topic, "MQTT-3.3.2-2")
        self.router.counters.messages_received += 1
        self._take(message)

    def _take(self, message: Publish) -> None:
        """Deliver now where nothing has to be waited for, or join the line."""
        session = self.session
        assert session is not None
        if message.qos == 2:
            if session.is_repeat(message.packet_id):
                if self.line is None or not self.line.holds(message.packet_id):  # else its PUBREC is on its way
                    self.acknowledge(2, message.packet_id, Reason.SUCCESS)
                return
            if session.awaiting_rel is not None and len(session.awaiting_rel) >= self.limits.max_awaiting_rel:
                raise PacketError(
                    Reason.RECEIVE_MAXIMUM_EXCEEDED, "MQTT-3.3.4-9", "more QoS 2 messages than may await PUBREL"
                )
            session.remember(message.packet_id)
        router = self.router
        fan = router.route(message.topic).fanout
        line = self.line
        if line is None and not message.retain and (not fan.peers or message.qos == 0):
            if fan.peers:
                router.forward(fan, message, _nobody_waits)
            router.deliver(fan, message, self)
            self.acknowledge(message.qos, message.packet_id, Reason.SUCCESS)
            return
        if line is None:
            self.line = line = Line(self)
        inbound = line.join(message, LOGGING if message.retain else READY)
        if line.is_full() and not self.line_paused:
            self.line_paused = True
            self.pause()
        if message.retain:
            self.port.retain(inbound)
        else:
            line.advance()

    def acknowledge(self, qos: int, packet_id: int, reason: int) -> None:
        """PUBACK or PUBREC for a message that was taken, or refused with a reason ≥ 0x80."""
        if self.state != CONNECTED or qos == 0:
            return
        if reason == Reason.SUCCESS:
            self.put(_ACK_HEADS[qos] + packet_id.to_bytes(2, "big"))
            return
        session = self.session
        assert session is not None
        if qos == 2 and reason >= 0x80:
            session.released(packet_id)
        if self.protocol_version == 5:
            self.put(encode.pub_ack(frame.PUBACK if qos == 1 else frame.PUBREC, 5, packet_id, reason))
        elif reason >= 0x80:
            self.close(reason)  # 3.1.1 can't refuse a message, and must not acknowledge it [MQTT-4.3.2-2]

    def line_moved(self) -> None:
        """Some of the line were acknowledged: read on when there is room, and take the fast road when it is empty."""
        line = self.line
        if line is None:
            return
        if self.line_paused and line.has_room():
            self.line_paused = False
            self.unpause()
        if len(line) == 0:
            self.line = None

    # Acknowledgements.

    def _acknowledgement(self, kind: int, body: bytes) -> None:
        session = self.session
        assert session is not None
        packet_id, reason = decode.ack(kind, self.protocol_version, body)
        version = self.protocol_version
        if kind == frame.PUBACK:
            session.acknowledged(packet_id)
        elif kind == frame.PUBREC:
            if session.received(packet_id, reason >= 0x80):
                if reason < 0x80:
                    self.put(encode.pub_ack(frame.PUBREL, version, packet_id, Reason.SUCCESS))
            else:
                self.put(encode.pub_ack(frame.PUBREL, version, packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))
        elif kind == frame.PUBREL:
            known = session.released(packet_id)
            answer = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
            self.put(encode.pub_ack(frame.PUBCOMP, version, packet_id, answer))
        else:
            session.completed(packet_id)
        if self.flow != FLOWING:
            self.progressed()

    # SUBSCRIBE, UNSUBSCRIBE.

    def _subscribe(self, body: bytes) -> None:
        session = self.session
        assert session is not None
        packet = decode.subscribe(self.protocol_version, body)
        Subscribing(self, session, packet).start()

    def subscribe_waits(self) -> None:
        """A SUBSCRIBE waits for the log; with too many of them nothing more is read."""
        self.subscribes_waiting += 1
        if self.subscribes_waiting == SUBSCRIBES_WAITING_MAX:
            self.pause()

    def subscribe_answered(self) -> None:
        if self.subscribes_waiting == SUBSCRIBES_WAITING_MAX:
            self.unpause()
        self.subscribes_waiting -= 1

    def _unsubscribe(self, body: bytes) -> None:
        packet = decode.unsubscribe(self.protocol_version, body)
        reasons = self.unsubscribe(packet.filters)
        self.put(encode.unsuback(self.protocol_version, packet.packet_id, reasons))

    def unsubscribe(self, filters: list[bytes]) -> list[int]:
        """Drop the subscriptions with these filters; for each the reason code of UNSUBACK."""
        session = self.session
        assert session is not None
        reasons: list[int] = []
        unrouted: list[bytes] = []
        for filter in filters:
            subscription = session.remove_subscription(filter)
            if subscription is None:
                reasons.append(Reason.NO_SUBSCRIPTION_EXISTED)
            else:
                reasons.append(Reason.SUCCESS)
                self._drop(subscription, unrouted)
        if unrouted:
            self.port.unrouted(unrouted)
        return reasons

    def _drop(self, subscription: Subscription, unrouted: list[bytes]) -> None:
        router = self.router
        router.remove(subscription)
        router.counters.subscriptions -= 1
        if not router.has_local(subscription.filter):
            unrouted.append(subscription.filter)

    # The end.

    def _disconnect(self, body: bytes) -> None:
        packet = decode.disconnect(self.protocol_version, body)
        if packet.reason == Reason.SUCCESS:
            self.will = None  # [MQTT-3.14.4-3]
        self.clean_end = True
        self._end(packet.reason)

    def _violated(self, error: PacketError) -> None:
        self.router.counters.protocol_errors += 1
        self.port.violated(self, error)
        if self.state == CONNECTED:
            self.close(error.reason)
        elif self.state == OPENED and error.statement != "MQTT-3.1.0-1":
            self.refuse(error.reason)
        else:
            self._end(error.reason)

    def close(self, reason: int) -> None:
        """The server ends the connection; a 5.0 client is told why."""
        if self.state == CLOSED:
            return
        if self.state == CONNECTED and self.protocol_version == 5:
            self.put(encode.disconnect(5, reason))
        self._end(reason)

    def lost(self) -> None:
        """The client closed the connection, or the network did."""
        self._end(Reason.UNSPECIFIED_ERROR)

    def _end(self, reason: int) -> None:
        """Leave the tables, send the will; the listener closes the descriptor when it flushes."""
        was = self.state
        if was == CLOSED:
            return
        self.state = CLOSED
        self.close_reason = reason
        self.pause()  # for good
        self._forget_rest()
        if not self.dirty:
            self.dirty = True
            self.turn.append(self)
        if was == OPENED:
            return
        unrouted: list[bytes] = []
        self.flows()
        session = self.session
        assert session is not None
        for subscription in session.all_subscriptions():
            self._drop(subscription, unrouted)
        session.subscriptions = None
        if unrouted:
            self.port.unrouted(unrouted)
        self.port.gone(self)
        will = self.will
        self.will = None
        if will is not None and was == CONNECTED:
            self.port.publish(will)
        self.session = None  # which refers to this channel: objects without cycles go at once

    # Time and pace.

    def overdue(self, now_s: float) -> bool:
        """The client was silent for longer than it promised [MQTT-3.1.2-22], or took too long to say CONNECT.

        While it is paused it isn't listened to.
        """
        return self.paused == 0 and self.keepalive_s != 0.0 and now_s - self.last_seen_s > self.keepalive_s

    def expire(self) -> None:
        """End an overdue connection."""
        self.close(Reason.KEEP_ALIVE_TIMEOUT)

    def overflow(self) -> None:
        """Cut off with a reason rather than left with a gap: the session ends here, and the client knows it."""
        self.close(Reason.QUOTA_EXCEEDED)


def _nobody_waits() -> None:
    """A QoS 0 message is forwarded without an answer."""
