"""The seams of a home: what its client ids, its sessions, their node and the cluster ask of one another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from flockmq.home import wire
from flockmq.home.asking import Answered
from flockmq.home.guests import Left
from flockmq.home.subscribing import Desk
from flockmq.quotas import Usage
from flockmq.session.limits import Limits
from flockmq.session.session import Session


class Cluster(Protocol):
    """What homes need of `cluster.Cluster`."""

    incarnation: str
    on_node_gone: list[Callable[[str], None]]
    on_slot: list[Callable[[int, str], None]]
    on_core_linked: list[Callable[[str], None]]
    on_link_lost: list[Callable[[str], None]]
    on_delivery: Callable[[str, bytes], None]

    @property
    def slots(self) -> Mapping[int, str]: ...
    @property
    def is_surely_member(self) -> bool: ...
    @property
    def nodes_table(self) -> Collection[str]:
        """The incarnations that are members."""
        ...

    def epoch(self) -> int: ...
    def on_note(self, method: str, handler: Callable[[str, bytes], None]) -> None: ...
    def is_linked(self, incarnation: str) -> bool: ...
    def tell(self, incarnation: str, method: str, body: bytes) -> bool: ...
    def is_choked(self, incarnation: str) -> bool: ...
    def cut(self, incarnation: str) -> None: ...
    def deliver(self, incarnation: str, parts: list[bytes], size_bytes: int) -> bool: ...


def _never() -> None:
    raise AssertionError("it has no quota to wait for")


class Attach(NamedTuple):
    """A connection that was admitted, and what it asks for. `answer` gets the flags when what follows is durable; None
    when it went before that: a newer one has taken its place. `again` opens it anew, if it is still there."""

    client_id: bytes
    incarnation: str
    token: int
    opening: wire.Opening | None
    answer: Callable[[int | None], None]
    user: bytes | None = None
    again: Callable[[], None] = _never


class Residents(Protocol):
    """The sessions that run at this home. `flags` are those of `wire`."""

    def has_loaded(self, slot: int) -> bool:
        """Everything of the slot is here."""
        ...

    def own(self, slot: int) -> None:
        """The slot is this node's: get its sessions, then tell `Homes.loaded`."""
        ...

    def disown(self, slot: int) -> None: ...

    def open(self, attach: Attach) -> int:
        """The session, if it lasts, sends behind the answer: ADMITTED. FULL, ANOTHERS: nothing was done."""
        ...

    def is_anothers(self, client_id: bytes, user: bytes | None) -> bool:
        """Another user has a session of this client id."""
        ...

    def was_asked_by(self, client_id: bytes, opening: wire.Opening | None) -> bool:
        """The session was opened by this CONNECT, the last of its client."""
        ...

    def leave(self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"") -> None:
        """A connection is gone; unknown ones are none of our business."""
        ...

    def resume(self, client_id: bytes, incarnation: str, token: int, opening: wire.Opening, pairs: bytes) -> bool:
        """A connection that is there already, and may have missed what was sent; `pairs`: all that it answered and
        wasn't settled. False: its session has ended, or cut it off.
        """
        ...

    def report(self, incarnation: str, token: int, pairs: bytes) -> None: ...

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: wire.Question, answer: Answered
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


class Nobody:
    """The residents of a node that is nobody's home."""

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

    def was_asked_by(self, client_id: bytes, opening: wire.Opening | None) -> bool:
        return False

    def leave(self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"") -> None:
        """It has none."""

    def resume(self, client_id: bytes, incarnation: str, token: int, opening: wire.Opening, pairs: bytes) -> bool:
        raise AssertionError("only cores own slots")

    def report(self, incarnation: str, token: int, pairs: bytes) -> None:
        """Whoever reports will hear of the session's home."""

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: wire.Question, answer: Answered
    ) -> None:
        answer(b"")

    def beat(self) -> None:
        """Nothing waits for nobody."""

    def cut(self, incarnation: str) -> None:
        """It delivers nothing."""

    def node_gone(self, incarnation: str) -> None:
        """None was of its clients."""


class Homes(Protocol):
    """The way to the fronts."""

    def deliver(self, incarnation: str, token: int, packets: bytes) -> None: ...
    def overflow(self, incarnation: str, client_id: bytes, token: int) -> None: ...
    def loaded(self, slot: int) -> None: ...
    def retaken(self, slot: int) -> None: ...
    def is_linked(self, incarnation: str) -> bool: ...
    def crowd(self, slot: int, is_crowded: bool) -> None: ...
    def takers(self, slot: int, members_take: bool, filters: list[bytes]) -> None: ...


class Host(Desk, Protocol):
    """The node that this home is a part of."""

    @property
    def incarnation(self) -> str: ...

    def slots_epoch(self) -> int:
        """The place in the cluster's log that slots and members are at."""
        ...

    def floor(self, slot: int) -> int:
        """A token above those of all connections that came before this core was the slot's home."""
        ...

    def has_authors(self) -> bool:
        """All nodes understand whom a retained message is of (`rlog.authors`)."""
        ...

    def members(self) -> Collection[str]: ...
    def usage(self, user: bytes | None) -> Usage | None:
        """What this user has; None: nobody's."""
        ...

    def limits(self, zone: str) -> Limits: ...
    def publish(self, left: Left, accepted: Callable[[], None]) -> None:
        """A will, if its client may still publish it: `accepted` is called when everybody who is to have it has it, or
        nobody will."""
        ...

    def session_ended(self, session: Session) -> None: ...
    def alarm(self, slot: int, text: str, *, is_ours: bool = True) -> None:
        """What of the slot can't be read; "": nothing. Not `is_ours`: it is another home's to say."""
        ...

    def changed(self) -> None:
        """Slots came or went, or are loaded: batches that were held may be taken."""
        ...

    def flush_soon(self) -> None: ...
    def soon(self, call: Callable[[], None]) -> object: ...
