"""Delivery of a message to a router's own sessions.

Invariants: a QoS 0 message without room is dropped and counted. A connected client without room for QoS 1 or 2 is
disconnected, so it never continues with a gap. A publisher to a congested client is paused.
"""

from __future__ import annotations

from flockmq.bounds import SINK_LIMIT_BYTES
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import NO_EXPIRY, Publish, StoredMessage
from flockmq.routing.back_pressure import PausablePublisher, PublisherPauses
from flockmq.routing.fanout import Fanout
from flockmq.routing.message_id import Origins
from flockmq.routing.sink import AWAY, CONGESTED, FLOWING, LAGGING, Sink, SinkHost
from flockmq.routing.subscriber import REFUSED, SENT, UNWANTED, Subscriber, Subscription


class LocalDelivery:
    """One per router. `publishing`: the client id that published the current run on another node. `origins`: ids of
    messages that were delivered here.
    """

    def __init__(self, host: SinkHost, pauses: PublisherPauses) -> None:
        self.host = host
        self.counters = host.counters
        self.pauses = pauses
        self.origins = Origins()
        self.publishing: bytes = b""

    # Runs of QoS 0 packets.

    def emit_to(self, sink: Sink, chunk: bytes, count: int, publisher: PausablePublisher | None) -> None:
        """Send a run of `count` packets, already in this subscriber's form."""
        self.emit_carefully([sink], chunk, count, publisher)
        self.counters.messages_sent += count

    def emit_carefully(self, sinks: list[Sink], chunk: bytes, count: int, publisher: PausablePublisher | None) -> None:
        """Send to sinks of which some may not flow. The caller counts the run as sent to all of them."""
        for sink in sinks:
            if sink.flow == FLOWING:
                sink.put(chunk)
                sink.messages_out += count
            elif sink.flow == LAGGING or sink.out_bytes > SINK_LIMIT_BYTES:
                self.counters.dropped_slow_reader += count
                self.counters.messages_sent -= count
            else:
                sink.put(chunk)
                sink.messages_out += count
                if publisher is not None:
                    self.pauses.pause(sink, publisher)

    def emit_special(
        self, subscriptions: list[Subscription], chunk: bytes, version: int, publisher: PausablePublisher | None
    ) -> None:
        """Send to subscribers that need packets of their own form."""
        for packet in split_run(chunk, version):
            packet.publisher = self.publishing
            for subscription in subscriptions:
                self.deliver_to(subscription, packet, publisher)

    # Single messages.

    def deliver(self, fan: Fanout, message: Publish, publisher: PausablePublisher | None) -> None:
        """Deliver to all local subscribers of a fan-out. A message whose id was seen before is dropped."""
        if message.origin and not self.origins.is_new(message.origin):
            return
        for subscription in fan.deliveries:
            self.deliver_to(subscription, message, publisher)

    def deliver_to(self, subscription: Subscription, message: Publish, publisher: PausablePublisher | None) -> None:
        session = subscription.session
        sink = session.sink
        # Compare client ids: the publisher may have disconnected, or may use another connection now.
        if subscription.no_local:
            client_id = message.publisher if publisher is None else publisher.client_id()
            if client_id == session.client_id:
                own = subscription.of_own()
                if own is None:
                    return
                subscription = own
        qos = message.qos if message.qos < subscription.qos else subscription.qos
        retain = message.retain and subscription.retain_as_published
        self.send(session, message, qos, retain, subscription.identifiers)
        if publisher is not None and sink.flow == CONGESTED:
            self.pauses.pause(sink, publisher)

    def send(
        self, session: Subscriber, message: Publish, qos: int, retain: bool, identifiers: bytes, share: bytes = b""
    ) -> bool:
        """Send one message to one session, in its form. `share`: the share filter through which it came. Returns False
        if the session ended because its queue was full.
        """
        if session.is_detached:
            return False
        sink = session.sink
        if identifiers and sink.protocol_version == 5:
            packet = message.form_with(qos, retain, identifiers)
        else:
            packet = message.form(sink.protocol_version, qos, retain)
        if session.max_packet_bytes and len(packet) > session.max_packet_bytes:
            self.counters.dropped_too_large += 1  # [MQTT-3.1.2-25]
        elif qos:
            stored: StoredMessage | None = None
            if message.expiry_s != NO_EXPIRY:
                stored = StoredMessage(packet, sink.protocol_version, self.host.now_s + message.expiry_s, share)
            elif share:
                stored = StoredMessage(packet, sink.protocol_version, 0.0, share)
            return self.offer(session, packet, message.packet_id, qos, stored)
        elif sink.flow >= LAGGING or sink.out_bytes > SINK_LIMIT_BYTES:
            self._unsent(session, message, packet)
        else:
            sink.put(packet if session.aliases is None else session.aliases.shorten(packet))
            sink.messages_out += 1
            self.counters.messages_sent += 1
        return True

    def _unsent(self, session: Subscriber, message: Publish, packet: bytes) -> None:
        """A QoS 0 message for a client that is offline or reads too slowly: queue or drop it."""
        sink = session.sink
        if sink.flow != AWAY:
            self.counters.dropped_slow_reader += 1
            return
        if message.expiry_s == NO_EXPIRY:
            answer = session.offer_qos0(packet)
        else:
            answer = session.offer_qos0(
                StoredMessage(packet, sink.protocol_version, self.host.now_s + message.expiry_s)
            )
        if answer == UNWANTED:
            self.counters.dropped_away += 1
        elif answer == REFUSED:
            self.counters.dropped_queue_full += 1

    def offer(
        self, session: Subscriber, packet: bytes, packet_id: int, qos: int, stored: StoredMessage | None = None
    ) -> bool:
        """Send or queue one QoS 1 or 2 packet. A connected client without room is disconnected. Returns False if its
        session ended with that, or amid the delivery of this message.
        """
        if session.is_detached:
            return False
        answer = session.offer(packet, packet_id, qos, stored)
        counters = self.counters
        if answer != SENT:
            if answer == REFUSED and session.is_connected():
                if not session.cut_off():
                    if stored is None or not stored.share:  # Otherwise another member gets it.
                        counters.dropped_queue_full += 1
                    return False
                answer = session.offer(packet, packet_id, qos, stored)
            if answer == REFUSED:
                counters.dropped_queue_full += 1
                return True
            if session.sink.flow == FLOWING and session.is_congested():
                session.sink.congest()
        counters.messages_sent += 1
        if qos == 1:
            counters.messages_sent_qos1 += 1
        else:
            counters.messages_sent_qos2 += 1
        return True


def split_run(chunk: bytes, version: int) -> list[Publish]:
    """The messages of a run of QoS 0 packets without properties."""
    messages: list[Publish] = []
    at = 0
    while at < len(chunk):
        length, body = remaining_length(chunk, at + 1, 0)
        topic_end = body + 2 + (chunk[body] << 8 | chunk[body + 1])
        end = body + length
        payload_at = topic_end + 1 if version == 5 else topic_end
        messages.append(Publish(chunk[at:end], version, 0, False, chunk[body + 2 : topic_end], 0, b"", payload_at - at))
        at = end
    return messages
