"""One client's connection, as its node and its requests see it: what it is, and what can be done to it.

What is said on it is in `conversation`, which implements what raises NotImplementedError here.

    OPENED ── CONNECT ──▶ ADMITTING ── admitted ──▶ CONNECTED ──▶ CLOSED
       │                   │      ▲                                 ▲
       │          challenged      AUTH                              │
       │                   ▼      │                                 │
       │                AUTHENTICATING ─────────────────────────────┤
       └────── anything else, refused, timed out ───────────────────┘

What always holds: acknowledgements come in the order of their messages [MQTT-4.6.0-2]; what can't be answered at once
stands in `line`, and while anything does, all that follows joins it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import SUBSCRIBES_WAITING_MAX
from flockmq.mqtt import encode, frame
from flockmq.mqtt.message import Publish, Will
from flockmq.mqtt.packets import Connect, Subscribe
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topic_aliases import IncomingAliases
from flockmq.protocol.client import ANONYMOUS, PUBLISH, PeerInfo, Principal
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.router import Router
from flockmq.routing.stale_table_queue import HoldableQueue
from flockmq.session.client_session import ClientSession
from flockmq.session.limits import Limits

OPENED: Final = 0
ADMITTING: Final = 1
CONNECTED: Final = 2
CLOSED: Final = 3
AUTHENTICATING: Final = 4

_ACK_HEADS: Final = (b"", b"\x40\x02", b"\x50\x02")


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Channel(PausablePublisher):
    """`protocol_version` is 4 for 3.1 and 3.1.1 and 5 for 5.0 (4 before CONNECT); times are the router's seconds.

    `plain`: the zone lets all heads of the router take the fast road; `must_authorize`: what the client publishes and
    subscribes to is asked of the node; `repeats`: it is gone, and its session lasts, so it sends again what wasn't
    acknowledged [MQTT-4.4.0-1]; `clean_end`: it said DISCONNECT; `connected_s`: when it was admitted.
    """

    __slots__ = (
        "_left_as", "admitted_once", "aliases", "authentication_method", "clean_end", "close_reason", "connected_s",
        "is_mqtt31", "keepalive_s", "limits", "line", "line_paused", "must_authorize", "plain", "principal", "repeats",
        "router", "session", "state", "subscribes_waiting", "token", "will",
    )  # fmt: skip

    def __init__(self, router: Router, limits: Limits) -> None:
        super().__init__(router.pauses, 4)
        self.repeats: bool = False
        self.must_authorize: bool = False
        self.plain: bool = limits.max_qos_allowed > 0 and limits.max_topic_levels >= router.max_topic_levels
        self.line_paused: bool = False
        self.is_mqtt31: bool = False
        self.clean_end: bool = False
        self.admitted_once: bool = False
        self.router = router
        self.limits = limits
        self.allowed = set() if limits.strict_mode else None
        self.state: int = OPENED
        self.session: ClientSession | None = None
        self._left_as: bytes = b""
        self.principal: Principal = ANONYMOUS
        self.authentication_method: bytes | None = None
        self.token: object = None
        self.will: Will | None = None
        self.aliases: IncomingAliases | None = None
        self.line: HoldableQueue | None = None
        self.subscribes_waiting: int = 0
        self.keepalive_s: float = limits.idle_timeout
        self.connected_s: float = 0.0
        self.close_reason: int = Reason.SUCCESS

    # What it is.

    def has_left(self) -> bool:
        """The client has closed its end, perhaps behind what isn't read yet."""
        return self.has_ended()

    def can_answer(self) -> bool:
        """The client is connected, and hears what is put."""
        return self.state == CONNECTED

    def is_congested(self) -> bool:
        session = self.session
        return session is not None and session.is_congested()

    def client_id(self) -> bytes:
        session = self.session
        return self._left_as if session is None else session.client_id

    def peer(self) -> PeerInfo:
        """Where the client comes from; a listener knows."""
        return PeerInfo("", 0, "", self.limits.name)

    def address(self) -> str:
        """The same for the log."""
        peer = self.peer()
        return f"{peer.host}:{peer.port}" if peer.port else peer.host

    def overdue(self, now_s: float) -> bool:
        """The client was silent for longer than it promised [MQTT-3.1.2-22], or took too long to say CONNECT.

        While it is paused it isn't listened to.
        """
        return self.paused == 0 and self.keepalive_s != 0.0 and now_s - self.last_seen_s > self.keepalive_s

    # What becomes of it.

    def feed(self, data: bytes) -> None:
        """Process what was read; never raises for what a client sent."""
        raise NotImplementedError(type(self).__name__)

    def admitted(
        self, connect: Connect, token: object, session: ClientSession, present: bool, extra: Properties | None = None
    ) -> None:
        """The node takes this connection: with this session, which was `present` or is the one that CONNECT made.

        `token` is what the client's owner knows the connection by; `extra` has an enhanced authentication's last data.
        """
        raise NotImplementedError(type(self).__name__)

    def refuse(self, reason: int, why: str = "") -> None:
        """CONNACK with a failure, then the end [MQTT-3.2.2-7]."""
        raise NotImplementedError(type(self).__name__)

    def challenged(self, data: bytes) -> None:
        """Ask the client for more: amid CONNECT's exchange, or a re-authentication's."""
        raise NotImplementedError(type(self).__name__)

    def reauthenticated(self, data: bytes | None) -> None:
        raise NotImplementedError(type(self).__name__)

    def subscribe(self, packet: Subscribe) -> None:
        """As if the client had sent this; of packet id 0: as the node wants it, so it isn't answered."""
        raise NotImplementedError(type(self).__name__)

    def close(self, reason: int, why: str = "") -> None:
        """The server ends the connection; a 5.0 client is told why."""
        raise NotImplementedError(type(self).__name__)

    def send_away(self, to_others: bool) -> None:
        """This node takes no clients any more: to the server that the zone names, or to any other (section 4.11).
        `to_others`: other nodes of the cluster take them."""
        raise NotImplementedError(type(self).__name__)

    def lost(self) -> None:
        """The client closed the connection, or the network did."""
        raise NotImplementedError(type(self).__name__)

    def expire(self) -> None:
        """End an overdue connection."""
        self.close(Reason.KEEP_ALIVE_TIMEOUT)

    def overflow(self) -> None:
        """Cut off with a reason rather than left with a gap: the session ends here, and the client knows it."""
        self.close(Reason.QUOTA_EXCEEDED)

    # What is asked of the node; as `NodePort`.

    def authorize(self, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]) -> int:
        raise NotImplementedError(type(self).__name__)

    def denied(self, action: int, topic: bytes) -> bool:
        raise NotImplementedError(type(self).__name__)

    def flush_soon(self) -> None:
        raise NotImplementedError(type(self).__name__)

    def must_be_asked_about(self, checked: bool) -> None:
        """From now on; whatever was allowed before is asked about again."""
        self.must_authorize = checked
        self.allowed = set() if checked or self.limits.strict_mode else None

    # What the client is told.

    def answer(self, packet: bytes) -> None:
        """Put what can't be left out; a client that allows no packet of its size can't go on [MQTT-3.1.2-24]."""
        session = self.session
        if session is not None and 0 < session.max_packet_bytes < len(packet):
            self.close(Reason.PACKET_TOO_LARGE, f"an answer of {len(packet)} bytes")
        else:
            self.put(packet)

    def acknowledge(self, qos: int, packet_id: int, reason: int) -> None:
        """PUBACK or PUBREC for a message that was taken, or refused with a reason ≥ 0x80."""
        if not self.can_answer() or qos == 0:
            return
        if reason == Reason.SUCCESS or (reason < 0x80 and self.protocol_version != 5):
            self.put(_ACK_HEADS[qos] + packet_id.to_bytes(2, "big"))
            return
        session = self.session
        assert session is not None
        if qos == 2 and reason >= 0x80:
            session.forget(packet_id)
        if self.protocol_version == 5:
            self.put(encode.pub_ack(frame.PUBACK if qos == 1 else frame.PUBREC, 5, packet_id, reason))
        elif reason >= 0x80:
            self.close(reason)  # 3.1.1 can't refuse a message, and must not acknowledge it [MQTT-4.3.2-2]

    def denial(self, message: Publish) -> int:
        """The client may not publish this: what the acknowledgement says. It may end the connection."""
        if self.denied(PUBLISH, message.topic):
            self.close(Reason.NOT_AUTHORIZED)
        return self.sayable(Reason.NOT_AUTHORIZED)

    def sayable(self, reason: int) -> int:
        """Before 5.0 a message can't be refused, so it is acknowledged and goes nowhere [MQTT-3.3.5-2]."""
        return reason if self.protocol_version == 5 else Reason.SUCCESS

    def subscribe_waits(self) -> None:
        """A SUBSCRIBE or an UNSUBSCRIBE isn't answered yet; with too many of them nothing more is read."""
        self.subscribes_waiting += 1
        if self.subscribes_waiting == SUBSCRIBES_WAITING_MAX:
            self.pause()

    def subscribe_answered(self) -> None:
        if self.subscribes_waiting == SUBSCRIBES_WAITING_MAX:
            self.unpause()
        self.subscribes_waiting -= 1
