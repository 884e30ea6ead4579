"""Interfaces between session_rpc and the cluster, the node's connections, and the core's durable sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from flockmq.protocol.channel import Channel
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import PendingWill
from flockmq.session_rpc.messages import Answered


class Registration(NamedTuple):
    """A connection with a token. `request`: None if the session is clean without a will and user."""

    client_id: bytes
    token: int
    request: messages.SessionRequest | None


class ClientConnections(Protocol):
    """The connections of this node."""

    def kick(self, client_id: bytes, token: int) -> bool:
        """Close this connection with 0x8E and `detach` it. Returns False if there is none."""
        ...

    def overflow(self, client_id: bytes, token: int) -> None:
        """Close it with 0x97: the queue of its session is full."""
        ...

    def connections(self) -> Iterable[Registration]: ...
    def holds(self, client_id: bytes, token: int) -> bool:
        """True if this connection still exists."""
        ...


class SessionProxies(Protocol):
    """This node's connections to durable sessions."""

    def delivered(self, owner: str, token: int, packets: bytes) -> None:
        """Packets from an owner to a client. They are dropped if the owner no longer has the session."""
        ...

    def unsettled(self, token: int) -> bytes:
        """All acknowledgements of the client that the owner hasn't settled, in order."""
        ...


def _never() -> None:
    raise AssertionError("it has no quota to wait for")


class Attach(NamedTuple):
    """An attach that the registry has granted. `answer(flags)` is called when the session is committed; `answer(None)`
    if a newer connection replaced this one first. `again` repeats the attach if its connection still exists. `nonce`:
    of its CONNECT, also where `request` is None because the session is clean; b"": it has none.
    """

    client_id: bytes
    incarnation: str
    token: int
    request: messages.SessionRequest | None
    answer: Callable[[int | None], None]
    user: bytes | None = None
    again: Callable[[], None] = _never
    nonce: bytes = b""


class SessionServicePort(Protocol):
    """The durable sessions on this core; `durable` implements it. `flags` as in `messages`."""

    def has_loaded(self, slot: int) -> bool:
        """True if all sessions of the slot are loaded."""
        ...

    def own(self, slot: int) -> None:
        """This core owns the slot now: load its sessions, then call `ProxyPort.loaded`."""
        ...

    def disown(self, slot: int) -> None: ...

    def open(self, attach: Attach) -> int:
        """Open the session. Returns ADMITTED, and calls `attach.answer` later; or returns why not, and has no effect
        then.
        """
        ...

    def is_other_users(self, client_id: bytes, user: bytes | None) -> bool:
        """True if another user has a session with this client id."""
        ...

    def was_asked_by(self, client_id: bytes, request: messages.SessionRequest | None) -> bool:
        """True if this CONNECT is the last one that opened the session."""
        ...

    def leave(
        self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"", hold_s: float = 0.0
    ) -> None:
        """A connection ended. Has no effect for an unknown one. `hold_s`: how long to hold back its will."""
        ...

    def hold(self, left: PendingWill, hold_s: float) -> None:
        """Publish the will of a clean session after `hold_s`, unless the client reconnects before, or has done so."""
        ...

    def cancel(self, client_id: bytes, origin: bytes) -> None:
        """The client reconnected before the owner heard of the eviction: the will with this message id isn't held
        back, however often that is reported.
        """
        ...

    def resume(
        self, client_id: bytes, incarnation: str, token: int, request: messages.SessionRequest, pairs: bytes
    ) -> bool:
        """A node registers an existing connection, which may have missed packets. `pairs`: all its unsettled
        acknowledgements. Returns False if the session has ended, or has disconnected this connection.
        """
        ...

    def report(self, incarnation: str, token: int, pairs: bytes) -> None: ...

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: messages.Question, answer: Answered
    ) -> None:
        """`place`: the number of the request, and that of the connection's request before it, 0 if that is answered."""
        ...

    def report_load(self) -> None:
        """Check for congested sessions; called every 0.1 s."""
        ...

    def cut(self, incarnation: str) -> None:
        """The link to a node broke, so packets to it may be lost; or packets to it found no link or no room."""
        ...

    def node_gone(self, incarnation: str) -> None: ...


class NoSessions:
    """Used at nodes that own no slots."""

    def has_loaded(self, slot: int) -> bool:
        return False

    def own(self, slot: int) -> None:
        raise AssertionError("only cores own slots")

    def disown(self, slot: int) -> None:
        """There are none."""

    def open(self, attach: Attach) -> int:
        raise AssertionError("only cores own slots")

    def is_other_users(self, client_id: bytes, user: bytes | None) -> bool:
        return False

    def was_asked_by(self, client_id: bytes, request: messages.SessionRequest | None) -> bool:
        return False

    def leave(
        self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"", hold_s: float = 0.0
    ) -> None:
        """There is none."""

    def hold(self, left: PendingWill, hold_s: float) -> None:
        raise AssertionError("only cores own slots")

    def cancel(self, client_id: bytes, origin: bytes) -> None:
        raise AssertionError("only cores own slots")

    def resume(
        self, client_id: bytes, incarnation: str, token: int, request: messages.SessionRequest, pairs: bytes
    ) -> bool:
        raise AssertionError("only cores own slots")

    def report(self, incarnation: str, token: int, pairs: bytes) -> None:
        """The node will report to the owner."""

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: messages.Question, answer: Answered
    ) -> None:
        answer(b"")

    def report_load(self) -> None:
        """There are no sessions."""

    def cut(self, incarnation: str) -> None:
        """There are no sessions."""

    def node_gone(self, incarnation: str) -> None:
        """There are no sessions."""


class ProxyPort(Protocol):
    """The way to session proxies."""

    @property
    def deliver(self) -> Callable[[str, int, bytes], None]:
        """Send packets to a session proxy: incarnation of its node, token, packets."""
        ...

    def overflow(self, incarnation: str, client_id: bytes, token: int) -> None: ...
    def loaded(self, slot: int) -> None: ...
    def retaken(self, slot: int) -> None: ...
    def is_linked(self, incarnation: str) -> bool: ...
    def is_connected(self, client_id: bytes) -> bool:
        """A connection has this client id."""
        ...

    def congested(self, slot: int, is_congested: bool) -> None: ...
    def report_memory(self, slot: int, members_accept: bool, filters: list[bytes]) -> None: ...


Held = tuple[bytes, int]
"""(filter that the client asked for, QoS)"""


class FilterAuthorizer(Protocol):
    async def denied(self, channel: Channel, held: dict[bytes, Held]) -> list[bytes]:
        """Returns the filters for which the client isn't authorized."""
        ...
