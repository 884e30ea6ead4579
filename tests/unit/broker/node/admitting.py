"""A node whose connections ask an owner for their client ids; it answers when a test tells it to."""

from __future__ import annotations

from flockmq.clock import SYSTEM
from flockmq.entropy import SYSTEM as SYSTEM_ENTROPY
from flockmq.mqtt import encode
from flockmq.mqtt.message import Will as LastWill
from flockmq.mqtt.packets import Connect, ConnectWill
from flockmq.mqtt.properties import Properties
from flockmq.node.connections import Connections
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ANONYMOUS, Principal
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.messages import Admission, Answered, AttachError, Done, Question, SessionRequest
from flockmq.session_rpc.remote_sessions import RemoteSessions
from unit.broker.protocol.harness import Client, Node, Port

OWNER = "core@1"


class Owner:
    """Answers an attach when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, SessionRequest | None, Done]] = []
        self.detached: list[tuple[bytes, int, int, bool]] = []
        self.evicted: list[tuple[bytes, int, int, float, SessionRequest | None]] = []
        self.nonces: list[bytes] = []
        """Of the requests of those that are detached."""
        self.confirmed: list[tuple[bytes, int]] = []

    def attach(self, client_id: bytes, request: SessionRequest | None, done: Done) -> None:
        self.asked.append((client_id, request, done))

    def detach(
        self, client_id: bytes, token: int, expiry_s: int = -1, *, with_will: bool = False, nonce: bytes = b""
    ) -> None:
        self.detached.append((client_id, token, expiry_s, with_will))
        self.nonces.append(nonce)

    def evict(
        self, client_id: bytes, token: int, expiry_s: int, nonce: bytes, hold_s: float, guest: SessionRequest | None
    ) -> None:
        self.evicted.append((client_id, token, expiry_s, hold_s, guest))
        self.nonces.append(nonce)

    def owner(self, slot: int) -> str:
        return OWNER

    def report(self, client_id: bytes, token: int, pairs: bytes) -> None:
        assert not pairs, "nothing was answered"
        self.confirmed.append((client_id, token))

    def ask(self, client_id: bytes, token: int, question: Question, answered: Answered) -> None:
        raise AssertionError("nothing was asked for")


class Nobody:
    """Plugins and `$SYS` topics: nobody is told."""

    def connected(self, *_: object) -> None: ...
    def disconnected(self, *_: object) -> None: ...
    def taken_over(self, *_: object) -> None: ...


class Admitting(Port):
    """A node whose clients are real."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.owner = Owner()
        self.user = b""
        """Who the next client is."""
        self.events: list[tuple[str, bytes, int, int]] = []
        self.left: list[LastWill | None] = []
        """The wills of connections that are gone."""
        router = self.node.router
        self.proxies = RemoteSessions(
            router.turn, self.flush_soon, lambda channel, filter: None, SYSTEM_ENTROPY.token_bytes
        )
        self.clients = Connections(
            self.sessions,
            self.proxies,
            router.counters,
            self.flush_soon,
            Nobody(),
            Nobody(),
            lambda kind, client_id, channel: self.events.append(
                (kind, client_id, channel.close_reason, channel.protocol_version)
            ),
            SYSTEM,
            SYSTEM_ENTROPY.token_bytes,
        )
        self.clients.owners = self.proxies.owners = self.owner

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.clients.authenticated(channel, connect, Principal(self.user) if self.user else ANONYMOUS)

    def gone(self, channel: Channel, session: LocalSession, will: LastWill | None) -> None:
        self.left.append(will)
        self.clients.gone(channel, session, will)

    def connecting(
        self,
        client_id: bytes = b"c",
        version: int = 5,
        *,
        clean: bool = True,
        expiry_s: int = 0,
        will: ConnectWill | None = None,
    ) -> Client:
        channel = self.node.opened()
        properties = expiring(expiry_s) if expiry_s else None
        connect = Connect(version, client_id, clean_start=clean, will=will, properties=properties)
        assert self.node.feed(channel, encode.connect(connect)) == []
        return channel

    def answer(
        self, channel: Client, answer: int | AttachError, *, lasts: bool = False, present: bool = False
    ) -> bytes:
        _, _, done = self.owner.asked.pop(0)
        done(Admission(answer, lasts, present) if isinstance(answer, int) else answer)
        self.node.turn()
        return b"".join(channel.packets())

    def durable(self, token: int, version: int = 5, will: ConnectWill | None = None) -> Client:
        """Connected; its session, which ends an hour after it left, runs at its owner."""
        client = self.connecting(version=version, clean=False, expiry_s=3600 if version == 5 else 0, will=will)
        assert self.answer(client, token, lasts=True)[3] == 0
        return client

    def tokens(self) -> list[tuple[bytes, int]]:
        return [(connection.client_id, connection.token) for connection in self.clients.connections()]


def expiring(interval_s: int) -> Properties:
    properties = Properties()
    properties.session_expiry_interval = interval_s
    return properties
