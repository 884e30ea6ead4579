"""The slow path of a PUBLISH: from the packet through limits, authorization and interception to the router."""

from __future__ import annotations

from typing import Final

from flockmq.bounds import ALLOWED_HEAD_MAX_BYTES, ALLOWED_HEADS_MAX
from flockmq.default_callbacks import ignore
from flockmq.mqtt.errors import PacketError, protocol_error
from flockmq.mqtt.message import Publish, parse_publish
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import check_topic_name, is_system
from flockmq.protocol import strict_mode
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ALLOWED, ASKED, PUBLISH
from flockmq.protocol.pending_publish import CHECKING, DONE, READY, PendingPublish
from flockmq.protocol.ports import NodePort
from flockmq.protocol.publish_queue import first_state, join, queue_of
from flockmq.routing import fast_path
from flockmq.session.client_session import FULL, REPEAT

_DOLLAR: Final = 0x24


def receive(channel: Channel, port: NodePort, data: bytes, at: int, body: int, end: int) -> None:
    """Process the PUBLISH from `at` to `end`, whose variable header begins at `body`. Raises PacketError."""
    message = parse_publish(data, at, body, end, channel.protocol_version, channel.aliases)
    if not channel.router.knows(message.topic):
        check_topic_name(message.topic, "MQTT-3.3.2-2")
    _check_limits(channel, message)
    is_strict = channel.limits.strict_mode
    is_as_indicated = not is_strict or strict_mode.check_publish(message)
    counters = channel.router.counters
    counters.messages_received += 1
    channel.messages_in += 1
    if message.qos == 1:
        counters.messages_received_qos1 += 1
    elif message.qos == 2:
        counters.messages_received_qos2 += 1
    session = channel.session
    assert session is not None
    if message.qos == 2:
        heard = session.receive(message.packet_id, channel.router.host.now_s)
        if heard == REPEAT:
            if is_strict and not data[at] & 8:
                raise protocol_error("a QoS 2 PUBLISH sent again without DUP", "MQTT-3.3.1-1")
            queue = queue_of(channel)
            if queue is None or not queue.holds(message.packet_id):  # Otherwise its PUBREC is on its way.
                channel.acknowledge(2, message.packet_id, Reason.SUCCESS)
            return
        if heard == FULL:
            raise PacketError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED, "MQTT-3.3.4-7", "more QoS 2 messages than may await PUBREL"
            )
    if message.topic[0] == _DOLLAR and channel.router.refuses(message.topic):
        if is_system(message.topic):
            _deny(channel, port, message)
        else:
            _answer(channel, port, message, channel.reason_in_version(Reason.TOPIC_NAME_INVALID))
    elif not is_as_indicated:
        _refuse(channel, port, message, Reason.PAYLOAD_FORMAT_INVALID)
    elif channel.must_authorize:
        _authorize(channel, port, message, fast_path.head_of(data, at, end, channel.protocol_version))
    else:
        if is_strict:
            _remember(channel, fast_path.head_of(data, at, end, channel.protocol_version))
        _take(channel, port, message)


def _check_limits(channel: Channel, message: Publish) -> None:
    limits = channel.limits
    if message.qos > limits.max_qos_allowed:
        raise PacketError(Reason.QOS_NOT_SUPPORTED, "MQTT-3.2.2-11", f"PUBLISH with QoS {message.qos}")
    if message.retain and not limits.retain_available:
        raise PacketError(Reason.RETAIN_NOT_SUPPORTED, "MQTT-3.2.2-14", "PUBLISH with RETAIN")
    if message.topic.count(b"/") >= limits.max_topic_levels:
        raise PacketError(
            Reason.TOPIC_NAME_INVALID, "section 4.7.3", f"topic name of more than {limits.max_topic_levels} levels"
        )


def _authorize(channel: Channel, port: NodePort, message: Publish, head: bytes) -> None:
    pending = PendingPublish(channel, message, CHECKING)
    verdict = channel.authorize(PUBLISH, message.topic, message.qos, message.retain, pending.decided)
    if verdict == ALLOWED:
        _remember(channel, head)
        _take(channel, port, message)
    elif verdict == ASKED:
        join(channel, port, pending)
    else:
        _deny(channel, port, message)


def _remember(channel: Channel, head: bytes) -> None:
    """Allow packets with this head on the fast path."""
    allowed = channel.allowed
    if allowed is not None and 0 < len(head) <= ALLOWED_HEAD_MAX_BYTES:
        if len(allowed) >= ALLOWED_HEADS_MAX:
            allowed.clear()
        allowed.add(head)


def _deny(channel: Channel, port: NodePort, message: Publish) -> None:
    reason = channel.denied_reason(message)
    if channel.can_answer():
        _answer(channel, port, message, reason)


def _refuse(channel: Channel, port: NodePort, message: Publish, reason: int) -> None:
    """A 5.0 client gets an error in the acknowledgement, or for QoS 0 with the end of the connection."""
    if message.qos:
        _answer(channel, port, message, reason)
    else:
        channel.close(reason)


def _take(channel: Channel, port: NodePort, message: Publish) -> None:
    """Deliver the message now if it has to wait for nothing; otherwise queue it."""
    router, original = channel.router, message
    if router.is_intercepted(message.topic):
        replaced = port.hooks.intercept(channel, message)
        if isinstance(replaced, int):
            _answer(channel, port, message, channel.reason_in_version(replaced))
            return
        message = replaced
    state = first_state(message, channel.session)
    if channel.publish_queue is None and state == READY and not (router.stale and message.qos):
        fan = router.route(message.topic).fanout
        if not fan.crosses or message.qos == 0:
            reason: int = Reason.NO_MATCHING_SUBSCRIBERS if fan.reaches_nobody else Reason.SUCCESS
            if (fan.crosses or fan.groups) and router.forward(fan, message, ignore, channel) < 0:
                reason = Reason.QUOTA_EXCEEDED
            router.delivery.deliver(fan, message, channel)
            if reason < 0x80:
                channel.acknowledge(message.qos, message.packet_id, reason)
            else:
                _answer(channel, port, message, reason)
            return
    pending = PendingPublish(channel, message, state)
    pending.said = original
    join(channel, port, pending)


def _answer(channel: Channel, port: NodePort, message: Publish, reason: int) -> None:
    """Acknowledge a message that is dropped, after those before it [MQTT-4.6.0-2]."""
    pending = PendingPublish(channel, message, DONE)
    pending.end(reason)
    if channel.publish_queue is None and pending.state == DONE:
        channel.acknowledge(message.qos, message.packet_id, reason)
    else:
        join(channel, port, pending)
