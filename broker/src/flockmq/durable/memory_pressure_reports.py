"""Which sessions take at once what comes, slot by slot, told to all nodes while Redis is short of memory.

A message stays in Redis until its client acknowledged it. One for a client that is connected and has room in its window
soon makes room again; one for a client that is away, or whose window is full, would stay. What always holds:
- Of a slot nothing is said where Redis' memory is used up: nodes refuse what is for it. What can't be said shortly is
  said as if all of it would wait.
- What a node heard it forgets after TAKERS_KEPT_S, so it is said several times as often.
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


class AcceptingSessions:
    """One per core. `say` hears of a slot: whether members of its shared subscriptions take what comes, and the filters
    of sessions that would have it wait. `is_asked`: Redis is short of memory."""

    def __init__(
        self, manager: SlotManager, store: SessionStore, say: Callable[[int, bool, list[bytes]], None]
    ) -> None:
        self.is_asked = False
        self._manager = manager
        self._store = store
        self._say = say
        self._slots: list[int] = []
        """Those to be looked at in this round."""
        self._began_s = 0.0

    def beat(self, now_s: float) -> None:
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
        """How many sessions were looked at."""
        if not self._store.is_short(slot.number):
            self._say(slot.number, True, [])
            return 1
        filters: dict[bytes, None] = {}
        size_bytes = 0
        for client_id in slot.clients:
            session = self._manager.sessions.by_id.get(client_id)
            if session is None or session.takes_at_once():
                continue
            for subscription in session.subscriptions.all():
                if subscription.qos and not is_shared(subscription.filter):
                    filter = matching(subscription.filter)
                    size_bytes += 0 if filter in filters else len(filter)
                    filters[filter] = None
            if len(filters) > TAKERS_FILTERS_MAX or size_bytes > TAKERS_FILTERS_MAX_BYTES:
                filters = {b"#": None}
                break
        self._say(slot.number, self._members_take(slot.number), list(filters))
        return 1 + len(slot.clients)

    def _members_take(self, slot: int) -> bool:
        """It is those who are connected to whom messages are dealt out."""
        groups = self._manager.router.groups.get(slot, {}).values()
        return all(group.connected.members and all(map(_takes_at_once, group.connected.members)) for group in groups)


def _takes_at_once(member: Subscription) -> bool:
    session = member.session
    return isinstance(session, DurableSession) and session.takes_at_once()
