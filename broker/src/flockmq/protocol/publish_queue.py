"""Publishes of one client that can't be answered at once, in order [MQTT-4.6.0].

A message may wait for (steps: `pending_publish`):
- its authorization;
- at QoS 2 the owner of its durable session, which stores the message id;
- the log, if it is retained or delayed;
- at QoS 1 and 2 other nodes with subscribers, which must accept it;
- at QoS 1 and 2 newer routing tables, while this node's are stale. Later messages wait too, so that messages and
  acknowledgements stay in order. After the client has disconnected, its messages are dropped if its session is durable,
  because the client sends them again, or if too much waits.

Invariants: answers may arrive in any order, but messages are logged and delivered in order. If a message is refused and
the client will send it again (because it has disconnected, or the refusal closes its connection), later messages of the
client are not delivered. If the refusal is told by a PUBACK or PUBREC, later messages wait until that was sent. The
reason: a subscriber drops a message whose number is lower than the last one it took from this source.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import INBOUND_BYTES, INBOUND_LINE_MAX, INBOUND_LINE_MAX_BYTES
from flockmq.mqtt.message import Publish
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import Channel
from flockmq.protocol.pending_publish import ASKING, CHECKING, DONE, FORWARDED, LOGGING, PERMITTED, READY, Inbound
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
        "_asking", "_bytes", "_checking", "_delivered", "_is_broken", "_is_superseded", "_logging", "_port",
        "_untold", "channel",
    )  # fmt: skip

    def __init__(self, channel: Channel, port: NodePort) -> None:
        super().__init__()
        self.channel = channel
        self._port = port
        self._checking: deque[Inbound] = deque()
        self._asking: deque[Inbound] = deque()
        self._logging: deque[Inbound] = deque()
        self._delivered: deque[Inbound] = deque()
        self._bytes: int = 0
        self._is_broken: bool = False
        """A message was refused, and the client will send it again."""
        self._is_superseded: bool = False
        """The client already publishes on another connection."""
        self._untold: Inbound | None = None
        """The last refused message that the client will send again if it disconnects before it gets the refusal."""

    def __len__(self) -> int:
        return len(self._checking) + len(self._asking) + len(self._logging) + len(self._delivered)

    def join(self, inbound: Inbound) -> None:
        """Call `advance` afterwards."""
        self._checking.append(inbound)
        self._bytes += inbound.size_bytes
        if self.is_held:
            self.channel.router.held.bytes += inbound.size_bytes + INBOUND_BYTES

    def size_bytes(self) -> int:
        return self._bytes + INBOUND_BYTES * len(self)

    def is_abandoned(self) -> bool:
        return not self.channel.can_answer()

    def is_repeated(self) -> bool:
        return self.channel.repeats

    def is_in_log(self) -> bool:
        return any(inbound.message.must_be_logged() for inbound in self._logging)

    def give_up(self) -> None:
        """The client has disconnected, and none of these was acknowledged: drop them."""
        if not self.channel.repeats:
            self.channel.router.counters.dropped_left += self._unanswered()
        self._is_broken = True
        self.advance()

    def supersede(self) -> None:
        """A newer connection took the client over. QoS 0 messages here would be delivered after messages of the new
        connection, so they are dropped, except those for the log. QoS 1 and 2 messages are sent again by the client,
        or are ordered by the log and message ids.
        """
        self._is_superseded = True
        waiting = (self._checking, self._asking, self._logging)
        dropped = sum([self._is_dropped(inbound.message) for queue in waiting for inbound in queue])
        self.channel.router.counters.dropped_left += dropped

    def _is_dropped(self, message: Publish) -> bool:
        return self._is_superseded and message.qos == 0 and not message.must_be_logged()

    def _unanswered(self) -> int:
        waiting = (self._checking, self._asking, self._logging)
        return sum([inbound.message.qos > 0 for queue in waiting for inbound in queue])

    def is_full(self) -> bool:
        return len(self) >= INBOUND_LINE_MAX or self._bytes >= INBOUND_LINE_MAX_BYTES

    def has_room(self) -> bool:
        return len(self) * 2 <= INBOUND_LINE_MAX and self._bytes * 2 <= INBOUND_LINE_MAX_BYTES

    def holds(self, packet_id: int) -> bool:
        """True if a QoS 2 message with this packet id waits."""
        for queue in (self._checking, self._asking, self._logging, self._delivered):
            for inbound in queue:
                if inbound.message.packet_id == packet_id and inbound.message.qos == 2:
                    return True
        return False

    def advance(self) -> None:
        """Move messages on: have them stored and logged, deliver them, and acknowledge those that are done."""
        channel = self.channel
        checking, asking, logging, delivered = self._checking, self._asking, self._logging, self._delivered
        while checking and checking[0].state != CHECKING:
            inbound = checking.popleft()
            asking.append(inbound)
            if self._refuses(inbound):
                _refuse(inbound)
            if inbound.state == PERMITTED:
                self._permitted(inbound)
            if inbound.state == ASKING:
                self._port.remember(inbound)
            self._note_refusal(inbound)
        while asking and asking[0].state != ASKING:
            inbound = asking.popleft()
            logging.append(inbound)
            if inbound.state == LOGGING and self._refuses(inbound):
                _refuse(inbound)
            if inbound.state == LOGGING:
                self._port.log(inbound)
            self._note_refusal(inbound)
        while logging and logging[0].state != LOGGING:
            inbound = logging[0]
            if channel.router.stale and inbound.state == READY and inbound.message.qos and not self._is_broken:
                channel.router.held.put(self)
                break
            logging.popleft()
            delivered.append(inbound)
            if inbound.state == READY:
                self._deliver(inbound)
            self._note_refusal(inbound)
        while delivered and delivered[0].state == DONE:
            self._acknowledge(delivered.popleft())
        self._moved()

    def _permitted(self, inbound: Inbound) -> None:
        """An authorized message is next: determine what it must wait for."""
        channel, message = self.channel, inbound.message
        if channel.router.is_intercepted(message.topic):
            replaced = self._port.hooks.intercept(channel, message)
            if isinstance(replaced, int):
                inbound.reason = channel.sayable(replaced)
                inbound.state = DONE
                return
            inbound.message = message = replaced
        inbound.state = first_state(message, inbound.session)

    def _moved(self) -> None:
        """Messages were acknowledged: read again if there is room, and allow the fast path if the queue is empty."""
        channel = self.channel
        if channel.line_paused and self.has_room() and not (self.is_held and channel.router.held.is_half_full()):
            channel.line_paused = False
            channel.unpause()
        if len(self) == 0:
            channel.line = None

    def _note_refusal(self, inbound: Inbound) -> None:
        """Note a refusal that makes the client send the message again. A disconnected client doesn't get it; before 5.0
        only the end of the connection can tell it.
        """
        reason, channel = inbound.reason, self.channel
        if reason < 0x80 or not inbound.message.qos:
            return
        if channel.protocol_version != 5 or (reason not in _FOR_GOOD and not channel.can_answer()):
            self._is_broken = True
        elif reason not in _FOR_GOOD:
            self._untold = inbound

    def _refuses(self, inbound: Inbound) -> bool:
        """True if the message must not be delivered, because an earlier one will be sent again and must
        come before it.
        """
        if inbound.message.qos == 0:
            return self._is_dropped(inbound.message)
        return self._is_broken or self._is_long_untold()

    def _is_long_untold(self) -> bool:
        """True if a refusal wasn't sent yet because an earlier message isn't done."""
        if self._untold is None:
            return False
        for queue in (self._delivered, self._logging, self._asking):
            for inbound in queue:
                if inbound is self._untold:
                    return False
                if inbound.state != DONE:
                    return True
        return False

    def _acknowledge(self, inbound: Inbound) -> None:
        self._bytes -= inbound.size_bytes
        if self.is_held:
            self.channel.router.held.bytes -= inbound.size_bytes + INBOUND_BYTES
        message, reason = inbound.message, inbound.reason
        if reason >= 0x80:
            _forget(inbound)
        if inbound is self._untold:
            self._untold = None
        self.channel.acknowledge(message.qos, message.packet_id, reason)

    def _deliver(self, inbound: Inbound) -> None:
        router = self.channel.router
        message = inbound.message
        if self._refuses(inbound):
            _refuse(inbound)
            return
        if router.may_refuse(message):
            fan = router.fanout_with_room(message, self.channel)
        else:
            fan = router.route(message.topic).fanout
        if fan is None:
            _refuse(inbound)
            return
        asked = router.forward(fan, message, inbound.accepted, self.channel)
        if asked < 0:
            _refuse(inbound)
            return
        router.delivery.deliver(fan, message, self.channel)
        if fan.reaches_nobody():
            inbound.reason = Reason.NO_MATCHING_SUBSCRIBERS
        inbound.waits += asked  # Receivers that accepted at once were subtracted already.
        inbound.state = FORWARDED if inbound.waits else DONE


def _refuse(inbound: Inbound) -> None:
    inbound.reason = Reason.QUOTA_EXCEEDED
    inbound.state = DONE
    _forget(inbound)


def _forget(inbound: Inbound) -> None:
    """The client may send the message again when it resumes its session; it is a new message then, after those that
    were delivered since. So it is forgotten before later ones are delivered, not when the refusal is sent to the
    client, which may have disconnected by then.
    """
    session, inbound.session = inbound.session, None
    if session is not None and inbound.message.qos == 2:
        session.forget(inbound.message.packet_id)


def first_state(message: Publish, session: ClientSession | None) -> int:
    """The first step that must come before delivery: the owner of a durable session, the log, or none."""
    if message.qos == 2 and session is not None and session.is_remote():
        return ASKING
    return LOGGING if message.must_be_logged() else READY


def line_of(channel: Channel) -> PublishQueue | None:
    line = channel.line
    assert line is None or isinstance(line, PublishQueue)
    return line


def join(channel: Channel, port: NodePort, inbound: Inbound) -> None:
    """Add a message behind all that wait for this client."""
    line = line_of(channel)
    if line is None:
        channel.line = line = PublishQueue(channel, port)
    line.join(inbound)
    if line.is_full() and not channel.line_paused:
        channel.line_paused = True
        channel.pause()
    line.advance()
    if line.is_held:
        _wait_for_tables(channel)


def _wait_for_tables(channel: Channel) -> None:
    """The sum of all messages that wait at this node is bounded."""
    held = channel.router.held
    held.make_room()
    if held.is_over_limit():
        channel.close(Reason.QUOTA_EXCEEDED, "too much waits here")
    elif held.is_half_full() and not channel.line_paused:
        channel.line_paused = True
        channel.pause()
