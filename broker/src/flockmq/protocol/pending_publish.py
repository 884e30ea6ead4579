"""One PUBLISH that waits, and the steps it waits for.

 CHECKING → PERMITTED → ASKING → LOGGING → READY → FORWARDED ───────▶ DONE → acknowledged
     └──────────┴──────────┴─────────┴────────┴── refused ─▶ FORGETTING ──┘

Each step except the last may be skipped. Answers may arrive in any order. FORGETTING is for QoS 2 in durable sessions:
before a refusal is told, the owner commits that it forgets the message.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.default_callbacks import ignore
from flockmq.mqtt.message import Publish, waited
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_delayed
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ALLOWED, DENIED
from flockmq.session.client_session import ClientSession

CHECKING: Final = 0
PERMITTED: Final = 1
ASKING: Final = 2
LOGGING: Final = 3
READY: Final = 4
FORWARDED: Final = 5
FORGETTING: Final = 6
DONE: Final = 7


@mypyc_attr(acyclic=True)
class PendingPublish:
    """One PUBLISH that waits. `reason`: the reason code for its acknowledgement. `size_bytes`: its size, for limits.
    `said`: the message as the client sent it; plugins or rules may have changed `message`. `since_s`: up to when its
    expiry interval is reduced by the time that it has waited.
    """

    __slots__ = ("channel", "message", "reason", "said", "session", "since_s", "size_bytes", "state", "waits")

    def __init__(self, channel: Channel, message: Publish, state: int) -> None:
        self.channel = channel
        self.session: ClientSession | None = channel.session
        self.message = message
        self.said = message
        self.since_s: float = channel.router.host.now_s
        self.size_bytes: int = len(message.packet)
        self.state = state
        self.waits: int = 0
        self.reason: int = Reason.SUCCESS

    def decided(self, verdict: int) -> None:
        """The result of the authorization: ALLOWED, DENIED or unknown. It also counts if the client has disconnected,
        but not if it was disconnected meanwhile because it lost its rights (a ban, a user that was deleted).
        """
        if verdict == ALLOWED and self.channel.close_reason == Reason.NOT_AUTHORIZED:
            verdict = DENIED
        if verdict == ALLOWED:
            self.state = PERMITTED
        else:
            # A message that can't be authorized is not acknowledged, although one that is denied is, before 5.0
            # [MQTT-3.3.5-2].
            is_denied = verdict == DENIED
            self.end(self.channel.denied_reason(self.message) if is_denied else Reason.IMPLEMENTATION_SPECIFIC_ERROR)
        self._moved()

    def has_expired(self) -> bool:
        """True if its expiry interval has passed, which is reduced by the time that it has waited [MQTT-3.3.2-6]. That
        of a delayed message begins when it is due.
        """
        waited_s = int(self.channel.router.host.now_s - self.since_s)
        if waited_s <= 0 or is_delayed(self.message.topic):
            return False
        left = waited(self.message, waited_s)
        if left is None:
            return True
        self.message = left
        self.since_s += waited_s
        return False

    def remembered(self) -> None:
        """The owner of the session has stored the message's id."""
        self.state = LOGGING if self.message.must_be_logged() else READY
        self._moved()

    def logged(self, reason: int, deliver: bool = True) -> None:
        """The log has the message, or refused it with a reason code ≥ 0x80. `deliver` False: don't deliver it, because
        it is delayed, or the client's next connection has published a newer one.
        """
        # If the topic is invalid, a repeat would be refused too.
        reason = self.channel.reason_in_version(reason) if reason == Reason.TOPIC_NAME_INVALID else reason
        if reason < 0x80 and deliver:
            self.reason, self.state = reason, READY
        else:
            self.end(reason)
        self._moved()

    def accepted(self) -> None:
        """One of the receivers that were asked has accepted the message."""
        self.waits -= 1
        if self.waits == 0 and self.state == FORWARDED:
            self.state = DONE
            self._moved()

    def end(self, reason: int) -> None:
        """It isn't delivered. If it is refused its packet id names another message from now on; who is told of that
        waits until the owner has forgotten this one. Before MQTT 5.0 the connection is closed instead.
        """
        self.reason, self.state = reason, DONE
        session, self.session = self.session, None
        if reason < 0x80 or session is None or self.message.qos != 2:
            return
        tells = self.channel.protocol_version == 5 and self.channel.can_answer()
        if not session.forget(self.message.packet_id, self.forgotten if tells else ignore) and tells:
            self.state = FORGETTING

    def forgotten(self) -> None:
        """The owner has committed that it forgot the message."""
        if self.state == FORGETTING:
            self.state = DONE
            self._moved()

    def _moved(self) -> None:
        """Results may arrive between two turns, so flush soon."""
        queue = self.channel.publish_queue
        if queue is not None:
            queue.advance()
        self.channel.flush_soon()
