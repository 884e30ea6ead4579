"""Attaches, detaches and resumes connections of the durable sessions on this core (slots: `slot_manager`).

After a failover only the client's node knows how the old connection ended (with DISCONNECT or without), and so whether
the will must be published. Until that node reports it, at most CONNECTION_RETURN_S, a client that reconnects waits if
its session has a will. Invariants:
- Nothing is answered before it is committed: an attach, a SUBSCRIBE, an acknowledgement.
- A client is told Session Present exactly if the session exists. A CONNECT that the node repeats, because the first
  answer was lost, gets the same answer again.
- A refused CONNECT leaves no session. The node confirms that it sent the CONNACK of a new session, with an empty
  report.
- The will of a connection is published, or cancelled, before its session continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from flockmq.clock import Clock
from flockmq.durable.attach_admission import AttachAdmission
from flockmq.durable.cancelled_wills import CancelledWills
from flockmq.durable.client_requests import ClientRequests, hand_over
from flockmq.durable.connected_sessions import ConnectedSessions
from flockmq.durable.memory_pressure_reports import MemoryPressureReports
from flockmq.durable.message_intake import MessageIntake
from flockmq.durable.pending_writes import SlotWriter
from flockmq.durable.ports import HostPort
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.router import DurableRouter
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import Meta
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot_manager import SlotManager
from flockmq.durable.waiting_attaches import WaitingAttaches
from flockmq.mqtt.message import Will
from flockmq.quotas import ONE_SESSION
from flockmq.rlog.retained_order import author_of
from flockmq.routing.message_id import session_source
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import PendingWill, will_of
from flockmq.session_rpc.messages import Answered
from flockmq.session_rpc.ports import Attach, ProxyPort
from flockmq.time_slices import TimeSlices

log: Final = logging.getLogger(__name__)


Ask = Callable[[bytes, int, tuple[int, int], messages.Question, Answered], None]


class SessionService:
    """Serves the connections of the durable sessions on one core."""

    def __init__(
        self, host: HostPort, proxies: ProxyPort, store: SessionStore, router: DurableRouter, clock: Clock
    ) -> None:
        self._slices = TimeSlices(host.soon, clock)
        self.slot_loaded: Callable[[int], None] = proxies.loaded
        self.slot_retaken: Callable[[int], None] = proxies.retaken
        self.manager = SlotManager(host, store, router, self, self._slices, clock)
        self.intake = MessageIntake(host, self.manager, store)
        self.connected = ConnectedSessions(host, proxies, self.manager, self._slices)
        self.congestion = self.connected.congestion
        self.own: Callable[[int], None] = self.manager.own
        self.disown: Callable[[int], None] = self.manager.disown
        self.has_loaded: Callable[[int], bool] = self.manager.has_loaded
        self.cut: Callable[[str], None] = self.connected.cut
        self.report: Callable[[str, int, bytes], None] = self.connected.report
        self.pressure_reports = MemoryPressureReports(self.manager, store, proxies.report_memory)
        self.ask: Ask = ClientRequests(host, self.manager, store, self.connected.running).ask
        self.router = router
        self.sessions = self.manager.sessions
        self._limits = AttachAdmission(host, self.manager, store)
        self._host = host
        self._proxies = proxies
        self._store = store
        self._expected: dict[bytes, float] = {}
        """Clients that were connected when their sessions moved here, and the time until which their nodes may report
        them.
        """
        self._waiting_attaches = WaitingAttaches()
        """Attaches that wait, for such a report or for the quota."""
        self.cancelled_wills = CancelledWills()
        self._cut_off: dict[bytes, int] = {}
        """Clients that were disconnected because their queues were full → token of the connection, until its node
        confirms the end.
        """

    async def stop(self) -> None:
        self._slices.stop()
        await self.manager.stop()

    def __len__(self) -> int:
        return len(self.sessions.by_id)

    def tick(self) -> None:
        """Publish wills that are due, end expired sessions, and give up clients that didn't reconnect
        after a failover.
        """
        self.manager.now()
        for client_id, until_s in list(self._expected.items()):
            if until_s <= self.router.host.now_s:
                self._gone(client_id)
                self._continue_attach(client_id)
        self.manager.forget_departed()
        self.manager.tick(self._proxies.is_connected)
        self.cancelled_wills.tick(self.router.host.now_s)
        for client_id in [client_id for client_id in self._cut_off if client_id not in self.sessions.by_id]:
            del self._cut_off[client_id]
        self.manager.request_barriers()

    def _gone(self, client_id: bytes) -> None:
        """The client didn't reconnect in time: store when it went offline. Otherwise each crash would restart its
        expiry.
        """
        session = self._expected_at(client_id)
        del self._expected[client_id]
        if session is not None:
            session.leave(session.sink, session.meta.will)

    def _expected_at(self, client_id: bytes) -> DurableSession | None:
        """The session, if it came from another owner with a connection, and nobody has reported how that ended; else
        None.
        """
        absence = self.sessions.away.get(client_id) if client_id in self._expected else None
        if absence is None or absence.session.meta.left_ms:
            return None
        return absence.session if self.manager.holds(absence.session) else None

    def _left(self, session: DurableSession, expiry_s: int, with_will: bool, hold_s: float) -> None:
        """The client's node reported how the connection to the former owner ended, or that it refused its CONNECT."""
        del self._expected[session.client_id]
        self.manager.now()
        self.sessions.come_back(session)
        if expiry_s >= 0:
            session.meta.expiry_s = expiry_s
        will = self._held_back(session, session.meta.will if with_will else None, hold_s)
        self.sessions.leave(session, will, self.router.host.now_s)
        self.manager.request_barriers()
        self._continue_attach(session.client_id)

    def _must_wait(self, attach: Attach) -> bool:
        """True if the session has a will, and nobody has reported how its old connection ended. A repeated CONNECT is
        that same connection, so it needn't wait.
        """
        session = self._expected_at(attach.client_id)
        if session is None:
            return False
        return session.meta.will is not None and not self.was_asked_by(attach.client_id, attach.request)

    def _continue_attach(self, client_id: bytes) -> None:
        """It is known now how the client's old connection ended: continue its attach, if it still has the client id."""
        attach = self._waiting_attaches.take(client_id)
        if attach is not None:
            attach.again()

    # --- slots --------------------------------------------------------------------------------------------------------

    def slot_left(self, slot: int) -> None:
        self.intake.let_go(slot)

    def report_load(self) -> None:
        """Called every 0.1 s or so."""
        self.manager.now()
        self.congestion.tick(self.router.host.now_s)
        self.pressure_reports.tick(self.router.host.now_s)

    def session_loaded(self, session: DurableSession, returns_by_s: float) -> None:
        self._expected[session.client_id] = returns_by_s

    def session_unloaded(self, session: DurableSession) -> None:
        self._expected.pop(session.client_id, None)
        self._waiting_attaches.take(session.client_id)  # Its node sends the request to the new owner.
        self._cut_off.pop(session.client_id, None)
        self.connected.detach(session)

    # --- connections --------------------------------------------------------------------------------------------------

    def open(self, attach: Attach) -> int:
        self.manager.now()
        status = self._limits.status(attach)
        if status != messages.ADMITTED:
            return status
        self._cut_off.pop(attach.client_id, None)
        if self._must_wait(attach):
            return messages.ADMITTED if self._waiting_attaches.put(attach) else messages.FULL
        usage = self._limits.must_wait_for_quota(attach)
        if usage is not None:
            usage.wait(ONE_SESSION, partial(self._quota_is_known, attach.client_id, attach.token))
            return messages.ADMITTED if self._waiting_attaches.put(attach) else messages.FULL
        self._open(attach)
        return messages.ADMITTED

    def was_asked_by(self, client_id: bytes, request: messages.SessionRequest | None) -> bool:
        session, nonce = self.sessions.find(client_id), messages.nonce_of(request)
        return bool(nonce) and session is not None and session.meta.will_source == nonce

    def is_other_users(self, client_id: bytes, user: bytes | None) -> bool:
        return self._limits.is_other_users(client_id, user)

    def _open(self, attach: Attach) -> None:
        client_id, incarnation, token, request, answer, _, _, nonce = attach
        slot = self.manager.slots[slot_of(client_id)]
        had_unread = client_id in slot.unread and self.manager.drop_unread(client_id, slot.number)
        self._expected.pop(client_id, None)
        asked_before = self.was_asked_by(client_id, request)
        known = self._without_connection(client_id, with_will=not asked_before)
        cancelled = slot.wills.came_back(client_id, self.router.host.now_s) or self._delayed_will(client_id, request)
        if not nonce:
            self.cancelled_wills.forget(client_id)
        elif cancelled:
            self.cancelled_wills.note(client_id, nonce, *cancelled, self.router.host.now_s)
        else:
            self.cancelled_wills.asked_again(client_id, nonce, self.router.host.now_s)
        if request is None:
            if known is not None:
                self.sessions.end(known)
            self.manager.request_barriers()
            if self._store.is_ending(slot.number, client_id):
                self.manager.settle(slot.number, partial(answer, 0))
            else:
                answer(messages.ABSENT if known is None and not had_unread else 0)
            return
        source = session_source(request.nonce)
        fresh = self._made(slot.writer, source, request, incarnation, client_id, token)
        former_expiry_s = -1 if known is None else known.meta.expiry_s
        fresh.record.authorized_rules = request.rules or b""
        session, present = self.sessions.open(fresh, request.clean_start and not asked_before)
        if present:
            session.reconnected_under(request.rules)
        if present and asked_before:
            present = session.meta.source != source
        if not present and not request.expiry_s:
            session.abandon()  # It is a clean session, which lives at the node of the connection.
            self.manager.request_barriers()
            self.manager.settle(slot.number, partial(answer, 0))
            return
        slot.clients[client_id] = None
        sink = self.connected.attach(session, token)
        sink.former_expiry_s = former_expiry_s
        self.manager.request_barriers()
        self._store.barrier(slot.number, partial(self._opened, session, token, present, answer))

    def _quota_is_known(self, client_id: bytes, token: int) -> None:
        attach = self._waiting_attaches.left(client_id, token)
        if attach is not None:
            attach.again()

    def _without_connection(self, client_id: bytes, *, with_will: bool) -> DurableSession | None:
        """Returns the session here. If it still has a connection, because its node was purged and its turn hasn't come
        yet, disconnects that first.
        """
        known = self.sessions.find(client_id)
        if known is None or not isinstance(known.sink, ProxySink):
            return known
        self.leave(client_id, known.sink.token, -1, with_will)
        return self.sessions.find(client_id)

    def _delayed_will(
        self, client_id: bytes, request: messages.SessionRequest | None
    ) -> tuple[PendingWill, float] | None:
        """The delayed will that this CONNECT cancels, and when it is due. Clean Start publishes it: None."""
        absence = self.sessions.away.get(client_id)
        if absence is None or absence.will is None or request is None or request.clean_start:
            return None
        absence.will.message.origin = absence.session.will_origin()
        return PendingWill(client_id, absence.session.record.user, absence.will), absence.will_s

    def _opened(
        self, session: DurableSession, token: int, present: bool, answer: Callable[[int | None], None], durable: bool
    ) -> None:
        if not durable:
            return
        if self.connected.of(token) is not session:
            answer(None)
            return
        self.manager.now()
        sink = session.sink
        assert isinstance(sink, ProxySink)
        sink.is_admitted = True
        sink.start_again()
        must_reauthorize = messages.UNAUTHORIZED if session.must_reauthorize else 0
        answer(messages.DURABLE | (messages.PRESENT if present else 0) | must_reauthorize)
        session.send_again()
        self.manager.request_barriers()
        self._host.flush_soon()

    def leave(
        self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"", hold_s: float = 0.0
    ) -> None:
        """A connection ended. `nonce`: that of its CONNECT. If the session came from another owner, the report counts
        only if that was its last connection. `expiry_s` -1: unchanged; with a nonce the CONNECT wasn't answered, or was
        refused, so the client isn't back. With neither nonce nor will there was no connection. `hold_s`: how long its
        will is held back.
        """
        if with_will and not nonce:
            self.cancelled_wills.forget(client_id)
        cancelled, slot = self.cancelled_wills.take(client_id, nonce), self.manager.slots.get(slot_of(client_id))
        if cancelled is not None and slot is not None and expiry_s < 0:
            self.manager.now()
            slot.wills.stayed_away(cancelled.left, cancelled.due_s, self.router.host.now_s)
        session = self.connected.running(token)
        if session is None:
            if self._cut_off.get(client_id) == token:
                del self._cut_off[client_id]
            expected = self._expected_at(client_id)
            if expected is not None and expected.meta.will_source == nonce:
                self._left(expected, expiry_s, with_will, hold_s)
            elif (attach := self._waiting_attaches.left(client_id, token)) is not None:
                attach.answer(None)
            return
        sink = session.sink
        assert isinstance(sink, ProxySink)
        self.connected.detach(session)
        self.manager.now()
        if expiry_s >= 0:
            session.meta.expiry_s = expiry_s
        elif not with_will and sink.former_expiry_s >= 0:
            session.meta.expiry_s = sink.former_expiry_s  # The CONNECT was never answered: keep the old expiry.
        was_created_by_it = session.meta.source == session_source(session.meta.will_source)
        if not sink.is_admitted and was_created_by_it:
            self.sessions.end(session)  # The session was created by a CONNECT that was never answered.
        else:
            will = session.meta.will if with_will else None
            if will is not None:
                will.message.author = author_of(client_id, token, is_will=True)
            stays = self.sessions.leave(session, self._held_back(session, will, hold_s), self.router.host.now_s)
            if stays and not sink.is_confirmed and expiry_s < 0 and was_created_by_it and session.is_empty():
                self.sessions.end(session)  # Perhaps its CONNECT was refused, and the link lost the node's DETACH.
        self.manager.request_barriers()

    def hold(self, left: PendingWill, hold_s: float) -> None:
        self.manager.now()
        now_s = self.router.host.now_s
        self.manager.slots[slot_of(left.client_id)].wills.hold(left, now_s + hold_s, now_s)

    def cancel(self, client_id: bytes, origin: bytes) -> None:
        self.manager.now()
        self.manager.slots[slot_of(client_id)].wills.cancel(client_id, origin, self.router.host.now_s)

    def _held_back(self, session: DurableSession, will: Will | None, hold_s: float) -> Will | None:
        """Hold the will back at the owner for `hold_s`, if its own delay is shorter. Returns the will that stays with
        the session, or None.
        """
        if will is None or min(will.delay_s, session.meta.expiry_s) >= hold_s:
            return will
        will.message.origin = session.will_origin()
        self.hold(PendingWill(session.client_id, session.record.user, will), hold_s)
        return None

    def resume(
        self, client_id: bytes, incarnation: str, token: int, request: messages.SessionRequest, pairs: bytes
    ) -> bool:
        """A session proxy registers again, and may have missed packets: send everything again; the proxy drops what it
        has. Returns False if the session doesn't exist, or this connection was ended for its full queue but doesn't
        know it.
        """
        self.manager.now()
        session = self.sessions.find(client_id)
        if session is None or self._cut_off.get(client_id) == token:
            return False
        fresh = self._made(session.writer, session.meta.source, request, incarnation, client_id, token)
        is_attached = self.connected.of(token) is session
        self.connected.detach(session)  # From its node, which may have another incarnation now.
        if is_attached:
            hand_over(session.sink, fresh.sink)
            session.attach(fresh.sink, session.limits, request.window, request.max_packet_bytes)
            self.sessions.match_again(session)
        else:
            self.sessions.open(fresh, False)
        session.hold_until_authorized(request.rules)
        sink = self.connected.attach(session, token)
        sink.is_admitted = sink.is_confirmed = True
        self._expected.pop(client_id, None)
        session.reported(pairs)
        session.send_again()
        self.manager.request_barriers()
        self._host.flush_soon()
        return True

    def _made(
        self,
        writer: SlotWriter,
        source: bytes,
        request: messages.SessionRequest,
        incarnation: str,
        client_id: bytes,
        token: int,
    ) -> DurableSession:
        """The session that a CONNECT describes, with a sink to its session proxy."""
        sink = self.connected.sink(request.version, incarnation, client_id, token, self._overflowed)
        meta = Meta(source + request.nonce, request.expiry_s, request.version, _will_of(request))
        limits = self._host.limits(request.zone)
        window, max_packet_bytes = request.window, request.max_packet_bytes
        commit_state, user = self.manager.commit_state, request.user
        made = DurableSession(writer, commit_state, meta, sink, client_id, limits, window, max_packet_bytes, user)
        made.set_usage(self._host.usage(user))
        return made

    def _overflowed(self, sink: ProxySink) -> None:
        """The queue is full: disconnect the client with a reason code, so that it doesn't miss messages unknowingly.
        The session goes offline.
        """
        session = self.connected.of(sink.token)
        if session is not None and not self.manager.holds(session):
            self.manager.depart(session)
        else:
            self.leave(sink.client_id, sink.token, -1, True)
            if sink.client_id in self.sessions.away:
                self._cut_off[sink.client_id] = sink.token
        self._proxies.overflow(sink.node.incarnation, sink.client_id, sink.token)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def node_gone(self, incarnation: str) -> None:
        """The node was purged: its connections ended, and their wills are published."""
        self.manager.node_gone(incarnation)
        self._waiting_attaches.node_gone(incarnation)
        self.connected.node_gone(incarnation, self._leave_with_will)

    def _leave_with_will(self, client_id: bytes, token: int) -> None:
        self.leave(client_id, token, -1, True)


def _will_of(request: messages.SessionRequest) -> Will | None:
    return None if request.will is None else will_of(request.will)
