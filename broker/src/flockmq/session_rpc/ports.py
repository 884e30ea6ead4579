"""What the two sides of session_rpc ask of the cluster, of the connections of a node, and of the sessions of a core."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol

from flockmq.membership.slot_table import SlotTable
from flockmq.protocol.channel import Channel
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import Left
from flockmq.session_rpc.messages import Answered


class ClusterPort(Protocol):
    """What it needs of `membership.cluster.Cluster`."""

    incarnation: str
    on_node_gone: list[Callable[[str], None]]
    on_core_linked: list[Callable[[str], None]]
    on_link_lost: list[Callable[[str], None]]

    @property
    def slots(self) -> SlotTable: ...
    @property
    def is_confirmed_member(self) -> bool: ...
    @property
    def nodes_table(self) -> Collection[str]:
        """The incarnations that are members."""
        ...

    def on_note(self, method: str, handler: Callable[[str, bytes], None]) -> None: ...
    def is_linked(self, incarnation: str) -> bool: ...
    def tell(self, incarnation: str, method: str, body: bytes) -> bool: ...
    def is_backed_up(self, incarnation: str) -> bool: ...
    def cut(self, incarnation: str) -> None: ...


class PacketsPort(Protocol):
    """`delivery.client_packets.ClientPackets`: what sessions send to their clients at other nodes."""

    on_came: Callable[[str, bytes], None]

    def send(self, incarnation: str, parts: list[bytes], size_bytes: int) -> bool:
        """One DELIVERY frame; False: there is no link, or too much waits on it already."""
        ...


class Registration(NamedTuple):
    """One that holds a token; `opening` where its session runs at its owner, or its will is kept there, or it has a
    user."""

    client_id: bytes
    token: int
    opening: messages.Opening | None


class ClientConnections(Protocol):
    """The connections of this node."""

    def kick(self, client_id: bytes, token: int) -> bool:
        """Close this connection with 0x8E, and `detach` it; False when there is none."""
        ...

    def overflow(self, client_id: bytes, token: int) -> None:
        """Close it with 0x97: its session found no room for a message."""
        ...

    def connections(self) -> Iterable[Registration]: ...
    def holds(self, client_id: bytes, token: int) -> bool:
        """This connection is there still."""
        ...


class SessionProxies(Protocol):
    """The connections of this node whose sessions run at their owners."""

    def delivered(self, owner: str, token: int, packets: bytes) -> None:
        """An owner sends this to the client; one whose session it isn't any more isn't heard."""
        ...

    def unsettled(self, token: int) -> bytes:
        """All that the client answered and the owner hasn't settled, in its order."""
        ...


def _never() -> None:
    raise AssertionError("it has no quota to wait for")


class Attach(NamedTuple):
    """A connection that was admitted, and what it asks for. `answer` gets the flags when what follows is durable; None
    when it went before that: a newer one has taken its place. `again` opens it anew, if it is still there."""

    client_id: bytes
    incarnation: str
    token: int
    opening: messages.Opening | None
    answer: Callable[[int | None], None]
    user: bytes | None = None
    again: Callable[[], None] = _never


class SessionServicePort(Protocol):
    """The sessions that run here; `durable` implements it. `flags` are those of `messages`."""

    def has_loaded(self, slot: int) -> bool:
        """Everything of the slot is here."""
        ...

    def own(self, slot: int) -> None:
        """The slot is this node's: get its sessions, then tell `ProxyPort.loaded`."""
        ...

    def disown(self, slot: int) -> None: ...

    def open(self, attach: Attach) -> int:
        """The session, if it lasts, sends behind the answer: ADMITTED. FULL, ANOTHERS: nothing was done."""
        ...

    def is_anothers(self, client_id: bytes, user: bytes | None) -> bool:
        """Another user has a session of this client id."""
        ...

    def was_asked_by(self, client_id: bytes, opening: messages.Opening | None) -> bool:
        """The session was opened by this CONNECT, the last of its client."""
        ...

    def leave(
        self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"", hold_s: float = 0.0
    ) -> None:
        """A connection is gone; unknown ones are none of our business. `hold_s`: for how long its will is held back."""
        ...

    def hold(self, left: Left, hold_s: float) -> None:
        """The will of a session that ended with its connection: publish it then, unless the client is back."""
        ...

    def resume(self, client_id: bytes, incarnation: str, token: int, opening: messages.Opening, pairs: bytes) -> bool:
        """A connection that is there already, and may have missed what was sent; `pairs`: all that it answered and
        wasn't settled. False: its session has ended, or cut it off.
        """
        ...

    def report(self, incarnation: str, token: int, pairs: bytes) -> None: ...

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: messages.Question, answer: Answered
    ) -> None:
        """`place`: its number, and that of the one before it of this connection while that isn't answered, or 0."""
        ...

    def beat(self) -> None:
        """Every moment: look whom too much waits for."""
        ...

    def cut(self, incarnation: str) -> None:
        """A link to a node was lost, and maybe what was on it; or deliveries found none, or no room."""
        ...

    def node_gone(self, incarnation: str) -> None: ...


class NoSessions:
    """Of a node that owns no slots."""

    def has_loaded(self, slot: int) -> bool:
        return False

    def own(self, slot: int) -> None:
        raise AssertionError("only cores own slots")

    def disown(self, slot: int) -> None:
        """It had none."""

    def open(self, attach: Attach) -> int:
        raise AssertionError("only cores own slots")

    def is_anothers(self, client_id: bytes, user: bytes | None) -> bool:
        return False

    def was_asked_by(self, client_id: bytes, opening: messages.Opening | None) -> bool:
        return False

    def leave(
        self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"", hold_s: float = 0.0
    ) -> None:
        """It has none."""

    def hold(self, left: Left, hold_s: float) -> None:
        raise AssertionError("only cores own slots")

    def resume(self, client_id: bytes, incarnation: str, token: int, opening: messages.Opening, pairs: bytes) -> bool:
        raise AssertionError("only cores own slots")

    def report(self, incarnation: str, token: int, pairs: bytes) -> None:
        """Whoever reports will hear of the session's owner."""

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: messages.Question, answer: Answered
    ) -> None:
        answer(b"")

    def beat(self) -> None:
        """Nothing waits for nobody."""

    def cut(self, incarnation: str) -> None:
        """It delivers nothing."""

    def node_gone(self, incarnation: str) -> None:
        """None was of its clients."""


class ProxyPort(Protocol):
    """The way to session proxies."""

    @property
    def deliver(self) -> Callable[[str, int, bytes], None]:
        """Send to a session proxy: incarnation of its node, token, packets."""
        ...

    def overflow(self, incarnation: str, client_id: bytes, token: int) -> None: ...
    def loaded(self, slot: int) -> None: ...
    def retaken(self, slot: int) -> None: ...
    def is_linked(self, incarnation: str) -> bool: ...
    def is_connected(self, client_id: bytes) -> bool:
        """A connection has this client id."""
        ...

    def congested(self, slot: int, is_congested: bool) -> None: ...
    def takers(self, slot: int, members_take: bool, filters: list[bytes]) -> None: ...


Held = tuple[bytes, int]
"""(filter as the client asked for it, QoS)"""


class Judge(Protocol):
    async def denied(self, channel: Channel, held: dict[bytes, Held]) -> list[bytes]:
        """Which of these filters the client may not have."""
        ...
