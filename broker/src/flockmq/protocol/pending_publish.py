"""One PUBLISH that waits, and what it waits for.

    CHECKING → PERMITTED → ASKING → LOGGING → READY → FORWARDED → DONE → acknowledged, forgotten

Each step may be left out, but the last. Answers may come in any order.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt.message import Publish
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ALLOWED, DENIED
from flockmq.session.client_session import ClientSession

CHECKING: Final = 0
PERMITTED: Final = 1
ASKING: Final = 2
LOGGING: Final = 3
READY: Final = 4
FORWARDED: Final = 5
DONE: Final = 6


class Inbound:
    """One PUBLISH that waits. `reason` is what its acknowledgement will say, `size_bytes` what it counts for; `said` is
    what the client said, where plugins or rules made another `message` of it.
    """

    __slots__ = ("channel", "message", "reason", "said", "session", "size_bytes", "state", "waits")

    def __init__(self, channel: Channel, message: Publish, state: int) -> None:
        self.channel = channel
        self.session: ClientSession | None = channel.session
        self.message = message
        self.said = message
        self.size_bytes: int = len(message.packet)
        self.state = state
        self.waits: int = 0
        self.reason: int = Reason.SUCCESS

    def decided(self, verdict: int) -> None:
        """The client may publish it, or may not, or nobody can say; its message counts even if it is gone by now."""
        if verdict == ALLOWED:
            self.state = PERMITTED
        else:
            # what nobody can judge isn't acknowledged, not even where a denial is [MQTT-3.3.5-2]
            is_denied = verdict == DENIED
            self.reason = self.channel.denial(self.message) if is_denied else Reason.IMPLEMENTATION_SPECIFIC_ERROR
            self.state = DONE
        self._moved()

    def remembered(self) -> None:
        """The owner of its session knows of it."""
        self.state = LOGGING if self.message.must_be_logged() else READY
        self._moved()

    def logged(self, reason: int, deliver: bool = True) -> None:
        """The log has the message, or refused it with a reason ≥ 0x80. `deliver` False: that was all: it is delayed,
        or its client's next connection has overtaken it."""
        # who may not publish to a topic may not the next time either
        self.reason = self.channel.sayable(reason) if reason == Reason.TOPIC_NAME_INVALID else reason
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
        line = self.channel.line
        if line is not None:
            line.advance()
        self.channel.flush_soon()
