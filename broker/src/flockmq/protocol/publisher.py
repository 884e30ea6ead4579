"""One client as a publisher: from its PUBLISH to the router, by way of limits, authorization and interception.

What always holds: acknowledgements come in the order of their messages [MQTT-4.6.0-2]; what can't be answered at once
stands in `line`, and while anything does, all that follows joins it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import ALLOWED_HEADS_MAX
from flockmq.mqtt import encode, frame
from flockmq.mqtt.errors import PacketError, protocol_error
from flockmq.mqtt.message import Publish, parse_publish
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topic_aliases import IncomingAliases
from flockmq.mqtt.topics import check_topic_name, is_system
from flockmq.protocol import strict_mode
from flockmq.protocol.peer import PeerInfo
from flockmq.protocol.ports import ALLOWED, ASKED, PUBLISH, NodePort
from flockmq.protocol.principal import ANONYMOUS, Principal
from flockmq.protocol.publish_queue import ASKING, CHECKING, DONE, LOGGING, READY, Inbound, PublishQueue
from flockmq.routing import fast_path
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.router import Router
from flockmq.session.client_session import FULL, REPEAT, ClientSession
from flockmq.session.limits import Limits

_DOLLAR: Final = 0x24
_ACK_HEADS: Final = (b"", b"\x40\x02", b"\x50\x02")


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Publisher(PausablePublisher):
    """`plain`: the zone lets all heads of the router take the fast road; `must_authorize`: what the client publishes
    and subscribes to is asked of the port.
    """

    __slots__ = (
        "_left_as",
        "aliases",
        "limits",
        "line",
        "line_paused",
        "must_authorize",
        "plain",
        "port",
        "principal",
        "repeats",
        "router",
        "session",
    )

    def __init__(self, router: Router, port: NodePort, limits: Limits) -> None:
        super().__init__(router.pauses, 4)
        self.router = router
        self.port = port
        self.limits = limits
        self.session: ClientSession | None = None
        self._left_as: bytes = b""
        self.repeats: bool = False
        """It is gone, and its session lasts: it sends again what wasn't acknowledged [MQTT-4.4.0-1]."""
        self.principal: Principal = ANONYMOUS
        self.must_authorize: bool = False
        self.allowed = set() if limits.strict_mode else None
        self.plain: bool = limits.max_qos_allowed > 0 and limits.max_topic_levels >= router.max_topic_levels
        self.aliases: IncomingAliases | None = None
        self.line: PublishQueue | None = None
        self.line_paused: bool = False

    def client_id(self) -> bytes:
        session = self.session
        return self._left_as if session is None else session.client_id

    def leave(self, session: ClientSession) -> None:
        """Let go of the session, which may refer to this: objects without cycles go at once."""
        self._left_as = session.client_id
        self.session = None
        self.repeats = session.is_remote()
        line = self.line
        if line is not None and line.is_held:
            self.router.held.abandoned(line)

    def peer(self) -> PeerInfo:
        """Where the client comes from; a listener knows."""
        return PeerInfo("", 0, "", self.limits.name)

    def address(self) -> str:
        """The same for the log."""
        peer = self.peer()
        return f"{peer.host}:{peer.port}" if peer.port else peer.host

    def can_answer(self) -> bool:
        """The client is connected, and hears what is put."""
        raise NotImplementedError(type(self).__name__)

    def close(self, reason: int, why: str = "") -> None:
        """The server ends the connection."""
        raise NotImplementedError(type(self).__name__)

    def receive(self, data: bytes, at: int, body: int, end: int) -> None:
        """The PUBLISH from `at` to `end`, whose variable header begins at `body`. Raises PacketError."""
        message = parse_publish(data, at, body, end, self.protocol_version, self.aliases)
        if not self.router.knows(message.topic):
            check_topic_name(message.topic, "MQTT-3.3.2-2")
        self._check_limits(message)
        is_strict = self.limits.strict_mode
        is_as_indicated = not is_strict or strict_mode.check_publish(message)
        counters = self.router.counters
        counters.messages_received += 1
        if message.qos == 1:
            counters.messages_received_qos1 += 1
        elif message.qos == 2:
            counters.messages_received_qos2 += 1
        session = self.session
        assert session is not None
        if message.qos == 2:
            heard = session.receive(message.packet_id, self.router.now_s)
            if heard == REPEAT:
                if is_strict and not data[at] & 8:
                    raise protocol_error("a QoS 2 PUBLISH sent again without DUP", "MQTT-3.3.1-1")
                if self.line is None or not self.line.holds(message.packet_id):  # else its PUBREC is on its way
                    self.acknowledge(2, message.packet_id, Reason.SUCCESS)
                return
            if heard == FULL:
                raise PacketError(
                    Reason.RECEIVE_MAXIMUM_EXCEEDED, "MQTT-3.3.4-7", "more QoS 2 messages than may await PUBREL"
                )
        if message.topic[0] == _DOLLAR and self.router.refuses(message.topic):
            if is_system(message.topic):
                self._deny(message)
            else:
                self._answer(message, self.sayable(Reason.TOPIC_NAME_INVALID))
        elif not is_as_indicated:
            self._refuse(message, Reason.PAYLOAD_FORMAT_INVALID)
        elif self.must_authorize:
            self._authorize(message, fast_path.head_of(data, at, end, self.protocol_version))
        else:
            if is_strict:
                self._remember(fast_path.head_of(data, at, end, self.protocol_version))
            self._take(message)

    def _check_limits(self, message: Publish) -> None:
        limits = self.limits
        if message.qos > limits.max_qos_allowed:
            raise PacketError(Reason.QOS_NOT_SUPPORTED, "MQTT-3.2.2-11", f"PUBLISH with QoS {message.qos}")
        if message.retain and not limits.retain_available:
            raise PacketError(Reason.RETAIN_NOT_SUPPORTED, "MQTT-3.2.2-14", "PUBLISH with RETAIN")
        if message.topic.count(b"/") >= limits.max_topic_levels:
            raise PacketError(
                Reason.TOPIC_NAME_INVALID, "section 4.7.3", f"topic name of more than {limits.max_topic_levels} levels"
            )

    def _authorize(self, message: Publish, head: bytes) -> None:
        inbound = Inbound(self, message, CHECKING)
        verdict = self.port.judge.authorize(self, PUBLISH, message.topic, message.qos, message.retain, inbound.decided)
        if verdict == ALLOWED:
            self._remember(head)
            self._take(message)
        elif verdict == ASKED:
            self._join(inbound)
        else:
            self._deny(message)

    def _remember(self, head: bytes) -> None:
        """Packets that begin so may take the fast road."""
        allowed = self.allowed
        if allowed is not None and head:
            if len(allowed) >= ALLOWED_HEADS_MAX:
                allowed.clear()
            allowed.add(head)

    def must_be_asked_about(self, checked: bool) -> None:
        """From now on; whatever was allowed before is asked about again."""
        self.must_authorize = checked
        self.allowed = set() if checked or self.limits.strict_mode else None

    def _deny(self, message: Publish) -> None:
        reason = self.denial(message)
        if self.can_answer():
            self._answer(message, reason)

    def _refuse(self, message: Publish, reason: int) -> None:
        """What is wrong with a 5.0 client's message is said in its acknowledgement, or by the connection's end."""
        if message.qos:
            self._answer(message, reason)
        else:
            self.close(reason)

    def denial(self, message: Publish) -> int:
        """The client may not publish this: what the acknowledgement says. It may end the connection."""
        if self.port.access.denied(self, PUBLISH, message.topic):
            self.close(Reason.NOT_AUTHORIZED)
        return self.sayable(Reason.NOT_AUTHORIZED)

    def sayable(self, reason: int) -> int:
        """Before 5.0 a message can't be refused, so it is acknowledged and goes nowhere [MQTT-3.3.5-2]."""
        return reason if self.protocol_version == 5 else Reason.SUCCESS

    def _take(self, message: Publish) -> None:
        """Deliver now where nothing has to be waited for, or join the line."""
        router, said = self.router, message
        if router.is_intercepted(message.topic):
            replaced = self.port.hooks.intercept(self, message)
            if isinstance(replaced, int):
                self._answer(message, self.sayable(replaced))
                return
            message = replaced
        state = self._first_state(message, self.session)
        if self.line is None and state == READY and not (router.stale and message.qos):
            fan = router.route(message.topic).fanout
            if not fan.crosses or message.qos == 0:
                reason: int = Reason.NO_MATCHING_SUBSCRIBERS if fan.reaches_nobody() else Reason.SUCCESS
                if (fan.crosses or fan.groups) and router.forward(fan, message, _nobody_waits, self) < 0:
                    reason = Reason.QUOTA_EXCEEDED
                router.delivery.deliver(fan, message, self)
                self.acknowledge(message.qos, message.packet_id, reason)
                return
        inbound = Inbound(self, message, state)
        inbound.said = said
        self._join(inbound)

    def _first_state(self, message: Publish, session: ClientSession | None) -> int:
        """What must know of it before it is delivered: the owner of a session that lasts, the log, or nothing."""
        if message.qos == 2 and session is not None and session.is_remote():
            return ASKING
        return LOGGING if message.must_be_logged() else READY

    def _answer(self, message: Publish, reason: int) -> None:
        """Acknowledge a message that goes nowhere, behind those that came before it [MQTT-4.6.0-2]."""
        if self.line is None:
            self.acknowledge(message.qos, message.packet_id, reason)
        else:
            inbound = Inbound(self, message, DONE)
            inbound.reason = reason
            self._join(inbound)

    def _join(self, inbound: Inbound) -> None:
        line = self.line
        if line is None:
            self.line = line = PublishQueue(self)
        line.join(inbound)
        if line.is_full() and not self.line_paused:
            self.line_paused = True
            self.pause()
        line.advance()
        if line.is_held:
            self._wait_for_tables()

    def _wait_for_tables(self) -> None:
        """What this node may hold is bounded, however many clients there are."""
        held = self.router.held
        held.make_room()
        if held.is_too_much():
            self.close(Reason.QUOTA_EXCEEDED, "too much waits here")
        elif held.is_much() and not self.line_paused:
            self.line_paused = True
            self.pause()

    def permitted(self, inbound: Inbound) -> None:
        """It is the turn of a message that may be published: what is to be done with it."""
        message = inbound.message
        if self.router.is_intercepted(message.topic):
            replaced = self.port.hooks.intercept(self, message)
            if isinstance(replaced, int):
                inbound.reason = self.sayable(replaced)
                inbound.state = DONE
                return
            inbound.message = message = replaced
        inbound.state = self._first_state(message, inbound.session)

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

    def line_moved(self) -> None:
        """Some of the line were acknowledged: read on when there is room, and take the fast road when it is empty."""
        line = self.line
        if line is None:
            return
        if self.line_paused and line.has_room() and not (line.is_held and self.router.held.is_much()):
            self.line_paused = False
            self.unpause()
        if len(line) == 0:
            self.line = None


def _nobody_waits() -> None:
    """A QoS 0 message is forwarded without an answer."""
