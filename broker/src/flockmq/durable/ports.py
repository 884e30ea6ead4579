"""What the durable sessions on this core need from their node and from the cluster (interfaces)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from flockmq.membership.slot_table import SlotTable
from flockmq.quotas import Usage
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session_rpc.clean_session_wills import PendingWill


class ClusterPort(Protocol):
    """What a subscription needs from the cluster."""

    def claim(
        self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None], user: bytes
    ) -> None:
        """Claim exclusive filters for this client, in the user's turn. `done` gets the refused filters with their
        reason codes."""
        ...

    def release(self, client_id: bytes, filters: list[bytes]) -> None:
        """Give up claims of exclusive filters that the client doesn't use."""
        ...

    def route_slot(self, slot: int, filters: list[bytes], done: Callable[[int], None], user: bytes) -> None:
        """Add routes to the slot for filters that have none yet, in the user's turn. `done` gets the worst reason
        code."""
        ...

    def unrouted_slot(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        """No session of the slot subscribes to these filters any more; this client was the last one."""
        ...

    def filters_loaded(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        """This core loaded a session that ran on another owner before; these are its filters."""
        ...

    def slot_gone(self, slot: int) -> None: ...

    def knows_subscribes(self) -> bool:
        """True if all nodes understand the stored nonces of SUBSCRIBEs."""
        ...

    def see_retained(self, then: Callable[[bool], None]) -> None:
        """Wait until this node has all messages that are retained now. `then` gets False if that failed."""
        ...

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        """Send the retained messages to these new subscriptions."""
        ...


class HostPort(ClusterPort, Protocol):
    """The node that owns the slots."""

    @property
    def incarnation(self) -> str: ...

    @property
    def slots(self) -> SlotTable: ...

    def floor(self, slot: int) -> int:
        """A token above the tokens of all connections that began before this core owned the slot."""
        ...

    def has_authors(self) -> bool:
        """True if all nodes understand the author of a retained message (`rlog.retained_order`)."""
        ...

    def may_do_what_is_due(self) -> bool:
        """False: another core may own this core's slots by now. Its clients may be back there, or gone in order."""
        ...

    def members(self) -> Collection[str]: ...
    def usage(self, user: bytes | None) -> Usage | None:
        """The quota usage of this user; None: it has no quota."""
        ...

    def limits(self, zone: str) -> Limits: ...
    def publish(self, left: PendingWill, accepted: Callable[[], None]) -> None:
        """Publish a will if its client is still authorized. Calls `accepted` when all receivers have accepted the will,
        or when nobody will get it.
        """
        ...

    def session_ended(self, client_id: bytes) -> None: ...
    def alarm(self, slot: int, text: str, *, is_ours: bool = True) -> None:
        """Raise the alarm for unreadable data of a slot, or clear it if `text` is empty. Not `is_ours`: this core no
        longer owns the slot, and the new owner raises its own alarm.
        """
        ...

    def changed(self) -> None:
        """Slots were gained, lost or loaded. Message batches that were held back may be taken now."""
        ...

    def flush_soon(self) -> None: ...
    def soon(self, call: Callable[[], None]) -> object: ...
