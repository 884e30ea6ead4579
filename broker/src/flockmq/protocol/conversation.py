"""The MQTT conversation with one client: parses its bytes, calls the session and the node, and writes the answers.

Sans-I/O: a listener feeds the bytes it read and flushes what was put; the node answers through the port. The fast path
of a PUBLISH is in `fast_path`, its slow path in `publisher`, CONNECT in `connect`, acknowledgements in
`acknowledgements`. This file processes all other packets, one at a time.

Invariants: nothing is processed while `paused` is not 0. Unprocessed bytes are kept in `_rest`, at most one packet of
`max_packet_size` and one read. `close` puts the last packet; then the listener closes the socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from flockmq.bounds import PARTIAL_CHUNKS_MAX, PARTIAL_COUNTED_BYTES, RECEIVERS_PER_READ_MAX
from flockmq.mqtt import decode, encode, frame
from flockmq.mqtt.errors import PacketError, protocol_error
from flockmq.mqtt.packets import Connect, Subscribe
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topic_aliases import IncomingAliases
from flockmq.protocol import acknowledgements, publisher
from flockmq.protocol import connect as opening
from flockmq.protocol.channel import ADMITTING, AUTHENTICATING, CLOSED, CONNECTED, OPENED, Channel
from flockmq.protocol.ports import NodePort
from flockmq.protocol.publish_queue import queue_of
from flockmq.protocol.subscribe import SubscribeRequest, UnsubscribeRequest
from flockmq.routing import fast_path
from flockmq.routing.router import Router
from flockmq.session.client_session import ClientSession
from flockmq.session.limits import Limits

_REFERENCE_BYTES: Final = 12
"""Size of the fields before a server reference of up to 1,024 bytes, in DISCONNECT or CONNACK."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Conversation(Channel):
    """Implements `Channel` for one client."""

    __slots__ = ("_need", "_rest", "_rest_bytes", "port")

    def __init__(self, router: Router, port: NodePort, limits: Limits) -> None:
        super().__init__(router, limits)
        self.port = port
        self._rest: list[bytes] | None = None
        self._rest_bytes: i32 = 0
        self._need: i32 = 0

    def has_ended(self) -> bool:
        return self.state == CLOSED

    def authorize(self, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]) -> int:
        return self.port.authorization.authorize(self, action, topic, qos, retain, done)

    def denied(self, action: int, topic: bytes) -> bool:
        return self.port.access.denied(self, action, topic)

    def flush_soon(self) -> None:
        self.port.flush_soon()

    # Bytes in.

    def feed(self, data: bytes) -> None:
        router = self.router
        if self.state == CONNECTED:  # Before CONNACK, bytes that trickle in don't extend the timeout.
            self.last_seen_s = router.host.now_s
        router.counters.bytes_received += len(data)
        self.bytes_in += len(data)
        rest = self._rest
        if rest is not None:
            if data:
                rest.append(data)
                self._rest_bytes += len(data)
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
            self._rest_bytes = i32(len(data) - at)
            if self._need:
                self._wait(self._rest)

    def _wait(self, rest: list[bytes]) -> None:
        """Wait for the rest of a packet. Neither many small chunks nor many large incomplete packets may use all
        memory.
        """
        if len(rest) > PARTIAL_CHUNKS_MAX:
            rest[:] = [b"".join(rest)]
        if self._rest_bytes < PARTIAL_COUNTED_BYTES or self.state != CONNECTED:
            return
        partials = self.router.partials
        partials.has_come(self.principal.username, self, self._rest_bytes)
        for client in partials.excess():
            assert isinstance(client, Conversation)
            client.close(Reason.QUOTA_EXCEEDED, "too many packets that aren't whole wait at this node")

    def _forget_rest(self) -> None:
        if self._rest is not None:
            self._rest = None
            if self._rest_bytes >= PARTIAL_COUNTED_BYTES:
                self.router.partials.ended(self.principal.username, self)
            self._rest_bytes = 0

    def held_bytes(self) -> int:
        return super().held_bytes() + self._rest_bytes

    def _consume(self, data: bytes) -> i64:
        """Process complete packets. Returns the offset of the first byte that wasn't processed."""
        at: i64 = 0
        end: i64 = len(data)
        self._need = 0
        router = self.router
        most = router.receivers + RECEIVERS_PER_READ_MAX
        while at < end and self.paused == 0 and self.state != CLOSED:
            if router.receivers > most:
                self.pauses.rest(self)
                break
            first = data[at]
            if self.state == CONNECTED:
                if first == 0x30 and self.publish_queue is None and self.plain:
                    plain_end = fast_path.scan(router, data, at, self.protocol_version, self)
                    if plain_end != at:
                        at = plain_end
                        continue
                elif first == 0x32 and self.publish_queue is None and self.plain and not router.stale:
                    plain_end = fast_path.scan_acknowledged(router, data, at, self)
                    if plain_end != at:
                        at = plain_end
                        continue
                elif first == 0x40:
                    acks_end = acknowledgements.pubacks(self, data, at, end)
                    if acks_end != at:
                        at = acks_end
                        continue
                elif first in (0x50, 0x62, 0x70):
                    steps_end = acknowledgements.steps(self, data, at, end)
                    if steps_end != at:
                        at = steps_end
                        continue
                frame.check_flags(first, frame.V31 if self.is_mqtt31 else self.protocol_version)
            elif self.state == AUTHENTICATING:
                if first not in (0xF0, 0xE0):
                    raise protocol_error(
                        "a packet during authentication that is neither AUTH nor DISCONNECT", "MQTT-3.1.2-30"
                    )
            elif first != 0x10:
                raise protocol_error("the first packet isn't CONNECT", "MQTT-3.1.0-1")
            length, body = frame.remaining_length(data, at + 1, self.protocol_version)
            if length == frame.INCOMPLETE:
                break
            packet_end = body + length
            size = packet_end - at
            if size > self.limits.max_connect_packet_size and size > self._packet_limit():
                raise self._too_large(size, data[body:])
            if packet_end > end:
                self._need = i32(size)
                break
            self._packet(data, at, body, packet_end)
            at = packet_end
        return at

    def _packet_limit(self) -> int:
        limits = self.limits
        return limits.max_packet_size if self.state == CONNECTED else limits.max_connect_packet_size

    def _too_large(self, size: int, body: bytes) -> PacketError:
        """The error for a too large packet. Reads the version from an incomplete CONNECT, to answer in it."""
        if self.state == OPENED:
            self.protocol_version = decode.answer_version(body)
        why = f"packet of {size} bytes; the limit is {self._packet_limit()}"
        return PacketError(Reason.PACKET_TOO_LARGE, "MQTT-3.2.2-15", why)

    def _packet(self, data: bytes, at: int, body: int, end: int) -> None:
        kind = data[at] >> 4
        if kind == frame.PUBLISH:
            publisher.receive(self, self.port, data, at, body, end)
            return
        self.router.counters.packets_received[kind] += 1
        if kind == frame.CONNECT:
            self._connect(data[body:end], body - at)
        elif kind == frame.PINGREQ:
            decode.pingreq(data[body:end])
            self.put(encode.PINGRESP)
        elif kind == frame.SUBSCRIBE:
            self.subscribe(decode.subscribe(self.protocol_version, data[body:end], self.limits.strict_mode))
        elif kind == frame.UNSUBSCRIBE:
            self._unsubscribe(data[body:end])
        elif kind == frame.DISCONNECT:
            self._disconnect(data[body:end])
        elif frame.PUBACK <= kind <= frame.PUBCOMP:
            acknowledgements.acknowledgement(self, kind, data[body:end])
        elif kind == frame.AUTH:
            self._auth(data[body:end])
        else:
            raise protocol_error(f"packet type {kind} is the server's", "section 2.1.2")

    # CONNECT and AUTH.

    def _connect(self, body: bytes, header_bytes: int) -> None:
        if self.state != OPENED:
            raise protocol_error("a second CONNECT", "MQTT-3.1.0-2")
        self.protocol_version = decode.answer_version(body)
        if self.protocol_version == 5:
            frame.check_header(header_bytes, len(body))
        connect = decode.connect(body, self.limits.strict_mode)
        self.is_mqtt31 = connect.version == frame.V31
        self.protocol_version = 5 if connect.version == 5 else 4
        opening.check(connect, self.limits)
        self.session = opening.session_of(self, connect, self.limits)
        self.will = opening.will_of(connect, self.protocol_version)
        if connect.version == 5 and self.limits.max_topic_alias:
            self.aliases = IncomingAliases(self.limits.max_topic_alias)
        if connect.properties is not None:
            self.authentication_method = connect.properties.authentication_method
            self.asked_expiry = bool(connect.properties.session_expiry_interval)
        self.state = ADMITTING
        self.pause()
        self.port.access.admit(self, connect)

    def admitted(
        self, connect: Connect, token: object, session: ClientSession, present: bool, extra: Properties | None = None
    ) -> None:
        if self.state != ADMITTING:
            return
        self.token = token
        self.session = session
        connack = opening.connack(connect, self.limits, session, present, extra)
        if 0 < session.max_packet_bytes < len(connack):
            self._end(Reason.PACKET_TOO_LARGE)  # Without CONNACK: it would be too large for the client.
            return
        self.admitted_once = True
        self.connected_s = self.router.host.now_s
        self.state = CONNECTED
        keep_alive_s = self.limits.server_keepalive or connect.keep_alive_s  # [MQTT-3.1.2-21]
        self.keepalive_s = keep_alive_s * self.limits.keepalive_multiplier
        self.put(connack)
        if present:
            session.send_again()
        self.unpause()

    def refuse(self, reason: int, why: str = "") -> None:
        if self.state == CLOSED:
            return
        self.router.counters.connects_refused += 1
        self.port.refused(self, reason)
        own = _reason_string(why) if reason != Reason.USE_ANOTHER_SERVER else self._server_reference()
        largest = self._largest()
        connack = encode.connack(self.protocol_version, reason, own=own, max_bytes=largest)
        if not 0 < largest < len(connack):
            self.put(connack)
        self._end(reason)

    def _auth(self, body: bytes) -> None:
        if self.protocol_version != 5:
            raise protocol_error("AUTH before MQTT 5.0", "section 2.1.2")
        packet = decode.auth(body, self.limits.strict_mode)
        method = None if packet.properties is None else packet.properties.authentication_method
        if self.authentication_method is None:
            raise protocol_error("AUTH without an authentication method in CONNECT", "MQTT-4.12.0-7")
        if method != self.authentication_method:
            raise protocol_error("AUTH with another authentication method than CONNECT", "MQTT-4.12.0-5")
        if self.state == AUTHENTICATING:
            if packet.reason != Reason.CONTINUE_AUTHENTICATION:
                raise protocol_error("re-authentication before CONNACK", "MQTT-4.12.1-1")
            self.state = ADMITTING
            self.pause()
        self.port.access.continued(self, packet)

    def challenged(self, data: bytes) -> None:
        if self.state == CLOSED:
            return
        self.answer(encode.auth(Reason.CONTINUE_AUTHENTICATION, self._authentication(data)))
        if self.state == ADMITTING:
            self.state = AUTHENTICATING
            self.last_seen_s = self.router.host.now_s
            self.unpause()

    def reauthenticated(self, data: bytes | None) -> None:
        if self.state == CONNECTED:
            self.answer(encode.auth(Reason.SUCCESS, self._authentication(data)))

    def _authentication(self, data: bytes | None) -> Properties:
        properties = Properties()
        properties.authentication_method = self.authentication_method
        properties.authentication_data = data
        return properties

    # SUBSCRIBE, UNSUBSCRIBE.

    def subscribe(self, packet: Subscribe) -> None:
        session = self.session
        assert session is not None
        SubscribeRequest(self, self.port, session, packet).authorize()

    def _unsubscribe(self, body: bytes) -> None:
        packet = decode.unsubscribe(self.protocol_version, body, self.limits.strict_mode)
        session = self.session
        assert session is not None
        filters = packet.filters
        if self.router.intercepts_subscriptions:
            filters = [self.port.hooks.unsubscribing(self, filter) for filter in filters]
        self.subscribe_waits()
        session.unsubscribe(UnsubscribeRequest(self, self.port, session, packet.packet_id, filters))

    # The end.

    def _disconnect(self, body: bytes) -> None:
        packet = decode.disconnect(self.protocol_version, body, self.limits.strict_mode)
        self._change_expiry(packet.properties)
        if packet.reason == Reason.SUCCESS:
            self.will = None  # [MQTT-3.14.4-3]
        self.clean_end = True
        self._end(packet.reason)

    def _change_expiry(self, properties: Properties | None) -> None:
        session = self.session
        if session is None or properties is None or properties.session_expiry_interval is None:
            return
        if not self.asked_expiry and properties.session_expiry_interval:
            raise protocol_error("DISCONNECT with a session expiry, which CONNECT did not have", "section 3.14.2.2.2")
        session.expiry_s = min(properties.session_expiry_interval, self.limits.max_session_expiry_interval)

    def _violated(self, error: PacketError) -> None:
        self.router.counters.protocol_errors += 1
        self.port.violated(self, error)
        if self.state == CONNECTED:
            self.close(error.reason, str(error))
        elif self.state == OPENED and error.statement != "MQTT-3.1.0-1":
            self.refuse(error.reason, str(error))
        else:
            self._end(error.reason)

    def close(self, reason: int, why: str = "") -> None:
        if self.state == CLOSED:
            return
        if self.state == CONNECTED and self.protocol_version == 5:
            self.put(encode.disconnect(5, reason, _reason_string(why), max_bytes=self._largest()))
        self._end(reason)

    def send_away(self, to_others: bool) -> None:
        is_connected, is_v5 = self.state == CONNECTED, self.protocol_version == 5
        if not to_others and not (is_connected and is_v5 and self.limits.server_reference):
            self.close(Reason.SERVER_SHUTTING_DOWN)
        elif self.state in (ADMITTING, AUTHENTICATING):
            self.refuse(Reason.USE_ANOTHER_SERVER)
        elif is_connected and is_v5:
            own = self._server_reference()
            self.put(encode.disconnect(5, Reason.USE_ANOTHER_SERVER, own, max_bytes=self._largest()))
            self._end(Reason.USE_ANOTHER_SERVER)
        else:
            self._end(Reason.USE_ANOTHER_SERVER)

    def _largest(self) -> int:
        """The client's maximum packet size in bytes; 0: it has none."""
        session = self.session
        return 0 if session is None else session.max_packet_bytes

    def _server_reference(self) -> Properties | None:
        reference = self.limits.server_reference.encode()
        if not reference or 0 < self._largest() < len(reference) + _REFERENCE_BYTES:
            return None
        properties = Properties()
        properties.server_reference = reference
        return properties

    def lost(self) -> None:
        self._end(Reason.UNSPECIFIED_ERROR)

    def _end(self, reason: int) -> None:
        """End the connection and give up its session. The listener closes the socket when it flushes."""
        was = self.state
        if was == CLOSED:
            return
        self.state = CLOSED
        self.close_reason = reason
        self.pause()  # for good
        self._forget_rest()
        self.flush_at_turn_end()
        if was == OPENED:
            return
        self.flows()
        session = self.session
        assert session is not None
        will = self.will if was == CONNECTED else None
        queue = queue_of(self)
        if reason == Reason.SESSION_TAKEN_OVER and queue is not None:
            queue.supersede()
        self.port.gone(self, session, will)
        self.will = None
        self._leave(session)

    def _leave(self, session: ClientSession) -> None:
        """Drop the reference to the session, which may refer to this connection: objects without cycles are freed at
        once.
        """
        self._left_as = session.client_id
        self.session = None
        self.aliases = None
        self.repeats = session.is_remote()
        queue = queue_of(self)
        if queue is not None:
            if queue.is_held:
                self.router.held.abandoned(queue)
            queue.left()


def _reason_string(why: str) -> Properties | None:
    if not why:
        return None
    properties = Properties()
    properties.reason_string = why.encode()
    return properties
