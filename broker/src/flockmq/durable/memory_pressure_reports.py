"""While Redis is short of memory: reports to all nodes, slot by slot, which sessions can take messages at once.

A message stays in Redis until its client acknowledges it. A message for a connected client with room in its window soon
frees its memory; one for an offline client, or a full window, would stay. Invariants:
- For a slot whose Redis is full the owner sends no report, so nodes refuse its messages. If the list of filters would
  be too long, the owner reports `#`.
- A node forgets a report after TAKERS_KEPT_S, so reports are sent four times as often.
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.bounds import TAKERS_FILTERS_MAX, TAKERS_FILTERS_MAX_BYTES, TAKERS_KEPT_S, TAKERS_LOOKED_AT_MAX
from flockmq.durable.session import DurableSession
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot import OwnedSlot
from flockmq.durable.slot_manager import SlotManager
from flockmq.mqtt.topics import is_shared, matching
from flockmq.routing.subscriber import Subscription


class MemoryPressureReports:
    """One per core. `say` sends a report of a slot: whether all members of its shared subscriptions take messages at
    once, and the filters of sessions for which messages would wait. `is_asked`: Redis is short of memory.
    """

    def __init__(
        self, manager: SlotManager, store: SessionStore, say: Callable[[int, bool, list[bytes]], None]
    ) -> None:
        self.is_asked = False
        self._manager = manager
        self._store = store
        self._say = say
        self._slots: list[int] = []
        """Slots that this round hasn't reported yet."""
        self._began_s = 0.0

    def tick(self, now_s: float) -> None:
        if not self.is_asked:
            return
        if not self._slots and now_s - self._began_s >= TAKERS_KEPT_S / 4:
            self._slots, self._began_s = list(self._manager.slots), now_s
        looked_at = 0
        while self._slots and looked_at < TAKERS_LOOKED_AT_MAX:
            slot = self._manager.slots.get(self._slots.pop())
            if slot is not None and slot.loaded and not self._store.is_full(slot.number):
                looked_at += self._look(slot)

    def _look(self, slot: OwnedSlot) -> int:
        """Report one slot; returns how many sessions were checked."""
        if not self._store.is_short(slot.number):
            self._say(slot.number, True, [])
            return 1
        filters: dict[bytes, None] = {}
        size_bytes = 0
        for client_id in slot.clients:
            session = self._manager.sessions.by_id.get(client_id)
            if session is None or session.accepts_now():
                continue
            for subscription in session.subscriptions.all():
                if subscription.qos and not is_shared(subscription.filter):
                    filter = matching(subscription.filter)
                    size_bytes += 0 if filter in filters else len(filter)
                    filters[filter] = None
            if len(filters) > TAKERS_FILTERS_MAX or size_bytes > TAKERS_FILTERS_MAX_BYTES:
                filters = {b"#": None}
                break
        self._say(slot.number, self._members_accept(slot.number), list(filters))
        return 1 + len(slot.clients)

    def _members_accept(self, slot: int) -> bool:
        """True if all connected members take messages at once. (Messages are assigned to connected members first.)"""
        groups = self._manager.router.groups.get(slot, {}).values()
        return all(group.connected.members and all(map(_accepts_now, group.connected.members)) for group in groups)


def _accepts_now(member: Subscription) -> bool:
    session = member.session
    return isinstance(session, DurableSession) and session.accepts_now()
