"""Publishes of one client that can't be answered at once, in order [MQTT-4.6.0].

A message may wait for (steps: `pending_publish`):
- its authorization;
- at QoS 2 the owner of its durable session, which stores the message id;
- the log, if it is retained or delayed;
- at QoS 1 and 2 other nodes with subscribers, which must accept it;
- at QoS 1 and 2 newer routing tables, while this node's are stale. Later messages wait too, so that messages and
  acknowledgements stay in order. After the client has disconnected, its messages are dropped if its session is durable,
  because the client sends them again, or if too much waits.

Invariants: answers may arrive in any order, but messages are logged and delivered in order. If a message is refused
and the client will send it again (because it has disconnected, or the refusal closes its connection), later messages
of the client are not delivered. If the refusal is told by a PUBACK or PUBREC, later messages that the log has wait
until that was sent, and others are refused, too. While its client is there, what the log has is not refused. Before a
PUBREC says it, the owner of a durable session forgets the message. The reason: a subscriber drops a message whose
number is lower than the last one it took from this source.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import INBOUND_BYTES, INBOUND_LINE_MAX, INBOUND_LINE_MAX_BYTES
from flockmq.mqtt.message import Publish
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_delayed
from flockmq.protocol.channel import Channel
from flockmq.protocol.pending_publish import (
    ASKING,
    CHECKING,
    DONE,
    FORGETTING,
    FORWARDED,
    LOGGING,
    PERMITTED,
    READY,
    PendingPublish,
)
from flockmq.protocol.ports import NodePort
from flockmq.routing.stale_table_queue import HoldableQueue
from flockmq.session.client_session import ClientSession

_FOR_GOOD: Final = (int(Reason.NOT_AUTHORIZED), int(Reason.TOPIC_NAME_INVALID))
"""Refusals that a repeat would get, too."""


@mypyc_attr(acyclic=True)
class PublishQueue(HoldableQueue):
    """The publishes of one client that wait; it is answered in order. A message passes through four queues: the first
    begins with a message that is CHECKING, the second with one that is ASKING, the third with one that is LOGGING,
    and the fourth has delivered messages.
    """

    __slots__ = (
        "_asking", "_bytes", "_checking", "_delivered", "_forgetting", "_is_broken", "_is_superseded", "_logging",
        "_port", "_unreported", "channel",
    )  # fmt: skip

    def __init__(self, channel: Channel, port: NodePort) -> None:
        self.is_held = False
        self.channel = channel
        self._port = port
        self._checking: deque[PendingPublish] = deque()
        self._asking: deque[PendingPublish] = deque()
        self._logging: deque[PendingPublish] = deque()
        self._delivered: deque[PendingPublish] = deque()
        self._bytes: int = 0
        self._is_broken: bool = False
        """A message was refused, and the client will send it again."""
        self._is_superseded: bool = False
        """The client already publishes on another connection."""
        self._unreported: PendingPublish | None = None
        """The last refused message that the client will send again if it disconnects before it gets the refusal."""
        self._forgetting: PendingPublish | None = None
        """The last refused message that an owner had to forget. Owners forget in order."""

    def __len__(self) -> int:
        return len(self._checking) + len(self._asking) + len(self._logging) + len(self._delivered)

    def join(self, pending: PendingPublish) -> None:
        """Add a message at the end. The caller then calls `advance`."""
        self._checking.append(pending)
        self._bytes += pending.size_bytes
        if self.is_held:
            self.channel.router.held.bytes += pending.size_bytes + INBOUND_BYTES

    def size_bytes(self) -> int:
        return self._bytes + INBOUND_BYTES * len(self)

    def is_abandoned(self) -> bool:
        return not self.channel.can_answer()

    def is_repeated(self) -> bool:
        return self.channel.repeats

    def is_in_log(self) -> bool:
        return any(pending.message.must_be_logged() for pending in self._logging)

    def give_up(self) -> None:
        """The client has disconnected, and none of these was acknowledged: drop them."""
        if not self.channel.repeats:
            self.channel.router.counters.dropped_left += self._unanswered()
        self._is_broken = True
        self.advance()

    def left(self) -> None:
        """The client has disconnected: it isn't told of refusals any more, and sends again what it wasn't told of."""
        self._is_broken = self._is_broken or self._unreported is not None
        queues = (self._checking, self._asking, self._logging, self._delivered)
        forgetting = [pending for queue in queues for pending in queue if pending.state == FORGETTING]
        for pending in forgetting:
            pending.state = DONE
        if forgetting:
            self.advance()

    def supersede(self) -> None:
        """A newer connection took the client over. QoS 0 messages here would be delivered after messages of the new
        connection, so they are dropped, except those for the log. QoS 1 and 2 messages are sent again by the client,
        or are ordered by the log and message ids.
        """
        self._is_superseded = True
        waiting = (self._checking, self._asking, self._logging)
        dropped = sum([self._is_dropped(pending.message) for queue in waiting for pending in queue])
        self.channel.router.counters.dropped_left += dropped

    def _is_dropped(self, message: Publish) -> bool:
        return self._is_superseded and message.qos == 0 and not message.must_be_logged()

    def _unanswered(self) -> int:
        waiting = (self._checking, self._asking, self._logging)
        return sum([pending.message.qos > 0 for queue in waiting for pending in queue])

    def is_full(self) -> bool:
        return len(self) >= INBOUND_LINE_MAX or self._bytes >= INBOUND_LINE_MAX_BYTES

    def has_room(self) -> bool:
        return len(self) * 2 <= INBOUND_LINE_MAX and self._bytes * 2 <= INBOUND_LINE_MAX_BYTES

    def holds(self, packet_id: int) -> bool:
        """True if a QoS 2 message with this packet id waits."""
        for queue in (self._checking, self._asking, self._logging, self._delivered):
            for pending in queue:
                if pending.message.packet_id == packet_id and pending.message.qos == 2:
                    return True
        return False

    def advance(self) -> None:
        """Move messages on: have them stored and logged, deliver them, and acknowledge those that are done."""
        while self._advance():
            pass
        self._moved()

    def _advance(self) -> bool:
        """Returns True if a refusal was told, for which messages may have waited."""
        channel = self.channel
        checking, asking, logging, delivered = self._checking, self._asking, self._logging, self._delivered
        while checking and checking[0].state != CHECKING:
            pending = checking.popleft()
            asking.append(pending)
            if self._refuses(pending):
                pending.end(Reason.QUOTA_EXCEEDED)
            if pending.state == PERMITTED:
                self._permitted(pending)
            if pending.state == ASKING:
                self._port.remember(pending)
            self._note_refusal(pending)
        while asking and asking[0].state != ASKING:
            pending = asking[0]
            if pending.state == LOGGING and self._is_forgetting():
                break
            asking.popleft()
            logging.append(pending)
            if pending.state == LOGGING and (self._refuses(pending) or not self._has_room_for(pending.message)):
                pending.end(Reason.QUOTA_EXCEEDED)
            if pending.state == LOGGING and not self._drops_expired(pending):
                self._port.log(pending)
            self._note_refusal(pending)
        while logging and logging[0].state != LOGGING:
            pending = logging[0]
            if pending.state == READY and pending.message.qos and (self._is_forgetting() or self._must_wait(pending)):
                break
            if channel.router.stale and pending.state == READY and pending.message.qos and not self._is_broken:
                channel.router.held.put(self)
                break
            logging.popleft()
            delivered.append(pending)
            if pending.state == READY:
                self._deliver(pending)
            self._note_refusal(pending)
        is_telling = self._unreported is not None
        while delivered and delivered[0].state == DONE:
            self._acknowledge(delivered.popleft())
        return is_telling and self._unreported is None

    def _permitted(self, pending: PendingPublish) -> None:
        """An authorized message is next: determine what it must wait for."""
        channel, message = self.channel, pending.message
        if channel.router.is_intercepted(message.topic):
            replaced = self._port.hooks.intercept(channel, message)
            if isinstance(replaced, int):
                pending.end(channel.reason_in_version(replaced))
                return
            pending.message = message = replaced
        pending.state = first_state(message, pending.session)

    def _moved(self) -> None:
        """Messages were acknowledged: read again if there is room, and allow the fast path if the queue is empty."""
        channel = self.channel
        if channel.queue_paused and self.has_room() and not (self.is_held and channel.router.held.is_half_full()):
            channel.queue_paused = False
            channel.unpause()
        if len(self) == 0:
            channel.publish_queue = None

    def _note_refusal(self, pending: PendingPublish) -> None:
        """Note a refusal that makes the client send the message again. A disconnected client never gets the refusal;
        and before MQTT 5.0 a server can refuse only by closing the connection.
        """
        reason, channel = pending.reason, self.channel
        if pending.state == FORGETTING:
            self._forgetting = pending
        if reason < 0x80 or not pending.message.qos:
            return
        if channel.protocol_version != 5 or (reason not in _FOR_GOOD and not channel.can_answer()):
            self._is_broken = True
        elif reason not in _FOR_GOOD:
            self._unreported = pending

    def _refuses(self, pending: PendingPublish) -> bool:
        """True if the message must not be delivered, because an earlier one will be sent again and must
        come before it.
        """
        if pending.message.qos == 0:
            return self._is_dropped(pending.message)
        return self._is_broken or (self._unreported is not None and self._follows_unreported(pending))

    def _must_wait(self, pending: PendingPublish) -> bool:
        """True if the log has the message, so that it can't be refused, but an earlier refusal must be told before."""
        if self._is_broken or self._unreported is None or not pending.message.must_be_logged():
            return False
        return self._follows_unreported(pending)

    def _has_room_for(self, message: Publish) -> bool:
        """False: some receiver has no room. Then it isn't logged, because a refused message must have no effect, and
        what the log has isn't refused any more. Nobody gets a delayed message now.
        """
        if message.qos == 0 or is_delayed(message.topic):
            return True
        return self.channel.router.fanout_with_room(message, self.channel) is not None

    def _follows_unreported(self, pending: PendingPublish) -> bool:
        """True if an earlier message was refused, and that wasn't sent yet because one before it isn't done."""
        are_done = True
        for queue in (self._delivered, self._logging, self._asking):
            for each in queue:
                if each is pending:
                    return False
                if each is self._unreported:
                    return not are_done
                are_done = are_done and each.state == DONE
        return False

    def _is_forgetting(self) -> bool:
        return self._forgetting is not None and self._forgetting.state == FORGETTING

    def _acknowledge(self, pending: PendingPublish) -> None:
        self._bytes -= pending.size_bytes
        if self.is_held:
            self.channel.router.held.bytes -= pending.size_bytes + INBOUND_BYTES
        if pending is self._unreported:
            self._unreported = None
        if pending is self._forgetting:
            self._forgetting = None
        self.channel.acknowledge(pending.message.qos, pending.message.packet_id, pending.reason)

    def _drops_expired(self, pending: PendingPublish) -> bool:
        """True if the message has expired [MQTT-3.3.2-5]: it is acknowledged, and nobody gets it."""
        if not pending.has_expired():
            return False
        self.channel.router.counters.dropped_expired += 1
        pending.end(Reason.SUCCESS)
        return True

    def _deliver(self, pending: PendingPublish) -> None:
        router = self.channel.router
        if self._refuses(pending):
            pending.end(Reason.QUOTA_EXCEEDED)
            return
        if self._drops_expired(pending):
            return
        message = pending.message
        if router.may_refuse(message) and not message.must_be_logged():
            fan = router.fanout_with_room(message, self.channel)
        else:
            fan = router.route(message.topic).fanout
        if fan is None:
            pending.end(Reason.QUOTA_EXCEEDED)
            return
        asked = router.forward(fan, message, pending.accepted, self.channel)
        if asked < 0:
            pending.end(Reason.QUOTA_EXCEEDED)
            return
        router.delivery.deliver(fan, message, self.channel)
        if fan.reaches_nobody:
            pending.reason = Reason.NO_MATCHING_SUBSCRIBERS
        pending.waits += asked  # Receivers that accepted at once were subtracted already.
        pending.state = FORWARDED if pending.waits else DONE


def first_state(message: Publish, session: ClientSession | None) -> int:
    """The first step that must come before delivery: the owner of a durable session, the log, or none."""
    if message.qos == 2 and session is not None and session.is_remote():
        return ASKING
    return LOGGING if message.must_be_logged() else READY


def queue_of(channel: Channel) -> PublishQueue | None:
    queue = channel.publish_queue
    assert queue is None or isinstance(queue, PublishQueue)
    return queue


def join(channel: Channel, port: NodePort, pending: PendingPublish) -> None:
    """Add a message behind all that wait for this client."""
    queue = queue_of(channel)
    if queue is None:
        channel.publish_queue = queue = PublishQueue(channel, port)
    queue.join(pending)
    if queue.is_full() and not channel.queue_paused:
        channel.queue_paused = True
        channel.pause()
    queue.advance()
    if queue.is_held:
        _wait_for_tables(channel)


def _wait_for_tables(channel: Channel) -> None:
    """The sum of all messages that wait at this node is bounded."""
    held = channel.router.held
    held.make_room()
    if held.is_over_limit():
        channel.close(Reason.QUOTA_EXCEEDED, "too many messages wait at this node")
    elif held.is_half_full() and not channel.queue_paused:
        channel.queue_paused = True
        channel.pause()
