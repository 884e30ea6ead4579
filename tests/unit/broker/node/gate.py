"""A node whose clients meet its access control: bans, plugins, the chain, exchanges of AUTH packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flockmq.auth.scram import Verifier
from flockmq.auth.service import AuthService
from flockmq.auth.unknown_user_secret import UnknownUserSecret
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import (
    AuthenticationSettings,
    AuthorizationSettings,
    FlappingSettings,
    ScramSettings,
)
from flockmq.mqtt import encode
from flockmq.mqtt.message import Will
from flockmq.mqtt.packets import Auth as AuthPacket
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.node.access_control import AccessControl
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import Principal
from flockmq.rlog.entry import Op
from flockmq.rlog.schema import USERS, User
from flockmq.session.local_session import LocalSession
from unit.broker.auth.harness import FakeLog
from unit.broker.protocol.harness import Client, Node, Port, without_words

METHOD = b"SCRAM-SHA-256"
FIRST = b"n,,n=jo,r=abc"
SCRAM = AuthenticationSettings(chain=(ScramSettings(),))
OPEN = AuthenticationSettings(allow_anonymous=True)


class Hooks:
    """Plugins that say nothing, unless a test has them say something."""

    def __init__(self) -> None:
        self.known: Principal | int | None = None
        self.verdict: int | None = None
        self.asked: list[tuple[bytes, bytes]] = []

    def authenticate(self, channel: Channel, connect: Connect) -> Principal | int | None:
        return self.known

    def must_authenticate(self) -> bool:
        return self.known is not None

    def must_authorize(self) -> bool:
        return self.verdict is not None

    def authorize(
        self, channel: Channel, action: int, prefix: bytes, topic: bytes, qos: int, retain: bool
    ) -> int | None:
        self.asked.append((prefix, topic))
        return self.verdict


class Gate(Port):
    """A node whose clients meet its access, as `node.Node` has them meet."""

    def __init__(
        self, authentication: AuthenticationSettings, authorization: AuthorizationSettings, flapping: FlappingSettings
    ) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.channels: list[Channel] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens between a client's authentication and its CONNACK."""
        self.rlog = FakeLog()
        self.plugins = Hooks()
        rlog = self.rlog.as_rlog()
        unknown_user_secret = UnknownUserSecret(rlog, b"p", lambda: True, bytes)
        self.auth = AuthService(
            authentication,
            authorization,
            flapping,
            rlog,
            unknown_user_secret=unknown_user_secret,
            is_leader=lambda: False,
        )
        self.access = AccessControl(
            self.auth, self.plugins, self._admitted, self._find, lambda: self.channels, self.flush_soon, SYSTEM
        )

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.access.admit(channel, connect)

    def continued(self, channel: Channel, packet: AuthPacket) -> None:
        self.access.continued(channel, packet)

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        return self.access.authorize(channel, action, topic, qos, retain, done)

    def gone(self, channel: Channel, session: LocalSession, will: Will | None) -> None:
        self.access.gone(channel, session.client_id)
        super().gone(channel, session, will)

    def _admitted(self, channel: Channel, connect: Connect, principal: Principal, extra: Properties | None) -> None:
        self.meanwhile()
        channel.principal = principal
        channel.set_must_authorize(self.access.must_authorize(principal))
        assert channel.session is not None
        channel.admitted(connect, 7, channel.session, False, extra)
        self.channels.append(channel)
        self.access.connected(channel)

    def _find(self, client_id: bytes) -> Channel | None:
        return next((one for one in self.channels if one.client_id() == client_id and not one.has_ended()), None)


Make = Callable[..., Gate]


def connack(gate: Gate, **more: Any) -> tuple[Client, list[bytes]]:
    client = gate.node.opened()
    answer = gate.node.feed(client, encode.connect(Connect(5, b"c", **more)))
    return client, without_words(answer)


def is_let_in(answer: list[bytes]) -> bool:
    return len(answer) == 1 and answer[0][0] == 0x20 and answer[0][3] == 0


def auth(data: bytes | None, reason: int = Reason.CONTINUE_AUTHENTICATION) -> bytes:
    return encode.auth(reason, said(data))


def said(data: bytes | None) -> Properties:
    properties = Properties()
    properties.authentication_method = METHOD
    properties.authentication_data = data
    return properties


def begun(gate: Gate, data: bytes | None = FIRST) -> tuple[Client, list[bytes]]:
    gate.rlog.put([USERS.put("jo", User("", str(Verifier.made("pw", 4096))))])
    return connack(gate, properties=said(data))


def challenge(packets: list[bytes]) -> bytes:
    (packet,) = packets
    assert (packet[0], packet[2]) == (0xF0, Reason.CONTINUE_AUTHENTICATION)
    return packet[packet.index(b"r=abc") :]


async def changed(node: Gate, *ops: Op) -> None:
    node.rlog.put(ops)
    if node.access._kicking is not None:
        await node.access._kicking
    node.node.turn()
