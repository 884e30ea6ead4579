"""What the sessions that run here need of their node and of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from flockmq.quotas import Usage
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session_rpc.clean_session_wills import Left


class Desk(Protocol):
    """What of the cluster a subscription needs."""

    def claim(self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        """Exclusive filters, for this client alone: `done` gets those that are refused, with their reasons."""
        ...

    def release(self, client_id: bytes, filters: list[bytes]) -> None:
        """Exclusive filters that were claimed, and are not used."""
        ...

    def route_slot(self, slot: int, filters: list[bytes], done: Callable[[int], None]) -> None:
        """Have the log route what isn't routed to the slot yet: `done` gets the worst reason code."""
        ...

    def unrouted_slot(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        """The client was the last of the slot's to subscribe to these."""
        ...

    def came_with(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        """The filters of a session that ran elsewhere before."""
        ...

    def slot_gone(self, slot: int) -> None: ...

    def see_retained(self, then: Callable[[bool], None]) -> None:
        """`then` gets whether this node has all that was retained by now."""
        ...

    def owe(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        """Give them what is retained."""
        ...


class HostPort(Desk, Protocol):
    """The node that owns the slots."""

    @property
    def incarnation(self) -> str: ...

    def slots_epoch(self) -> int:
        """The place in the cluster's log that slots and members are at."""
        ...

    def floor(self, slot: int) -> int:
        """A token above those of all connections that came before this core owned the slot."""
        ...

    def has_authors(self) -> bool:
        """All nodes understand whom a retained message is of (`rlog.retained_authors`)."""
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

    def session_ended(self, client_id: bytes) -> None: ...
    def alarm(self, slot: int, text: str, *, is_ours: bool = True) -> None:
        """What of the slot can't be read; "": nothing. Not `is_ours`: it is another owner's to say."""
        ...

    def changed(self) -> None:
        """Slots came or went, or are loaded: batches that were held may be taken."""
        ...

    def flush_soon(self) -> None: ...
    def soon(self, call: Callable[[], None]) -> object: ...
