"""The session proxy: a connection's side of a durable session, which runs at its owner (`durable.session`). It knows
the packet ids in flight on this connection.

 PUBLISH arrived ──▶ SENT ── PUBACK ──▶ ANSWERED ── settled ──▶ forgotten
      └─ PUBREC ─▶ RECEIVED ── PUBREL arrived ─▶ RELEASED ── PUBCOMP ─▶ ANSWERED

Invariants: the client gets each PUBLISH and each PUBREL of an exchange once on this connection, however often owners
send it [MQTT-4.4.0-1]. It never has more open exchanges than its receive maximum [MQTT-3.3.4-9]; the proxy checks that,
because a new owner may start with different messages than those now in flight to the client. Each acknowledgement of
the client is reported until the owner has settled it.

Acknowledgements between the proxy and the owner are pairs of a kind (1 byte) and a packet id (2 bytes). The owner sends
settled pairs in the same stream as packets, each as a packet of a type that MQTT doesn't have. So a pair never arrives
before a packet that was sent ahead of it; that packet may be a repeat, which the proxy recognizes only until its packet
id is settled.

    reported by the proxy            settled by the owner, after the commit
    PUBACK, PUBREC_REFUSED, PUBCOMP  the same: the proxy forgets the packet id
    PUBREC                           nothing: PUBREL is sent, as a packet
    PUBREL                           the same, or PUBREL_UNKNOWN: the proxy sends PUBCOMP
    DROPPED                          the same: the client's message is refused, so no PUBREL follows

The client is told of a refusal when that is settled. Otherwise it may use the packet id for a new message, which the
owner would take for a repeat of the refused one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.mqtt import encode, frame
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import packet_id_offset
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topic_aliases import OutgoingAliases
from flockmq.routing.sink import Sink
from flockmq.session.client_session import DONE, LATER, UNKNOWN, ClientSession, SubscribeChange, UnsubscribeChange
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession

SETTLED: Final = 0x00
"""The first byte of a settled pair, which isn't for the client."""
AGAIN: Final = b"\0\0"
"""Marker: everything incomplete is sent again after it. The proxy reports all unsettled acknowledgements again, because
something may have been lost.
"""

PUBACK: Final = 0x04
PUBREC: Final = 0x05
PUBREL: Final = 0x06
PUBCOMP: Final = 0x07
PUBREC_REFUSED: Final = 0x85
PUBREL_UNKNOWN: Final = 0x86
DROPPED: Final = 0x96

PAIR_BYTES: Final = 3


_SENT_QOS1: Final = 1
_SENT_QOS2: Final = 2
_RELEASED: Final = 3
"""Later states are the kind that is reported: PUBACK, PUBREC, PUBCOMP or PUBREC_REFUSED."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteSessionPort:
    """Sends reports and requests of this node's connections to the owners. A connection is named by its token."""

    def report(self, token: int) -> None:
        """`take_reports` has something to report."""
        raise NotImplementedError(type(self).__name__)

    def subscribe(self, token: int, change: SubscribeChange) -> None:
        raise NotImplementedError(type(self).__name__)

    def unsubscribe(self, token: int, change: UnsubscribeChange) -> None:
        raise NotImplementedError(type(self).__name__)


@mypyc_attr(acyclic=True)
class RemoteSession(ClientSession):
    """Replaces the local `session` that CONNECT made."""

    __slots__ = (
        "_aliases", "_dropping", "_held", "_is_resumed", "_open", "_port", "_releasing", "_reports",
        "_states", "_token", "_window", "awaiting_rel", "client_id", "expiry_s", "limits", "max_packet_bytes", "sink",
    )  # fmt: skip

    def __init__(self, session: LocalSession, port: RemoteSessionPort, token: int) -> None:
        self.client_id: bytes = session.client_id
        self.limits: Limits = session.limits
        self.max_packet_bytes: int = session.max_packet_bytes
        self.expiry_s: int = session.expiry_s
        self.awaiting_rel: dict[int, float] | None = None
        self.sink: Sink = session.sink
        self._window: int = session.window
        self._aliases: OutgoingAliases | None = session.aliases
        self._port = port
        self._token = token
        self._states: dict[int, int] = {}
        self._open: int = 0
        """Number of exchanges that the client must still answer."""
        self._held: dict[int, bytes] | None = None
        """Packet id → PUBLISH that waits until an exchange ends. An owner has at most one window in flight, which
        bounds this.
        """
        self._is_resumed: bool = False
        self._releasing: dict[int, bool] | None = None
        self._dropping: dict[int, Callable[[], None]] | None = None
        self._reports: list[bytes] | None = None

    def is_remote(self) -> bool:
        return True

    def is_congested(self) -> bool:
        return False

    def held_bytes(self) -> int:
        size = 0 if self._aliases is None else self._aliases.size_bytes
        return size if self._held is None else size + sum([len(packet) for packet in self._held.values()])

    def send_again(self) -> None:
        """The owner sends them."""
        self._is_resumed = True

    def subscribe(self, change: SubscribeChange) -> None:
        self._port.subscribe(self._token, change)

    def unsubscribe(self, change: UnsubscribeChange) -> None:
        self._port.unsubscribe(self._token, change)

    # From the owner.

    def arrived(self, chunk: bytes) -> bytes:
        """Process complete packets and settled pairs from the owner. Returns the packets that go to the client now."""
        passed: list[bytes] = []
        passes_all = self._aliases is None
        at = 0
        while at < len(chunk):
            length, body = remaining_length(chunk, at + 1, 0)
            first = chunk[at]
            packet = chunk[at : body + length]
            at = body + length
            if first == SETTLED:
                passes_all = False
                if length == 0:
                    self.moved()
                else:
                    passed.append(self._settled(chunk[body], chunk[body + 1] << 8 | chunk[body + 2]))
                continue
            if first >> 4 == frame.PUBREL:
                is_new = self._pubrel(chunk[body] << 8 | chunk[body + 1])
            else:
                is_new = first & 6 == 0 or self._publish(packet)
                if is_new:
                    self.sink.messages_out += 1
                    if self._aliases is not None:
                        packet = self._aliases.shorten(packet)
            if is_new:
                passed.append(packet)
            else:
                passes_all = False
        return chunk if passes_all else b"".join(passed)

    def _publish(self, packet: bytes) -> bool:
        id_at = packet_id_offset(packet)
        packet_id = packet[id_at] << 8 | packet[id_at + 1]
        if packet_id in self._states:
            return False
        if self._open >= self._window:
            if self._held is None:
                self._held = {}
            self._held[packet_id] = packet
            return False
        self._begin(packet_id, packet)
        return True

    def _begin(self, packet_id: int, packet: bytes) -> None:
        self._states[packet_id] = packet[0] >> 1 & 3
        self._open += 1

    def _pubrel(self, packet_id: int) -> bool:
        state = self._states.get(packet_id)
        if state is None:
            self._open += 1
        elif state not in (PUBREC, _SENT_QOS2):
            return False
        self._states[packet_id] = _RELEASED
        return True

    def _end(self) -> None:
        """The client has answered an exchange: the next held PUBLISH may start."""
        self._open -= 1
        held = self._held
        if held is None or self._open >= self._window:
            return
        packet_id = next(iter(held))
        packet = held.pop(packet_id)
        if not held:
            self._held = None
        self._begin(packet_id, packet)
        aliases = self._aliases
        self.sink.put(packet if aliases is None else aliases.shorten(packet))
        self.sink.messages_out += 1

    def _settled(self, kind: int, packet_id: int) -> bytes:
        """The owner has committed a report. Returns what the client must be sent."""
        if kind in (PUBREL, PUBREL_UNKNOWN):
            return self._pubcomp(packet_id, kind == PUBREL)
        if kind == DROPPED:
            if self._dropping is not None and packet_id in self._dropping:
                forgotten = self._dropping.pop(packet_id)
                self.release(packet_id)
                forgotten()
        elif self._states.get(packet_id) == kind:
            del self._states[packet_id]
        return b""

    def _pubcomp(self, packet_id: int, was_known: bool) -> bytes:
        releasing = self._releasing
        if releasing is None or packet_id not in releasing:
            return b""
        was_known = releasing.pop(packet_id) or was_known
        reason: int = Reason.SUCCESS if was_known else Reason.PACKET_IDENTIFIER_NOT_FOUND
        return encode.pub_ack(frame.PUBCOMP, self.sink.protocol_version, packet_id, reason)

    def moved(self) -> None:
        """The session has a new owner, or its owner may have missed reports: report everything unsettled again."""
        self._reports = None
        for packet_id in self._dropping or ():
            self._report(DROPPED, packet_id)
        for packet_id, state in self._states.items():
            if state > _RELEASED:
                self._report(state, packet_id)
        for packet_id in self._releasing or ():
            self._report(PUBREL, packet_id)

    # From the client.

    def puback(self, packet_id: int) -> bool:
        if self._states.get(packet_id) != _SENT_QOS1:
            return False
        self._states[packet_id] = PUBACK
        self._report(PUBACK, packet_id)
        self._end()
        return True

    def pubrec(self, packet_id: int, refused: bool) -> int:
        state = self._states.get(packet_id)
        if state == _SENT_QOS2:
            kind = PUBREC_REFUSED if refused else PUBREC
            del self._states[packet_id]
            # Moved to the end: PUBRELs are sent in the order of the PUBRECs [MQTT-4.6.0-4].
            self._states[packet_id] = kind
            self._report(kind, packet_id)
            if refused:
                self._end()
            return LATER
        if state == PUBREC and not refused:
            return LATER
        if state is None and not refused and self._is_resumed and self._open < 2 * self._window:
            self._received_before(packet_id)
            return LATER
        return DONE if state == _RELEASED and not refused else UNKNOWN

    def _received_before(self, packet_id: int) -> None:
        """The client answers a message of its former connection. Only the owner knows that message, so it answers with
        PUBREL. If the proxy sent PUBREL here, the client would take the repeated PUBLISH for a new message.
        """
        held = self._held
        if held is not None and packet_id in held:
            del held[packet_id]
            if not held:
                self._held = None
        self._open += 1
        self._states[packet_id] = PUBREC
        self._report(PUBREC, packet_id)

    def contradicts(self, kind: int, packet_id: int) -> bool:
        """Checks only exchanges of this connection. Acknowledgements for the former connection may arrive
        in any state.
        """
        state = self._states.get(packet_id)
        if kind == frame.PUBREC:
            return state == _SENT_QOS1
        if kind == frame.PUBACK:
            return state in (_SENT_QOS2, PUBREC, _RELEASED)
        return state in (_SENT_QOS1, _SENT_QOS2, PUBREC)

    def pubcomp(self, packet_id: int) -> bool:
        if self._states.get(packet_id) != _RELEASED:
            return False
        self._states[packet_id] = PUBCOMP
        self._report(PUBCOMP, packet_id)
        self._end()
        return True

    def pubrel(self, packet_id: int) -> int:
        releasing = self._releasing
        if releasing is None:
            self._releasing = releasing = {}
        if packet_id not in releasing:
            releasing[packet_id] = self.release(packet_id)
            self._report(PUBREL, packet_id)
        return LATER

    def forget(self, packet_id: int, forgotten: Callable[[], None]) -> bool:
        if self._dropping is None:
            self._dropping = {}
        self._dropping[packet_id] = forgotten
        self._report(DROPPED, packet_id)
        return False

    # To the owner.

    def take_reports(self) -> bytes:
        """The reports since the last call, as pairs of kind and packet id, in the order of the client's answers."""
        reports = self._reports
        if reports is None:
            return b""
        self._reports = None
        return b"".join(reports)

    def _report(self, kind: int, packet_id: int) -> None:
        reports = self._reports
        if reports is None:
            self._reports = [pair(kind, packet_id)]
            self._port.report(self._token)
        else:
            reports.append(pair(kind, packet_id))


def without_qos0(chunk: bytes) -> tuple[bytes, int]:
    """Remove QoS 0 messages from an owner's packets, for a slow reader. Returns the rest, and how many were removed."""
    passed: list[bytes] = []
    dropped = 0
    at = 0
    while at < len(chunk):
        length, body = remaining_length(chunk, at + 1, 0)
        end = body + length
        if chunk[at] >> 4 == frame.PUBLISH and chunk[at] & 6 == 0:
            dropped += 1
        else:
            passed.append(chunk[at:end])
        at = end
    return b"".join(passed), dropped


def pair(kind: int, packet_id: int) -> bytes:
    return bytes((kind, packet_id >> 8, packet_id & 0xFF))


def settled(kind: int, packet_id: int) -> bytes:
    """A pair as it is sent in the stream of packets."""
    return b"\0\3" + pair(kind, packet_id)
