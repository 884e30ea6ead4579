"""The sessions that last, of the slots that this core owns (`slot_manager`): how their connections come and go.

What always holds:
- Nothing is answered before it is committed: an attach, a SUBSCRIBE, what a client acknowledged.
- Whoever comes back is told that its session is present exactly if it is; a CONNECT that asks again, because its answer
  was lost, is told the same as before.
- Only its node knows how a connection ended that a former owner had. A client that comes back to a session with a will
  waits for what that node says, within the return window: so the will is published, or isn't, before the session goes
  on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from flockmq.clock import Clock
from flockmq.durable.attach_admission import AttachLimits
from flockmq.durable.client_requests import ClientRequests, hand_over
from flockmq.durable.connected_sessions import ConnectedSessions
from flockmq.durable.memory_pressure_reports import AcceptingSessions
from flockmq.durable.message_intake import MessageIntake
from flockmq.durable.ports import HostPort
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.router import DurableRouter
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import Meta
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot_manager import SlotManager
from flockmq.durable.slot_writer import Journal
from flockmq.durable.time_slices import TimeSlices
from flockmq.durable.waiting_attaches import ReturningClients
from flockmq.mqtt.message import Will
from flockmq.quotas import ONE_SESSION
from flockmq.rlog.retained_authors import author_of
from flockmq.routing.message_id import session_source
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import will_of
from flockmq.session_rpc.messages import Answered
from flockmq.session_rpc.ports import Attach, ProxyPort

log: Final = logging.getLogger(__name__)


class SessionService:
    """One per core."""

    def __init__(
        self, host: HostPort, proxies: ProxyPort, store: SessionStore, router: DurableRouter, clock: Clock
    ) -> None:
        self._slices = TimeSlices(host.soon, clock)
        self.manager = SlotManager(host, store, router, self, self._slices, clock)
        self.intake = MessageIntake(host, self.manager, store)
        self.connected = ConnectedSessions(host, proxies, self.manager, self._slices)
        self.congestion = self.connected.congestion
        self.accepting = AcceptingSessions(self.manager, store, proxies.takers)
        self._questions = ClientRequests(host, self.manager, store, self.connected.running)
        self.router = router
        self.sessions = self.manager.sessions
        self._limits = AttachLimits(host, self.manager, store)
        self._host = host
        self._proxies = proxies
        self._store = store
        self._expected: dict[bytes, float] = {}
        """Clients that were connected when their sessions came here, and until when their nodes may say so."""
        self._returning = ReturningClients()
        """Those among them that are back elsewhere, and wait for what their nodes say."""
        self._cut_off: dict[bytes, int] = {}
        """Clients whose sessions found no room, and the tokens of their connections, until those are gone."""

    async def stop(self) -> None:
        self._slices.stop()
        await self.manager.stop()

    async def durable(self) -> None:
        """Returns when all that was put is durable, or never will be."""
        await self.manager.durable()

    def __len__(self) -> int:
        return len(self.sessions.by_id)

    def tick(self) -> None:
        """Publish wills that are due, end sessions that expired, and hold those for gone that didn't come back."""
        self.manager.now()
        for client_id, until_s in list(self._expected.items()):
            if until_s <= self.router.now_s:
                self._gone(client_id)
                self._let_in(client_id)
        self.manager.forget_strangers()
        self.manager.tick()
        for client_id in [client_id for client_id in self._cut_off if client_id not in self.sessions.by_id]:
            del self._cut_off[client_id]
        self.manager.seal()

    def _gone(self, client_id: bytes) -> None:
        """Its client did not come back: say when it left, or its expiry would start anew with each crash."""
        session = self._expected_at(client_id)
        del self._expected[client_id]
        if session is not None:
            session.leave(session.sink, session.meta.will)

    def _expected_at(self, client_id: bytes) -> DurableSession | None:
        """The session here whose former owner had a connection of it, and nobody has said yet how that ended."""
        absence = self.sessions.away.get(client_id) if client_id in self._expected else None
        if absence is None or absence.session.meta.left_ms:
            return None
        return absence.session if self.manager.holds(absence.session) else None

    def _left(self, session: DurableSession, expiry_s: int, with_will: bool) -> None:
        """As its node says, who knows how the connection ended that a former owner had."""
        del self._expected[session.client_id]
        self.manager.now()
        self.sessions.come_back(session)
        session.meta.expiry_s = expiry_s
        self.sessions.leave(session, session.meta.will if with_will else None, self.router.now_s)
        self.manager.seal()
        self._let_in(session.client_id)

    def _must_wait(self, attach: Attach) -> bool:
        """Nobody has said yet how its last connection ended, and its session has a will. A CONNECT that is asked for
        again is that connection."""
        session = self._expected_at(attach.client_id)
        if session is None:
            return False
        return session.meta.will is not None and not self.was_asked_by(attach.client_id, attach.opening)

    def _let_in(self, client_id: bytes) -> None:
        """It is known how its last connection ended."""
        attach = self._returning.take(client_id)
        if attach is not None and self.manager.has_loaded(slot_of(client_id)):
            self._open(attach)

    # --- slots --------------------------------------------------------------------------------------------------------

    def own(self, slot: int) -> None:
        self.manager.own(slot)

    def disown(self, slot: int) -> None:
        self.manager.disown(slot)

    def has_loaded(self, slot: int) -> bool:
        return self.manager.has_loaded(slot)

    def slot_loaded(self, slot: int) -> None:
        self._proxies.loaded(slot)

    def slot_left(self, slot: int) -> None:
        self.intake.let_go(slot)

    def slot_retaken(self, slot: int) -> None:
        self._proxies.retaken(slot)

    def beat(self) -> None:
        """Every moment."""
        self.manager.now()
        self.congestion.beat(self.router.now_s)
        self.accepting.beat(self.router.now_s)

    def came(self, session: DurableSession, returns_by_s: float) -> None:
        self._expected[session.client_id] = returns_by_s

    def went(self, session: DurableSession) -> None:
        self._expected.pop(session.client_id, None)
        self._returning.take(session.client_id)  # its node asks the other owner
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
            return messages.ADMITTED if self._returning.put(attach) else messages.FULL
        usage = self._limits.must_be_told(attach)
        if usage is not None:
            usage.wait(ONE_SESSION, partial(self._were_told, attach.client_id, attach.token))
            return messages.ADMITTED if self._returning.put(attach) else messages.FULL
        self._open(attach)
        return messages.ADMITTED

    def was_asked_by(self, client_id: bytes, opening: messages.Opening | None) -> bool:
        session, nonce = self.sessions.find(client_id), messages.nonce_of(opening)
        return bool(nonce) and session is not None and session.meta.will_source == nonce

    def is_anothers(self, client_id: bytes, user: bytes | None) -> bool:
        return self._limits.is_anothers(client_id, user)

    def _open(self, attach: Attach) -> None:
        client_id, incarnation, token, opening, answer, _, _ = attach
        slot = self.manager.slots[slot_of(client_id)]
        had_unread = self.manager.drop_unread(client_id, slot.number)
        self._expected.pop(client_id, None)
        asked_before = self.was_asked_by(client_id, opening)
        known = self._without_connection(client_id, with_will=not asked_before)
        if opening is None:
            if known is not None:
                self.sessions.end(known)
            self.manager.seal()
            if self._store.is_ending(slot.number, client_id):
                self.manager.settle(slot.number, partial(answer, 0))
            else:
                answer(messages.ABSENT if known is None and not had_unread else 0)
            return
        source = session_source(opening.nonce)
        fresh = self._made(slot.journal, source, opening, incarnation, client_id, token)
        former_expiry_s = -1 if known is None else known.meta.expiry_s
        fresh.record.judged = opening.rules or b""
        session, present = self.sessions.open(fresh, opening.clean_start and not asked_before)
        if present:
            session.came_by(opening.rules)
        if present and asked_before:
            present = session.meta.source != source
        if not present and not opening.expiry_s:
            session.abandon()  # it is the connection's own
            self.manager.seal()
            self.manager.settle(slot.number, partial(answer, 0))
            return
        slot.clients[client_id] = None
        sink = self.connected.attach(session, token)
        sink.former_expiry_s = former_expiry_s
        self.manager.seal()
        self._store.barrier(slot.number, partial(self._opened, session, token, present, answer))

    def _were_told(self, client_id: bytes, token: int) -> None:
        attach = self._returning.left(client_id, token)
        if attach is not None:
            attach.again()

    def _without_connection(self, client_id: bytes, *, with_will: bool) -> DurableSession | None:
        """The session that is here; if its connection went with its node, and it wasn't its turn yet, it leaves now."""
        known = self.sessions.find(client_id)
        if known is None or not isinstance(known.sink, ProxySink):
            return known
        self.leave(client_id, known.sink.token, -1, with_will)
        return self.sessions.find(client_id)

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
        sink.is_told = True
        sink.cuts = sink.node.cuts
        unjudged = messages.UNJUDGED if session.must_be_judged else 0
        answer(messages.LASTS | (messages.PRESENT if present else 0) | unjudged)
        session.send_again()
        self.manager.seal()
        self._host.flush_soon()

    def leave(self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"") -> None:
        """`nonce`: of the connection's opening. What it said counts for a session that came from another owner if that
        has no later connection."""
        session = self.connected.running(token)
        if session is None:
            if self._cut_off.get(client_id) == token:
                del self._cut_off[client_id]
            expected = self._expected_at(client_id)
            if expected is not None and expected.meta.will_source == nonce and expiry_s >= 0:
                self._left(expected, expiry_s, with_will)
            elif (attach := self._returning.left(client_id, token)) is not None:
                attach.answer(None)
            return
        sink = session.sink
        assert isinstance(sink, ProxySink)
        self.connected.detach(session)
        self.manager.now()
        if expiry_s >= 0:
            session.meta.expiry_s = expiry_s
        elif not with_will and sink.former_expiry_s >= 0:
            session.meta.expiry_s = sink.former_expiry_s  # its CONNECT came to nothing
        if not sink.is_told and session.meta.source == session_source(session.meta.will_source):
            self.sessions.end(session)  # it began with a CONNECT that was never answered
        else:
            will = session.meta.will if with_will else None
            if will is not None:
                will.message.author = author_of(client_id, token, is_will=True)
            self.sessions.leave(session, will, self.router.now_s)
        self.manager.seal()

    def resume(self, client_id: bytes, incarnation: str, token: int, opening: messages.Opening, pairs: bytes) -> bool:
        """A session proxy is there, and may have missed what was sent: send all of it again, it knows what it had. One
        that was cut off didn't hear so, and must not go on.
        """
        self.manager.now()
        session = self.sessions.find(client_id)
        if session is None or self._cut_off.get(client_id) == token:
            return False
        fresh = self._made(session.journal, session.meta.source, opening, incarnation, client_id, token)
        is_attached = self.connected.of(token) is session
        self.connected.detach(session)  # from its node, which may be another incarnation now
        if is_attached:
            hand_over(session.sink, fresh.sink)
            session.attach(fresh.sink, session.limits, opening.window, opening.max_packet_bytes)
            self.router.reached_anew(session)
        else:
            self.sessions.open(fresh, False)
        session.goes_on_by(opening.rules)
        sink = self.connected.attach(session, token)
        sink.is_told = True
        self._expected.pop(client_id, None)
        session.reported(pairs)
        session.send_again()
        self.manager.seal()
        self._host.flush_soon()
        return True

    def _made(
        self, journal: Journal, source: bytes, opening: messages.Opening, incarnation: str, client_id: bytes, token: int
    ) -> DurableSession:
        """What a CONNECT makes, with the way to its session proxy."""
        sink = self.connected.sink(opening.version, incarnation, client_id, token, self._overflowed)
        meta = Meta(source + opening.nonce, opening.expiry_s, opening.version, _will_of(opening))
        limits = self._host.limits(opening.zone)
        window, max_packet_bytes = opening.window, opening.max_packet_bytes
        ledger, user = self.manager.ledger, opening.user
        made = DurableSession(journal, ledger, meta, sink, client_id, limits, window, max_packet_bytes, user)
        made.uses(self._host.usage(user))
        return made

    def _overflowed(self, sink: ProxySink) -> None:
        """Cut off with a reason rather than left with a gap; the session is away from now on."""
        session = self.connected.of(sink.token)
        if session is not None and not self.manager.holds(session):
            self.manager.depart(session)
        else:
            self.leave(sink.client_id, sink.token, -1, True)
            if sink.client_id in self.sessions.away:
                self._cut_off[sink.client_id] = sink.token
        self._proxies.overflow(sink.node.incarnation, sink.client_id, sink.token)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def cut(self, incarnation: str) -> None:
        self.connected.cut(incarnation)

    def node_gone(self, incarnation: str) -> None:
        """Its connections are gone with it; their wills are published."""
        self.manager.node_gone(incarnation)
        self._returning.node_gone(incarnation)
        self.connected.node_gone(incarnation, self._leave_with_will)

    def _leave_with_will(self, client_id: bytes, token: int) -> None:
        self.leave(client_id, token, -1, True)

    # --- what clients say ---------------------------------------------------------------------------------------------

    def report(self, incarnation: str, token: int, pairs: bytes) -> None:
        session = self.connected.running(token)
        if session is None or not isinstance(session.sink, ProxySink) or session.sink.node.incarnation != incarnation:
            return
        self.manager.now()
        session.reported(pairs)
        self.manager.seal()
        self._host.flush_soon()

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: messages.Question, answer: Answered
    ) -> None:
        session = self.connected.running(token)
        if session is None:
            answer(b"")
        else:
            self._questions.ask(session, place, question, answer)


def _will_of(opening: messages.Opening) -> Will | None:
    return None if opening.will is None else will_of(opening.will)
