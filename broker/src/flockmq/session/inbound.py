"""Publishes of one client that can't be answered at once, in the order in which they came [MQTT-4.6.0].

A message may wait for its authorization; a retained or delayed one waits until the log has it; a QoS ≥ 1 message that
other nodes want waits until they accepted it.
What comes behind waits too, so that messages and acknowledgements keep their order.

    CHECKING → LOGGING → READY → FORWARDED → DONE → acknowledged, forgotten

Each step may be left out, but the last.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import INBOUND_LINE_MAX, INBOUND_LINE_MAX_BYTES
from flockmq.mqtt.reason import Reason
from flockmq.session.publish import Publish

if TYPE_CHECKING:
    from flockmq.session.publisher import Publisher

CHECKING: Final = 0
LOGGING: Final = 1
READY: Final = 2
FORWARDED: Final = 3
DONE: Final = 4


class Inbound:
    """One PUBLISH that waits. `reason` is what its acknowledgement will say."""

    __slots__ = ("channel", "message", "reason", "state", "waits")

    def __init__(self, channel: Publisher, message: Publish, state: int) -> None:
        self.channel = channel
        self.message = message
        self.state = state
        self.waits: int = 0
        self.reason: int = Reason.SUCCESS

    def decided(self, allowed: bool) -> None:
        """The client may publish it, or may not; its message counts even if it is gone by now."""
        channel = self.channel
        if allowed:
            channel.permitted(self)
        else:
            self.reason = channel.denial(self.message)
            self.state = DONE
            channel.proceed(self)
        channel.port.flush_soon()

    def logged(self, reason: int, deliver: bool = True) -> None:
        """The log has the message, or refused it with a reason ≥ 0x80; `deliver` False: that was all."""
        self.reason = reason
        self.state = READY if reason < 0x80 and deliver else DONE
        self._moved()

    def accepted(self) -> None:
        """One of the nodes that were asked has the message."""
        self.waits -= 1
        if self.waits == 0 and self.state == FORWARDED:
            self.state = DONE
            self._moved()

    def _moved(self) -> None:
        """Answers come between turns: what is put now must not wait for the next event."""
        self.channel.proceed(self)
        self.channel.port.flush_soon()


@mypyc_attr(acyclic=True)
class Line:
    """The publishes of one client that wait; the client is told in their order."""

    __slots__ = ("_waiting", "_waiting_bytes", "channel")

    def __init__(self, channel: Publisher) -> None:
        self.channel = channel
        self._waiting: deque[Inbound] = deque()
        self._waiting_bytes: int = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, inbound: Inbound) -> None:
        self._waiting.append(inbound)
        self._waiting_bytes += len(inbound.message.packet)

    def is_full(self) -> bool:
        return len(self._waiting) >= INBOUND_LINE_MAX or self._waiting_bytes >= INBOUND_LINE_MAX_BYTES

    def has_room(self) -> bool:
        return len(self._waiting) * 2 <= INBOUND_LINE_MAX and self._waiting_bytes * 2 <= INBOUND_LINE_MAX_BYTES

    def holds(self, packet_id: int) -> bool:
        """A QoS 2 message with this packet id waits."""
        return any(inbound.message.qos == 2 and inbound.message.packet_id == packet_id for inbound in self._waiting)

    def advance(self) -> None:
        """Deliver what may be delivered, acknowledge what is done."""
        waiting = self._waiting
        for inbound in waiting:
            if inbound.state <= LOGGING:
                break
            if inbound.state == READY:
                self._deliver(inbound)
        while waiting and waiting[0].state == DONE:
            inbound = waiting.popleft()
            self._waiting_bytes -= len(inbound.message.packet)
            self.channel.acknowledge(inbound.message.qos, inbound.message.packet_id, inbound.reason)
        self.channel.line_moved()

    def _deliver(self, inbound: Inbound) -> None:
        router = self.channel.router
        message = inbound.message
        fan = router.route(message.topic).fanout
        asked = router.forward(fan, message, inbound.accepted, self.channel)
        if asked < 0:
            inbound.reason = Reason.QUOTA_EXCEEDED
            inbound.state = DONE
            return
        router.deliver(fan, message, self.channel)
        if fan.reaches_nobody():
            inbound.reason = Reason.NO_MATCHING_SUBSCRIBERS
        inbound.waits += asked  # those who answered at once were taken off already
        inbound.state = FORWARDED if inbound.waits else DONE
