"""Publishes of one client that can't be answered at once, in the order in which they came [MQTT-4.6.0].

What a message may wait for (its steps are in `inbound`):
- its authorization;
- at QoS 2 the owner of its session, which remembers it and says its origin;
- the log, if it is retained or delayed;
- at QoS ≥ 1 other nodes that want it: they accept it;
- at QoS ≥ 1, while this node's tables are stale, newer tables.

What comes behind it waits too, so that messages and acknowledgements keep their order. What a client left behind is
given up if its session lasts, because the client sends it again, or if too much waits.

What always holds: answers may come in any order, but no message passes another: the log gets it, and it is delivered,
when all before it were. Where a message is refused that its client will send again, because it is gone, or hears of it
by the end of its connection, nothing behind it is delivered. Where an acknowledgement says so, nothing behind it is
delivered before the client was told: of messages that have an origin, subscribers take none below the last that they
took.
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
"""What is refused so is refused the next time, too."""


@mypyc_attr(acyclic=True)
class PublishQueue(HoldableQueue):
    """The publishes of one client that wait; the client is told in their order. A message goes through four queues:
    from the first that is CHECKING on, from the first that is ASKING on, from the first that is LOGGING on, and those
    that were delivered.
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
        """A message was refused that its client will send again."""
        self._is_superseded: bool = False
        """Its client publishes elsewhere already."""
        self._untold: Inbound | None = None
        """The last that was refused so that its client, if it is gone before it is told, sends it again."""

    def __len__(self) -> int:
        return len(self._checking) + len(self._asking) + len(self._logging) + len(self._delivered)

    def join(self, inbound: Inbound) -> None:
        """`advance` afterwards."""
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
        """Its client is gone, and was told of none of these."""
        if not self.channel.repeats:
            self.channel.router.counters.dropped_left += self._unanswered()
        self._is_broken = True
        self.advance()

    def supersede(self) -> None:
        """A newer connection took its client over. What waits here at QoS 0 would come behind what that one publishes:
        it is dropped, but for what the log keeps. The rest it sends again, or the log and origins know its place."""
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
        """A QoS 2 message with this packet id waits."""
        for queue in (self._checking, self._asking, self._logging, self._delivered):
            for inbound in queue:
                if inbound.message.packet_id == packet_id and inbound.message.qos == 2:
                    return True
        return False

    def advance(self) -> None:
        """Have remembered and logged what must be, deliver what may be, acknowledge what is done."""
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
        """It is the turn of a message that may be published: what is to be done with it."""
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
        """Some were acknowledged: read on when there is room, and take the fast road when it is empty."""
        channel = self.channel
        if channel.line_paused and self.has_room() and not (self.is_held and channel.router.held.is_half_full()):
            channel.line_paused = False
            channel.unpause()
        if len(self) == 0:
            channel.line = None

    def _note_refusal(self, inbound: Inbound) -> None:
        """Who is gone hears of none; before 5.0 it can't be said, but by the end of the connection."""
        reason, channel = inbound.reason, self.channel
        if reason < 0x80 or not inbound.message.qos:
            return
        if channel.protocol_version != 5 or (reason not in _FOR_GOOD and not channel.can_answer()):
            self._is_broken = True
        elif reason not in _FOR_GOOD:
            self._untold = inbound

    def _refuses(self, inbound: Inbound) -> bool:
        """Behind what is sent again nothing is delivered that would come before it then."""
        if inbound.message.qos == 0:
            return self._is_dropped(inbound.message)
        return self._is_broken or self._is_long_untold()

    def _is_long_untold(self) -> bool:
        """Who was refused is told behind what came before, and that waits."""
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
        inbound.waits += asked  # those who answered at once were taken off already
        inbound.state = FORWARDED if inbound.waits else DONE


def _refuse(inbound: Inbound) -> None:
    inbound.reason = Reason.QUOTA_EXCEEDED
    inbound.state = DONE
    _forget(inbound)


def _forget(inbound: Inbound) -> None:
    """Whoever comes back to the session may send it again: as another message, behind those that were delivered since.
    So it is forgotten before one is, not when the client is told, which may be gone by then.
    """
    session, inbound.session = inbound.session, None
    if session is not None and inbound.message.qos == 2:
        session.forget(inbound.message.packet_id)


def first_state(message: Publish, session: ClientSession | None) -> int:
    """What must know of it before it is delivered: the owner of a session that lasts, the log, or nothing."""
    if message.qos == 2 and session is not None and session.is_remote():
        return ASKING
    return LOGGING if message.must_be_logged() else READY


def line_of(channel: Channel) -> PublishQueue | None:
    line = channel.line
    assert line is None or isinstance(line, PublishQueue)
    return line


def join(channel: Channel, port: NodePort, inbound: Inbound) -> None:
    """Behind all that waits of this client."""
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
    """What this node may hold is bounded, however many clients there are."""
    held = channel.router.held
    held.make_room()
    if held.is_over_limit():
        channel.close(Reason.QUOTA_EXCEEDED, "too much waits here")
    elif held.is_half_full() and not channel.line_paused:
        channel.line_paused = True
        channel.pause()
