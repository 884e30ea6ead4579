"""One client's connection as its node and its requests see it: abstract; `conversation.Conversation` implements it.

 OPENED ── CONNECT ──▶ ADMITTING ── admitted ──▶ CONNECTED ──▶ CLOSED
 │                   │      ▲                                 ▲
 │          challenged      AUTH                              │
 │                   ▼      │                                 │
 │                AUTHENTICATING ─────────────────────────────┤
 └────── anything else, refused, timed out ───────────────────┘

Invariants: acknowledgements are sent in the order of their messages [MQTT-4.6.0-2]. A message that can't be answered at
once is put into `publish_queue`; while anything is in it, all later messages join it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i32, i64, mypyc_attr, u8

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
    """`protocol_version`: 4 for MQTT 3.1 and 3.1.1, 5 for 5.0 (4 before CONNECT). Times are the router's, in seconds.

    `plain`: the limits of the zone allow the fast path for all heads. `must_authorize`: the node must authorize what
    the client publishes and subscribes to. `repeats`: the connection has ended but the session is durable, so the
    client will send again what wasn't acknowledged [MQTT-4.4.0-1]. `clean_end`: the client sent DISCONNECT.
    `asked_expiry`: a 5.0 client asked for a session expiry in CONNECT, whatever the zone grants.
    `connected_s`: when it was admitted. `bytes_in`, `bytes_out`: what was read from it, and written to it.
    """

    __slots__ = (
        "_left_as",
        "admitted_once",
        "aliases",
        "asked_expiry",
        "authentication_method",
        "bytes_in",
        "bytes_out",
        "clean_end",
        "close_reason",
        "connected_s",
        "is_mqtt31",
        "keepalive_s",
        "limits",
        "must_authorize",
        "plain",
        "principal",
        "publish_queue",
        "queue_paused",
        "repeats",
        "router",
        "session",
        "state",
        "subscribes_waiting",
        "token",
        "will",
    )  # fmt: skip

    def __init__(self, router: Router, limits: Limits) -> None:
        super().__init__(router.pauses, 4)
        self.repeats: bool = False
        self.must_authorize: bool = False
        self.plain: bool = limits.max_qos_allowed > 0 and limits.max_topic_levels >= router.max_topic_levels
        self.queue_paused: bool = False
        self.is_mqtt31: bool = False
        self.clean_end: bool = False
        self.admitted_once: bool = False
        self.asked_expiry: bool = False
        self.state: u8 = OPENED
        self.close_reason: u8 = Reason.SUCCESS
        self.subscribes_waiting: i32 = 0
        self.bytes_in: i64 = 0
        self.bytes_out: i64 = 0
        self.router = router
        self.limits = limits
        self.allowed = set() if limits.strict_mode else None
        self.session: ClientSession | None = None
        self._left_as: bytes = b""
        self.principal: Principal = ANONYMOUS
        self.authentication_method: bytes | None = None
        self.token: object = None
        self.will: Will | None = None
        self.aliases: IncomingAliases | None = None
        self.publish_queue: HoldableQueue | None = None
        self.keepalive_s: float = limits.idle_timeout
        self.connected_s: float = 0.0

    # Properties.

    def has_left(self) -> bool:
        """True if the client has closed its end; there may be data that wasn't read yet."""
        return self.has_ended()

    def can_answer(self) -> bool:
        """True if the client is connected, so it can get answers."""
        return self.state == CONNECTED

    def is_congested(self) -> bool:
        session = self.session
        return session is not None and session.is_congested()

    def held_bytes(self) -> int:
        """What is in this node's memory for the client: bytes to write, what its session holds, what it sent that isn't
        processed or acknowledged yet, and the topics of its aliases.
        """
        session, aliases, queue = self.session, self.aliases, self.publish_queue
        size: int = self.out_bytes + len(self.principal.username)
        if session is not None:
            size += session.held_bytes()
        if aliases is not None:
            size += aliases.size_bytes
        if queue is not None:
            size += queue.size_bytes()
        return size

    def forget_allowed(self, least: int) -> bool:
        """The node is short of memory: if it remembers at least so many packets that the client was allowed, forget
        them. They are authorized again when they come. Returns whether there were so many.
        """
        allowed = self.allowed
        if allowed is None or len(allowed) < least:
            return False
        allowed.clear()
        return True

    def client_id(self) -> bytes:
        session = self.session
        return self._left_as if session is None else session.client_id

    def peer(self) -> PeerInfo:
        """The client's address and listener; connections with a socket override this."""
        return PeerInfo("", 0, "", self.limits.name)

    def listener_name(self) -> str:
        """As in `peer`, but nobody is asked for the address."""
        return self.peer().listener

    def address(self) -> str:
        """The address for the log."""
        peer = self.peer()
        return f"{peer.host}:{peer.port}" if peer.port else peer.host

    def overdue(self, now_s: float) -> bool:
        """True if the client was silent for too long [MQTT-3.1.2-22], or didn't send CONNECT in time. False while the
        connection is paused, because then nothing is read from it.
        """
        return self.paused == 0 and self.keepalive_s != 0.0 and now_s - self.last_seen_s > self.keepalive_s

    # Events and commands.

    def feed(self, data: bytes) -> None:
        """Process bytes from the client; never raises for what a client sent."""
        raise NotImplementedError(type(self).__name__)

    def admitted(
        self, connect: Connect, token: object, session: ClientSession, present: bool, extra: Properties | None = None
    ) -> None:
        """The node admits this connection with this session: the one that CONNECT made, or an existing one (`present`).
        `token`: the owner's name for the connection. `extra`: the final data of an enhanced authentication.
        """
        raise NotImplementedError(type(self).__name__)

    def refuse(self, reason: int, why: str = "") -> None:
        """Send CONNACK with a failure, then close [MQTT-3.2.2-7]."""
        raise NotImplementedError(type(self).__name__)

    def challenged(self, data: bytes) -> None:
        """Send an AUTH challenge, during CONNECT or a re-authentication."""
        raise NotImplementedError(type(self).__name__)

    def reauthenticated(self, data: bytes | None) -> None:
        raise NotImplementedError(type(self).__name__)

    def subscribe(self, packet: Subscribe) -> None:
        """Subscribe as if the client had sent this packet. With packet id 0 the node itself wants it, so there is no
        SUBACK.
        """
        raise NotImplementedError(type(self).__name__)

    def close(self, reason: int, why: str = "") -> None:
        """Close the connection from the server's side; a 5.0 client gets the reason."""
        raise NotImplementedError(type(self).__name__)

    def send_away(self, to_others: bool) -> None:
        """This node takes no clients any more: redirect the client to the server that the zone names, or to any other
        (section 4.11). `to_others`: other nodes of the cluster accept clients.
        """
        raise NotImplementedError(type(self).__name__)

    def lost(self) -> None:
        """The client or the network closed the connection."""
        raise NotImplementedError(type(self).__name__)

    def expire(self) -> None:
        """Close an overdue connection."""
        self.close(Reason.KEEP_ALIVE_TIMEOUT)

    def overflow(self) -> None:
        """The queue is full: disconnect the client with a reason code, so that it doesn't miss messages unknowingly."""
        self.close(Reason.QUOTA_EXCEEDED)

    # Requests to the node; as in `NodePort`.

    def authorize(self, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]) -> int:
        raise NotImplementedError(type(self).__name__)

    def denied(self, action: int, topic: bytes) -> bool:
        raise NotImplementedError(type(self).__name__)

    def flush_soon(self) -> None:
        raise NotImplementedError(type(self).__name__)

    def set_must_authorize(self, checked: bool) -> None:
        """Set whether the node must authorize the client's requests from now on. Earlier results are forgotten."""
        self.must_authorize = checked
        self.allowed = set() if checked or self.limits.strict_mode else None

    # Answers to the client.

    def answer(self, packet: bytes) -> None:
        """Send a required packet. If it is larger than the client allows, the connection is closed [MQTT-3.1.2-24]."""
        session = self.session
        if session is not None and 0 < session.max_packet_bytes < len(packet):
            self.close(Reason.PACKET_TOO_LARGE, f"an answer of {len(packet)} bytes")
        else:
            self.put(packet)

    def acknowledge(self, qos: int, packet_id: int, reason: int) -> None:
        """Send PUBACK or PUBREC for a message that was accepted, or refused with a reason code ≥ 0x80."""
        if not self.can_answer() or qos == 0:
            return
        if reason == Reason.SUCCESS or (reason < 0x80 and self.protocol_version != 5):
            self.put(_ACK_HEADS[qos] + packet_id.to_bytes(2, "big"))
            return
        if self.protocol_version == 5:
            self.put(encode.pub_ack(frame.PUBACK if qos == 1 else frame.PUBREC, 5, packet_id, reason))
        elif reason >= 0x80:
            self.close(reason)  # 3.1.1 can't refuse a message, and must not acknowledge it [MQTT-4.3.2-2].

    def denied_reason(self, message: Publish) -> int:
        """The client may not publish this message: returns the reason code for its acknowledgement, or closes the
        connection.
        """
        if self.denied(PUBLISH, message.topic):
            self.close(Reason.NOT_AUTHORIZED)
        return self.reason_in_version(Reason.NOT_AUTHORIZED)

    def reason_in_version(self, reason: int) -> int:
        """The reason code, or SUCCESS before 5.0, where a message can't be refused: it is acknowledged and dropped
        [MQTT-3.3.5-2].
        """
        return reason if self.protocol_version == 5 else Reason.SUCCESS

    def subscribe_waits(self) -> None:
        """A SUBSCRIBE or UNSUBSCRIBE waits for its answer. With too many of them, stop reading."""
        self.subscribes_waiting += 1
        if self.subscribes_waiting == SUBSCRIBES_WAITING_MAX:
            self.pause()

    def subscribe_answered(self) -> None:
        if self.subscribes_waiting == SUBSCRIBES_WAITING_MAX:
            self.unpause()
        self.subscribes_waiting -= 1
