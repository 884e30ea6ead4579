"""The connections of the sessions that run at this home, and what they say: those sessions that last, of the slots that
this core holds (`slot_manager`).

What always holds:
- Nothing is answered before it is durable: an attach, a SUBSCRIBE, what a client acknowledged.
- Whoever comes back is told that its session is present exactly if it is; a CONNECT that asks again, because its answer
  was lost, is told the same as before.
- A connection whose deliveries may be lost gets nothing more before it gets all of it again.
- How a connection ended that a former home knew is said by its node, or it was lost: whoever comes back to a session
  with a will waits for that, within the return window, so the will is published, or isn't, before the session goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flockmq import bounds
from flockmq.clock import Clock
from flockmq.durable.accepting_sessions import AcceptingSessions
from flockmq.durable.client_requests import ClientRequests, hand_over
from flockmq.durable.message_intake import MessageIntake
from flockmq.durable.ports import HostPort
from flockmq.durable.proxy_sink import ProxyNode, ProxySink
from flockmq.durable.returning_clients import ReturningClients
from flockmq.durable.router import DurableRouter
from flockmq.durable.session import DurableSession
from flockmq.durable.session_record import Journal, Meta
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot_congestion import SlotCongestion
from flockmq.durable.slot_manager import SlotManager
from flockmq.durable.time_slices import TimeSlices
from flockmq.mqtt.message import Will
from flockmq.quotas import ONE_SESSION, Usage
from flockmq.rlog.retained_authors import author_of
from flockmq.routing.message_id import session_source
from flockmq.routing.slots import slot_of
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import will_of
from flockmq.session_rpc.client import Answered
from flockmq.session_rpc.client_registry import are_others
from flockmq.session_rpc.ports import Attach, ProxyPort

log: Final = logging.getLogger(__name__)


class SessionService:
    """One per core."""

    def __init__(
        self, host: HostPort, homes: ProxyPort, store: SessionStore, router: DurableRouter, clock: Clock
    ) -> None:
        self._slices = TimeSlices(host.soon, clock)
        self.holding = SlotManager(host, store, router, self, self._slices, clock)
        self.letters = MessageIntake(host, self.holding, store)
        self.crowds = SlotCongestion(self._session_at, homes.crowd)
        self.takers = AcceptingSessions(self.holding, store, homes.takers)
        self._questions = ClientRequests(host, self.holding, store, self._heard)
        self.router = router
        self.sessions = self.holding.sessions
        self.behind_s: float = bounds.HOME_BEHIND_S  # tests shorten it: what is compiled has constants built in
        self._host = host
        self._homes = homes
        self._store = store
        self._attached: dict[int, DurableSession] = {}
        self._nodes: dict[str, ProxyNode] = {}
        """Those with fronts here."""
        self._cut: set[str] = set()
        """Nodes to which everything goes again soon."""
        self._expected: dict[bytes, float] = {}
        """Clients that were connected when their sessions came here, and until when their fronts may say so."""
        self._returning = ReturningClients()
        """Those among them that are back elsewhere, and wait for what their nodes say."""
        self._cut_off: dict[bytes, int] = {}
        """Clients whose sessions found no room, and the tokens of their connections, until those are gone."""

    async def stop(self) -> None:
        self._slices.stop()
        await self.holding.stop()

    async def durable(self) -> None:
        """Returns when all that was put is durable, or never will be."""
        await self.holding.durable()

    def __len__(self) -> int:
        return len(self.sessions.by_id)

    def tick(self) -> None:
        """Publish wills that are due, end sessions that expired, and hold those for gone that didn't come back."""
        self.holding.now()
        for client_id, until_s in list(self._expected.items()):
            if until_s <= self.router.now_s:
                self._gone(client_id)
                self._let_in(client_id)
        self.holding.forget_strangers()
        self.holding.tick()
        for client_id in [client_id for client_id in self._cut_off if client_id not in self.sessions.by_id]:
            del self._cut_off[client_id]
        self.holding.seal()

    def _gone(self, client_id: bytes) -> None:
        """Its client did not come back: say when it left, or its expiry would start anew with each crash."""
        session = self._expected_at(client_id)
        del self._expected[client_id]
        if session is not None:
            session.leave(session.sink, session.meta.will)

    def _expected_at(self, client_id: bytes) -> DurableSession | None:
        """The session here whose former home had a connection of it, of which nobody has said yet what became of it."""
        absence = self.sessions.away.get(client_id) if client_id in self._expected else None
        if absence is None or not isinstance(absence.session, DurableSession) or absence.session.meta.left_ms:
            return None
        return absence.session if self.holding.holds(absence.session) else None

    def _left(self, session: DurableSession, expiry_s: int, with_will: bool) -> None:
        """As its node says, who knows how the connection ended that a former home had."""
        del self._expected[session.client_id]
        self.holding.now()
        self.sessions.come_back(session)
        session.expiry_s = expiry_s
        self.sessions.leave(session, session.meta.will if with_will else None, self.router.now_s)
        self.holding.seal()
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
        if attach is not None and self.holding.has_loaded(slot_of(client_id)):
            self._open(attach)

    # --- slots --------------------------------------------------------------------------------------------------------

    def own(self, slot: int) -> None:
        self.holding.own(slot)

    def disown(self, slot: int) -> None:
        self.holding.disown(slot)

    def has_loaded(self, slot: int) -> bool:
        return self.holding.has_loaded(slot)

    def slot_loaded(self, slot: int) -> None:
        self._homes.loaded(slot)

    def slot_left(self, slot: int) -> None:
        self.letters.let_go(slot)

    def slot_retaken(self, slot: int) -> None:
        self._homes.retaken(slot)

    def beat(self) -> None:
        """Every moment."""
        self.holding.now()
        self.crowds.beat(self.router.now_s)
        self.takers.beat(self.router.now_s)

    def came(self, session: DurableSession, returns_by_s: float) -> None:
        self._expected[session.client_id] = returns_by_s

    def went(self, session: DurableSession) -> None:
        self._expected.pop(session.client_id, None)
        self._returning.take(session.client_id)  # its node asks the other home
        self._cut_off.pop(session.client_id, None)
        self._detach(session)

    # --- connections --------------------------------------------------------------------------------------------------

    def open(self, attach: Attach) -> int:
        self.holding.now()
        if self.is_anothers(attach.client_id, attach.user):
            return messages.ANOTHERS
        if not self._has_room(attach):
            return messages.FULL
        if not self._has_quota(attach):
            return messages.OVER_QUOTA
        self._cut_off.pop(attach.client_id, None)
        if self._must_wait(attach):
            return messages.ADMITTED if self._returning.put(attach) else messages.FULL
        usage = self._to_be_told(attach)
        if usage is not None:
            usage.wait(ONE_SESSION, partial(self._were_told, attach.client_id, attach.token))
            return messages.ADMITTED if self._returning.put(attach) else messages.FULL
        self._open(attach)
        return messages.ADMITTED

    def was_asked_by(self, client_id: bytes, opening: messages.Opening | None) -> bool:
        session, nonce = self.sessions.find(client_id), messages.nonce_of(opening)
        return bool(nonce) and isinstance(session, DurableSession) and session.meta.will_source == nonce

    def is_anothers(self, client_id: bytes, user: bytes | None) -> bool:
        session = self.sessions.find(client_id)
        return isinstance(session, DurableSession) and are_others(user, session.user)

    def _open(self, attach: Attach) -> None:
        client_id, incarnation, token, opening, answer, _, _ = attach
        slot = self.holding.slots[slot_of(client_id)]
        had_unread = self.holding.drop_unread(client_id, slot.number)
        self._expected.pop(client_id, None)
        asked_before = self.was_asked_by(client_id, opening)
        known = self._without_connection(client_id, with_will=not asked_before)
        if opening is None:
            if known is not None:
                self.sessions.end(known)
            self.holding.seal()
            if self._store.is_ending(slot.number, client_id):
                self.holding.settle(slot.number, partial(answer, 0))
            else:
                answer(messages.ABSENT if known is None and not had_unread else 0)
            return
        source = session_source(opening.nonce)
        fresh = self._made(slot.journal, source, opening, incarnation, client_id, token)
        former_expiry_s = -1 if known is None else known.expiry_s
        fresh.judged = opening.rules or b""
        session, present = self.sessions.open(fresh, opening.clean_start and not asked_before)
        assert isinstance(session, DurableSession)
        if present:
            session.came_by(opening.rules)
        if present and asked_before:
            present = session.meta.source != source
        if not present and not opening.expiry_s:
            session.abandon()  # it is the connection's own
            self.holding.seal()
            self.holding.settle(slot.number, partial(answer, 0))
            return
        slot.clients[client_id] = None
        sink = self._attach(session, token)
        sink.former_expiry_s = former_expiry_s
        self.holding.seal()
        self._store.barrier(slot.number, partial(self._opened, session, token, present, answer))

    def _has_room(self, attach: Attach) -> bool:
        """For what is put at the least: of a Redis that is full those get back to their sessions who have one, for what
        they acknowledge makes room. Who has one that can't be read gets no other in its place, but may end it.
        """
        client_id, opening = attach.client_id, attach.opening
        slot = slot_of(client_id)
        if self.holding.is_unread(client_id, slot):
            ends_it = opening is None or opening.clean_start
            if not ends_it or not self.holding.may_drop_unread(client_id, slot, attach.user):
                return False
        if opening is None:
            return True
        if client_id in self.sessions.by_id and not opening.clean_start:
            return not self._store.is_backed_up(slot)
        return not opening.expiry_s or not self._store.is_short(slot)

    def _has_quota(self, attach: Attach) -> bool:
        """What its user has bounds what begins, and what grows: who comes back gets in."""
        client_id, opening = attach.client_id, attach.opening
        if opening is None:
            return True
        usage = self._host.usage(attach.user)
        if usage is None:
            return True
        known = self.sessions.by_id.get(client_id)
        will_bytes = 0 if opening.will is None else len(opening.will.packet)
        if isinstance(known, DurableSession):
            former = known.meta.will
            more_bytes = will_bytes - (0 if former is None else len(former.message.packet))
        elif not opening.expiry_s:
            return True
        elif not usage.may_begin():
            return False
        else:
            more_bytes = len(client_id) + will_bytes
        return more_bytes <= 0 or usage.may_queue(more_bytes, is_away=False)

    def _to_be_told(self, attach: Attach) -> Usage | None:
        """What others are to hear of before this session begins."""
        begins = attach.opening is not None and attach.opening.expiry_s and attach.client_id not in self.sessions.by_id
        usage = self._host.usage(attach.user) if begins else None
        return usage if usage is not None and usage.must_wait(ONE_SESSION) else None

    def _were_told(self, client_id: bytes, token: int) -> None:
        attach = self._returning.left(client_id, token)
        if attach is not None:
            attach.again()

    def _without_connection(self, client_id: bytes, *, with_will: bool) -> LocalSession | None:
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
        if self._attached.get(token) is not session:
            answer(None)
            return
        self.holding.now()
        sink = session.sink
        assert isinstance(sink, ProxySink)
        sink.is_told = True
        sink.cuts = sink.node.cuts
        unjudged = messages.UNJUDGED if session.must_be_judged else 0
        answer(messages.LASTS | (messages.PRESENT if present else 0) | unjudged)
        session.send_again()
        self.holding.seal()
        self._host.flush_soon()

    def leave(self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"") -> None:
        """`nonce`: of the connection's opening. What it said counts for a session that came from another home if that
        has no later connection."""
        session = self._heard(token)
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
        self._detach(session)
        self.holding.now()
        if expiry_s >= 0:
            session.expiry_s = expiry_s
        elif not with_will and sink.former_expiry_s >= 0:
            session.expiry_s = sink.former_expiry_s  # its CONNECT came to nothing
        if not sink.is_told and session.meta.source == session_source(session.meta.will_source):
            self.sessions.end(session)  # it began with a CONNECT that was never answered
        else:
            will = session.meta.will if with_will else None
            if will is not None:
                will.message.author = author_of(client_id, token, is_will=True)
            self.sessions.leave(session, will, self.router.now_s)
        self.holding.seal()

    def resume(self, client_id: bytes, incarnation: str, token: int, opening: messages.Opening, pairs: bytes) -> bool:
        """A front that is there, and may have missed what was sent: all of it again, the front knows what it had. One
        that was cut off did not hear so, and must not go on.
        """
        self.holding.now()
        session = self.sessions.find(client_id)
        if not isinstance(session, DurableSession) or self._cut_off.get(client_id) == token:
            return False
        fresh = self._made(session.journal, session.meta.source, opening, incarnation, client_id, token)
        is_attached = self._attached.get(token) is session
        self._detach(session)  # from its node, which may be another incarnation now
        if is_attached:
            hand_over(session.sink, fresh.sink)
            session.attach(fresh.sink, session.limits, opening.window, opening.max_packet_bytes)
            self.router.reached_anew(session)
        else:
            self.sessions.open(fresh, False)
        session.goes_on_by(opening.rules)
        sink = self._attach(session, token)
        sink.is_told = True
        self._expected.pop(client_id, None)
        session.reported(pairs)
        session.send_again()
        self.holding.seal()
        self._host.flush_soon()
        return True

    def _made(
        self, journal: Journal, source: bytes, opening: messages.Opening, incarnation: str, client_id: bytes, token: int
    ) -> DurableSession:
        """What a CONNECT makes, with the way to its front."""
        deliver = self._homes.deliver
        node = self._nodes.setdefault(incarnation, ProxyNode(incarnation))
        on_flow = self.crowds.flow_changed
        sink = ProxySink(self.router, opening.version, deliver, self._overflowed, on_flow, node, client_id, token)
        meta = Meta(source + opening.nonce, opening.expiry_s, opening.version, _will_of(opening))
        limits = self._host.limits(opening.zone)
        window, max_packet_bytes = opening.window, opening.max_packet_bytes
        ledger, user = self.holding.ledger, opening.user
        made = DurableSession(journal, ledger, meta, sink, client_id, limits, window, max_packet_bytes, user)
        made.usage = self._host.usage(user)
        return made

    def _overflowed(self, sink: ProxySink) -> None:
        """Cut off with a reason rather than left with a gap; the session is away from now on."""
        session = self._attached.get(sink.token)
        if session is not None and not self.holding.holds(session):
            self.holding.depart(session)
        else:
            self.leave(sink.client_id, sink.token, -1, True)
            if sink.client_id in self.sessions.away:
                self._cut_off[sink.client_id] = sink.token
        self._homes.overflow(sink.node.incarnation, sink.client_id, sink.token)

    def _attach(self, session: DurableSession, token: int) -> ProxySink:
        """Its connection has the token."""
        sink = session.sink
        assert isinstance(sink, ProxySink)
        self._attached[token] = sink.node.sessions[token] = session
        return sink

    def _detach(self, session: DurableSession) -> None:
        sink = session.sink
        if isinstance(sink, ProxySink):
            self._attached.pop(sink.token, None)
            sink.node.sessions.pop(sink.token, None)
            self.crowds.gone(sink)

    def _session_at(self, sink: ProxySink) -> DurableSession | None:
        session = self._attached.get(sink.token)
        return session if session is not None and session.sink is sink else None

    def _heard(self, token: int) -> DurableSession | None:
        """The session of a connection, while it runs here."""
        session = self._attached.get(token)
        return session if session is not None and self.holding.holds(session) else None

    # --- nodes --------------------------------------------------------------------------------------------------------

    def cut(self, incarnation: str) -> None:
        """What was sent to a node may not have come: nothing more goes there until all of it goes again.

        Its fronts say themselves that they are there when they find a link lost; but they may have found it before us,
        and were sent everything by a link that was taken for good.
        """
        node = self._nodes.get(incarnation)
        if node is not None:
            node.cuts += 1
            self._send_again_later(incarnation)

    def _send_again_later(self, incarnation: str) -> None:
        if incarnation not in self._cut:
            self._cut.add(incarnation)
            asyncio.get_running_loop().call_later(self.behind_s, self._send_again_to, incarnation)

    def _send_again_to(self, incarnation: str) -> None:
        self._cut.discard(incarnation)
        node = self._nodes.get(incarnation)
        if node is None or not node.sessions:
            return
        if self._homes.is_linked(incarnation):
            self._slices.add(partial(self._send_again, session) for session in list(node.sessions.values()))
        else:
            self._send_again_later(incarnation)

    def _send_again(self, session: DurableSession) -> None:
        sink = session.sink
        if not isinstance(sink, ProxySink) or not sink.is_told:
            return  # when it is admitted it gets all of it
        if sink.cuts != sink.node.cuts and self.holding.holds(session):
            self.holding.now()
            sink.cuts = sink.node.cuts
            session.send_again()
            self._host.flush_soon()

    def node_gone(self, incarnation: str) -> None:
        """Its connections are gone with it; their wills are published."""
        self.holding.node_gone(incarnation)
        self._returning.node_gone(incarnation)
        node = self._nodes.pop(incarnation, None)
        if node is not None:
            self._slices.add(self._leaves(node))

    def _leaves(self, node: ProxyNode) -> Iterator[Callable[[], None]]:
        while node.sessions:
            token, session = node.sessions.popitem()
            yield partial(self.leave, session.client_id, token, -1, True)

    # --- what clients say ---------------------------------------------------------------------------------------------

    def report(self, incarnation: str, token: int, pairs: bytes) -> None:
        session = self._heard(token)
        if session is None or not isinstance(session.sink, ProxySink) or session.sink.node.incarnation != incarnation:
            return
        self.holding.now()
        session.reported(pairs)
        self.holding.seal()
        self._host.flush_soon()

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: messages.Question, answer: Answered
    ) -> None:
        session = self._heard(token)
        if session is None:
            answer(b"")
        else:
            self._questions.ask(session, place, question, answer)


def _will_of(opening: messages.Opening) -> Will | None:
    return None if opening.will is None else will_of(opening.will)
