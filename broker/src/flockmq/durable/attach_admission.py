"""Decides whether a connection gets its session: the owner of the client id, Redis memory, and the user's quota.

Invariants: a refused attach has no effect. A client that returns to an existing session is refused last, because its
acknowledgements free memory.
"""

from __future__ import annotations

from flockmq.durable.ports import HostPort
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot_manager import SlotManager
from flockmq.quotas import ONE_SESSION, Usage
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.client_registry import are_different_users
from flockmq.session_rpc.ports import Attach


class AttachAdmission:
    """Decides for the attaches at one core. Admitted attaches may still have to wait (`waiting_attaches`)."""

    def __init__(self, host: HostPort, manager: SlotManager, store: SessionStore) -> None:
        self._host = host
        self._manager = manager
        self._sessions = manager.sessions
        self._store = store

    def status(self, attach: Attach) -> int:
        """ADMITTED, or why not: OTHER_USER, FULL, OVER_QUOTA."""
        if self.is_other_users(attach.client_id, attach.user):
            return messages.OTHER_USER
        if not self._has_room(attach):
            return messages.FULL
        return messages.ADMITTED if self._has_quota(attach) else messages.OVER_QUOTA

    def is_other_users(self, client_id: bytes, user: bytes | None) -> bool:
        session = self._sessions.find(client_id)
        return session is not None and are_different_users(user, session.record.user)

    def _has_room(self, attach: Attach) -> bool:
        """True if Redis has room for what must be written at least. A client whose session can't be read gets no new
        session beside it, but may end it with Clean Start.
        """
        client_id, request = attach.client_id, attach.request
        number = slot_of(client_id)
        slot = self._manager.slots.get(number)
        if slot is not None and client_id in slot.unread:
            ends_it = request is None or request.clean_start
            if not ends_it or not slot.may_drop_unread(client_id, attach.user):
                return False
        if request is None:
            return True
        if client_id in self._sessions.by_id and not request.clean_start:
            return not self._store.is_backed_up(number)
        return not request.expiry_s or not self._store.is_short(number)

    def _has_quota(self, attach: Attach) -> bool:
        """The quota bounds new sessions and growth: a client that returns with nothing larger is admitted."""
        client_id, request = attach.client_id, attach.request
        if request is None:
            return True
        usage = self._host.usage(attach.user)
        if usage is None:
            return True
        known = self._sessions.by_id.get(client_id)
        will_bytes = 0 if request.will is None else len(request.will.packet)
        if known is not None:
            former = known.meta.will
            more_bytes = will_bytes - (0 if former is None else len(former.message.packet))
        elif not request.expiry_s:
            return True
        elif not usage.may_begin():
            return False
        else:
            more_bytes = len(client_id) + will_bytes
        return more_bytes <= 0 or usage.may_queue(more_bytes, is_away=False)

    def must_wait_for_quota(self, attach: Attach) -> Usage | None:
        """The usage that other nodes must know of before this new session begins; None: they needn't."""
        begins = attach.request is not None and attach.request.expiry_s and attach.client_id not in self._sessions.by_id
        usage = self._host.usage(attach.user) if begins else None
        return usage if usage is not None and usage.must_wait(ONE_SESSION) else None
