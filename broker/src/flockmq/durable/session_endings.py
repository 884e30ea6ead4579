"""Handles the end of a session or a subscription: publishes the will, removes the routes, and gives undelivered
messages of shared subscriptions to other members.

Invariant: other members get messages of an ended session only after Redis has committed the end. Otherwise the slot's
next owner would find the messages in the session and send them again.
"""

from __future__ import annotations

from functools import partial

from flockmq.durable.pending_writes import if_durable
from flockmq.durable.ports import HostPort
from flockmq.durable.router import DurableRouter
from flockmq.durable.session import DurableSession
from flockmq.durable.session_store import SessionStore
from flockmq.durable.session_table import SessionEnds, SessionTable
from flockmq.durable.slot import OwnedSlot
from flockmq.mqtt.message import StoredMessage, Will
from flockmq.mqtt.reason import Reason
from flockmq.session.remove_subscriptions import drop_waiting
from flockmq.session_rpc.clean_session_wills import PendingWill


class SessionEndings(SessionEnds):
    """The ends of sessions in `slots`, which are the slots that this core owns."""

    def __init__(self, host: HostPort, store: SessionStore, router: DurableRouter, slots: dict[int, OwnedSlot]) -> None:
        self._host = host
        self._store = store
        self._router = router
        self._slots = slots

    def publish(self, will: Will, session: DurableSession) -> None:
        """Store and publish a due will, if the session still runs on this core."""
        slot = self._slots.get(session.writer.slot)
        if slot is not None and session.runs_in(slot):
            will.message.origin = session.will_origin()
            slot.wills.publish(PendingWill(session.client_id, session.record.user, will), self._router.host.now_s)

    def unrouted(self, session: DurableSession, filters: list[bytes]) -> None:
        """Remove the slot's routes for these filters, after the unsubscription is committed."""
        slot = session.writer.slot
        unrouted = partial(self._host.unrouted_slot, slot, session.client_id, filters)
        self._store.barrier(slot, partial(if_durable, unrouted))

    def session_ended(self, session: DurableSession) -> None:
        """Remove the session's client from its slot, and give unacknowledged shared messages to other members."""
        slot = self._slots.get(session.writer.slot)
        if slot is not None:
            slot.clients.pop(session.client_id, None)
        self._redispatch(session, session.messages.unacknowledged_shared())
        self._host.session_ended(session.client_id)

    def revoke(self, sessions: SessionTable, session: DurableSession, filters: list[bytes]) -> list[int]:
        """Drop queued messages that match only these filters, then end these subscriptions. Queued messages of ended
        shared subscriptions go to other members. The messages are dropped first, because afterwards this core no
        longer knows which subscriptions they matched. Returns the reason codes of UNSUBACK.
        """
        dropped, shared = drop_waiting(session.messages.queue, session.subscriptions, filters, session.take_out)
        self._router.counters.dropped_revoked += dropped
        reasons = sessions.unsubscribe(session, filters)
        self._router.counters.subscriptions_revoked += reasons.count(Reason.SUCCESS)
        self._redispatch(session, shared)
        return reasons

    def _redispatch(self, session: DurableSession, shared: list[StoredMessage]) -> None:
        """Give messages of shared subscriptions to other members, after everything that the session wrote in this
        event-loop iteration is committed.
        """
        if shared:
            redispatch = partial(if_durable, partial(self._router.shared.redispatch, shared))
            self._host.soon(partial(session.writer.barrier, redispatch))
