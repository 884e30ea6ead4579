"""The router for the durable sessions on this core. It gets its messages from slot messages.

Invariants: `wanted` counts the subscriptions by slot and filter; for these the cluster's tables have routes to the
slot. Members of shared subscriptions are kept by slot, because the tables count them by slot.
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.default_callbacks import ignore
from flockmq.durable.session import DurableSession
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.routing.group import Group
from flockmq.routing.router import Router
from flockmq.routing.shared_frames import SharedItem, unwrap
from flockmq.routing.sink import SinkHost
from flockmq.routing.slots import SlotPeers
from flockmq.routing.subscriber import Subscription


class DurableRouter(Router):
    """`own`: the router of this node's clean sessions. Both share the iteration, the counters and the
    shared-subscription assigner. `on_count` is called with a slot and share filter whose number of members changed,
    and the user of the member; `on_missing` when a message arrived for a share filter without members.
    """

    def __init__(self, own: Router, slots: SlotPeers) -> None:
        super().__init__(
            SinkHost(own.counters, own.turn),
            own.max_packet_size,
            own.max_topic_levels,
            match_cache_bytes=own.matches.max_bytes,
        )
        self.shared = own.shared
        self.on_count: Callable[[int, bytes, bytes], None] = ignore
        self.on_missing: Callable[[int, bytes], None] = ignore
        self.wanted: dict[tuple[int, bytes], int] = {}
        self.filters: dict[int, int] = {}
        """Slot → number of different filters."""
        self.groups: dict[int, dict[bytes, Group]] = {}
        """Slot → share filter → members."""
        self._slots = slots

    def add(self, subscription: Subscription) -> None:
        if is_shared(subscription.filter):
            self._join(subscription)
        else:
            super().add(subscription)
            slot = slot_of(subscription)
            key = (slot, matching(subscription.filter))
            known = self.wanted.get(key, 0)
            self.wanted[key] = known + 1
            if known == 0:
                self.filters[slot] = self.filters.get(slot, 0) + 1

    def remove(self, subscription: Subscription) -> None:
        if is_shared(subscription.filter):
            self._leave(subscription)
        else:
            super().remove(subscription)
            slot = slot_of(subscription)
            key = (slot, matching(subscription.filter))
            left = self.wanted.get(key, 0) - 1
            if left > 0:
                self.wanted[key] = left
            elif left == 0:
                del self.wanted[key]
                self.filters[slot] -= 1
                if self.filters[slot] == 0:
                    del self.filters[slot]

    def is_unwanted(self, subscription: Subscription) -> bool:
        filter, slot = subscription.filter, slot_of(subscription)
        if is_shared(filter):
            return self._group(slot, filter) is None
        return is_exclusive(filter) or (slot, matching(filter)) not in self.wanted

    def member_moved(self, member: Subscription) -> None:
        group = self._group(slot_of(member), member.filter)
        if group is not None and group.has(member):
            self._place(group, member)

    # Shared subscriptions.

    def count(self, slot: int, share_filter: bytes) -> tuple[int, int]:
        """Number of members in the slot: (connected, offline)."""
        group = self._group(slot, share_filter)
        return (0, 0) if group is None else (len(group.connected), len(group.away))

    def members(self) -> int:
        """Number of members of all shared subscriptions."""
        groups = [group for by_filter in self.groups.values() for group in by_filter.values()]
        return sum(len(group.connected) + len(group.away) for group in groups)

    def deal(self, slot: int, version: int, chunk: bytes) -> list[SharedItem]:
        """Deliver messages that were assigned to members of a slot. Returns those for which the slot has no member.
        Raises PacketError if it is malformed.
        """
        left: list[SharedItem] = []
        for item in unwrap(chunk):
            group = self._group(slot, item.filter)
            if group is None:
                left.append(item)
                self.on_missing(slot, item.filter)
            else:
                self.shared.deal(group, item, version)
        return left

    def pass_on(self, slot: int, version: int, items: list[SharedItem]) -> None:
        """Assign the messages to members outside this slot. Raises PacketError."""
        for item in items:
            self.shared.pass_on(item, version, self._slots.peer(slot))

    def give_up_shared(self, slot: int) -> None:
        """The slot has another owner now: remove its members of shared subscriptions."""
        self.groups.pop(slot, None)

    def _group(self, slot: int, share_filter: bytes) -> Group | None:
        by_filter = self.groups.get(slot)
        return None if by_filter is None else by_filter.get(share_filter)

    def _join(self, member: Subscription) -> None:
        slot = slot_of(member)
        group = self._group(slot, member.filter)
        if group is None:
            group = Group(member.filter)
            self.groups.setdefault(slot, {})[member.filter] = group
        self._place(group, member)

    def _place(self, group: Group, member: Subscription) -> None:
        if group.place(member):
            self.on_count(slot_of(member), member.filter, member.session.takes_turns_as())

    def _leave(self, member: Subscription) -> None:
        slot = slot_of(member)
        group = self._group(slot, member.filter)
        if group is None:
            return
        group.discard(member)
        if group.is_empty():
            by_filter = self.groups[slot]
            del by_filter[member.filter]
            if not by_filter:
                del self.groups[slot]
        self.on_count(slot, member.filter, member.session.takes_turns_as())


def slot_of(subscription: Subscription) -> int:
    session = subscription.session
    assert isinstance(session, DurableSession)
    return session.writer.slot
