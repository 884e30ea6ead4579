"""The sessions that run at this home: those that last, of the slots that this core owns.

They live in a router of their own (`HomedRouter`) and in `Sessions`, as the clients' of a node do; all of them that
lasts is mirrored in the store. What always holds:
- A slot is used when it was taken in the store, behind this core's fence, and all its sessions are here.
- Nothing is answered before it is durable: an attach, a SUBSCRIBE, what a client acknowledged, a batch of letters.
- Whoever comes back is told that its session is present exactly if it is; a CONNECT that asks again, because its answer
  was lost, is told the same as before.
- A slot that another core took is let go of: its sessions stop here, and go on there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from struct import error as StructError
from typing import Final, Protocol

from flockmq import bounds
from flockmq.home import wire
from flockmq.home.asking import Answered
from flockmq.home.marks import Marks, number_bytes
from flockmq.home.registry import slot_of
from flockmq.home.store import Store, StoreFenced
from flockmq.home.subscribing import Desk, Subscribing
from flockmq.home.taking import Taken
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import remaining_length
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogError
from flockmq.routing.matcher import ShapeLimitError
from flockmq.session.durable import DurableSession, restored
from flockmq.session.forwarded import take_run
from flockmq.session.homed import HomedRouter, message_of
from flockmq.session.journal import Journal, Ledger, Meta
from flockmq.session.journaled import HomeSink
from flockmq.session.letter import Letter
from flockmq.session.limits import Limits
from flockmq.session.opening import Will
from flockmq.session.origin import node_source, session_source
from flockmq.session.port import NodePort
from flockmq.session.publish import Publish, parse_publish
from flockmq.session.session import Session
from flockmq.session.sessions import Sessions

log: Final = logging.getLogger(__name__)


class Homes(Protocol):
    """The way to the fronts."""

    def deliver(self, incarnation: str, token: int, packets: bytes) -> None: ...
    def overflow(self, incarnation: str, client_id: bytes, token: int) -> None: ...
    def loaded(self, slot: int) -> None: ...
    def is_linked(self, incarnation: str) -> bool: ...


class Host(Desk, Protocol):
    """The node that this home is a part of."""

    @property
    def incarnation(self) -> str: ...

    def slots_epoch(self) -> int:
        """The place in the cluster's log that slots and members are at."""
        ...

    def members(self) -> Collection[str]: ...
    def limits(self, zone: str) -> Limits: ...
    def publish(self, message: Publish) -> None:
        """A will."""
        ...

    def session_ended(self, session: Session) -> None: ...
    def changed(self) -> None:
        """Slots came or went, or are loaded: batches that were held may be taken."""
        ...

    def flush_soon(self) -> None: ...
    def soon(self, call: Callable[[], None]) -> object: ...


class _Slot:
    """`gained_at`: the epoch at which it became ours, at the latest; `fence` names it in the store. `is_lost`: another
    core took it, as our own table is about to say. `clients`: whose sessions are here.
    """

    __slots__ = ("clients", "fence", "gained_at", "is_lost", "journal", "loaded", "marks", "number")

    def __init__(self, number: int, gained_at: int, fence: str, journal: Journal) -> None:
        self.number = number
        self.gained_at = gained_at
        self.fence = fence
        self.journal = journal
        self.marks = Marks()
        self.clients: set[bytes] = set()
        self.loaded = False
        self.is_lost = False

    def is_blank(self) -> bool:
        return not self.loaded and not self.is_lost


class _SlotJournal(Journal):
    """One slot's part of the store. What was put in a turn is sealed behind it; what its barriers let go is flushed."""

    def __init__(self, slot: int, store: Store, unsealed: Callable[[], None], flush: Callable[[], None]) -> None:
        super().__init__(slot)
        self._store = store
        self._unsealed = unsealed
        self._flush = flush

    def put(self, client_id: bytes, field: bytes, value: bytes) -> None:
        self._store.put(self.slot, client_id, field, value)
        self._unsealed()

    def delete(self, client_id: bytes, field: bytes) -> None:
        self._store.delete(self.slot, client_id, field)
        self._unsealed()

    def drop(self, client_id: bytes) -> None:
        self._store.drop(self.slot, client_id)

    def barrier(self, done: Callable[[bool], None]) -> None:
        self._store.barrier(self.slot, partial(self._answered, done))

    def _answered(self, done: Callable[[bool], None], durable: bool) -> None:
        """Between two turns."""
        done(durable)
        self._flush()


class _ToFront(HomeSink):
    """The way to the connection's node, once a turn."""

    __slots__ = ("client_id", "homes", "incarnation", "is_cut", "on_overflow", "token")

    def __init__(
        self,
        router: HomedRouter,
        version: int,
        homes: Homes,
        on_overflow: Callable[[_ToFront], None],
        incarnation: str,
        client_id: bytes,
        token: int,
    ) -> None:
        super().__init__(router, version)
        self.homes = homes
        self.on_overflow = on_overflow
        self.incarnation = incarnation
        self.client_id = client_id
        self.token = token
        self.is_cut = False

    def overflow(self) -> None:
        self.on_overflow(self)

    def flush(self) -> None:
        if self.out:
            packets = b"".join(self.out)
            self.out.clear()
            self.out_bytes = 0
            if not self.is_cut:
                self.homes.deliver(self.incarnation, self.token, packets)


class Residents:
    """One per core; it is also the receiver of letters (`intake.Residents`)."""

    def __init__(self, host: Host, homes: Homes, store: Store, router: HomedRouter) -> None:
        self.router = router
        self.sessions = Sessions(router, _Port(self))
        self.ledger = Ledger(time.time() - time.monotonic())
        self._host = host
        self._homes = homes
        self._store = store
        self._slots: dict[int, _Slot] = {}
        self._unloaded: set[int] = set()
        """Those among them that aren't `loaded`."""
        self._gained: set[int] = set()
        self._lost: set[int] = set()
        self._noticed = False
        self._dealt_at = 0
        self._view = 0
        self._loading: asyncio.Task[None] | None = None
        self._rewriting: set[asyncio.Task[None]] = set()
        self._attached: dict[int, DurableSession] = {}
        self._cut: set[str] = set()
        """Nodes to which everything goes again soon."""
        self._strange: dict[bytes, float] = {}
        """Sources of nodes that are no members any more, and until when their marks are kept."""
        self._expected: dict[bytes, float] = {}
        """Clients that were connected when their sessions came here, and until when their fronts may say so."""
        self._left: dict[bytes, int] = {}
        """Those among them that left in order meanwhile, and the expiry that they said, or -1."""
        self._sealing = False
        self._noted: dict[str, list[int]] = {}
        store.on_fenced = self._fenced
        store.on_lost = self._data_lost

    async def stop(self) -> None:
        tasks = [*self._rewriting, *([self._loading] if self._loading is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def durable(self) -> None:
        """Returns when all that was put is durable, or never will be."""
        self._seal()
        done = asyncio.Event()
        waits = _All(len(self._slots) + 1, lambda _: done.set())
        for slot in self._slots:
            self._store.barrier(slot, waits.one)
        waits.one(True)
        await done.wait()

    def __len__(self) -> int:
        return len(self.sessions.by_id)

    def tick(self) -> None:
        """Publish wills that are due, end sessions that expired."""
        self._now()
        for client_id, until_s in list(self._expected.items()):
            if until_s <= self.router.now_s:
                del self._expected[client_id]
                self._gone(client_id)
        self._forget_strangers()
        self.sessions.tick(self.router.now_s)
        self._seal()

    def _gone(self, client_id: bytes) -> None:
        """Its client did not come back: say when it left, or its expiry would start anew with each crash."""
        session = self.sessions.by_id.get(client_id)
        expiry_s = self._left.pop(client_id, None)
        if not isinstance(session, DurableSession) or client_id not in self.sessions.away or session.meta.left_ms:
            return
        if expiry_s is None:
            session.leave(session.sink, session.meta.will)
        else:
            self.sessions.come_back(session)
            if expiry_s >= 0:
                session.expiry_s = expiry_s
            self.sessions.leave(session, None, None, self.router.now_s)

    # --- slots --------------------------------------------------------------------------------------------------------

    def own(self, slot: int) -> None:
        self._lost.discard(slot)
        self._gained.add(slot)
        self._notice()

    def disown(self, slot: int) -> None:
        """At once: whatever it would still do here would be refused."""
        self._gained.discard(slot)
        self._lost.add(slot)
        self._let_go(slot)
        self._notice()

    def has_loaded(self, slot: int) -> bool:
        state = self._slots.get(slot)
        return state is not None and state.loaded

    def _notice(self) -> None:
        if not self._noticed:
            self._noticed = True
            self._host.soon(self._deal)

    def _deal(self) -> None:
        """With the changes of slots that were noticed amid an entry of the log, when it is applied."""
        self._noticed = False
        self._dealt_at = self._view = self._host.slots_epoch()
        place = StreamId(self._dealt_at >> 48, self._dealt_at & (1 << 48) - 1)
        for slot in self._gained:
            journal = _SlotJournal(slot, self._store, self._unsealed, self._host.flush_soon)
            self._slots[slot] = _Slot(slot, self._dealt_at, f"{place} {self._host.incarnation}", journal)
            self._unloaded.add(slot)
        self._gained.clear()
        self._lost.clear()
        self._load_soon()
        self._host.changed()

    def _load_soon(self) -> None:
        if any(state.is_blank() for state in self._slots.values()) and (self._loading is None or self._loading.done()):
            self._loading = asyncio.ensure_future(self._load_all())

    async def _load_all(self) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        while blank := {slot: state.fence for slot, state in self._slots.items() if state.is_blank()}:
            try:
                async with aclosing(self._store.take_all(blank)) as slots:
                    async for slot, taken in slots:
                        self._take_over(slot, blank[slot], taken)
                        await asyncio.sleep(0)
                retry_s = bounds.LOG_RETRY_MIN_S
            except LogError as error:
                log.warning("%d slots of sessions wait for Redis: %s", len(blank), error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
        self._host.changed()

    def _take_over(self, slot: int, fence: str, taken: Taken | StoreFenced) -> None:
        state = self._slots.get(slot)
        if state is None:  # another core's meanwhile
            self._store.release(slot)
        elif state.fence != fence:
            return  # it went and came back meanwhile: it is taken once more
        elif isinstance(taken, StoreFenced):
            self._note("another core took them before their sessions were here", slot)
            state.is_lost = True
        elif not state.loaded:
            self._load(state, taken)
            state.loaded = True
            self._unloaded.discard(slot)
            self._homes.loaded(slot)

    def _load(self, state: _Slot, taken: Taken) -> None:
        """Its sessions, as they were when their last home put them down."""
        self._now()
        for source in state.marks.restore(taken.marks):
            self._store.unmark(state.number, source)
        for source in state.marks.strangers({node_source(member) for member in self._host.members()}):
            self._strange.setdefault(source, self.router.now_s + bounds.MARKS_KEPT_S)
        for client_id, fields in taken.sessions.items():
            if client_id in self.sessions.by_id:
                continue  # taken again after Redis lost data: what is here is newer
            try:
                self._restore(state, client_id, fields)
            except (ValueError, IndexError, StructError, PacketError, ShapeLimitError) as error:
                log.error("the session of %r can't be restored, it is left in Redis: %s", client_id, error)
        self._seal()

    def _restore(self, state: _Slot, client_id: bytes, fields: dict[bytes, bytes]) -> None:
        limits = self._host.limits("default")
        session = restored(state.journal, self.ledger, client_id, fields, self.router, limits)
        meta = session.meta
        now_s = self.router.now_s
        left_s = self.ledger.monotonic_s(meta.left_ms) if meta.left_ms else now_s + bounds.HOME_RETURN_S
        self.sessions.restore(session, None, meta.will, left_s)
        state.clients.add(client_id)
        if not meta.left_ms:
            self._expected[client_id] = left_s
        filters = [subscription.filter for subscription in session.all_subscriptions()]
        self._host.came_with(state.number, client_id, filters)

    def _let_go(self, slot: int) -> None:
        state = self._slots.pop(slot, None)
        if state is None:
            return
        self._unloaded.discard(slot)
        self._store.release(slot)
        for session in self._sessions_of(state):
            self._detach(session)
            self.sessions.depart(session)
        self._host.slot_gone(slot)

    def _sessions_of(self, state: _Slot) -> list[DurableSession]:
        sessions = [self.sessions.by_id.get(client_id) for client_id in state.clients]
        return [session for session in sessions if isinstance(session, DurableSession)]

    def _fenced(self, slot: int) -> None:
        """Another core took it, as this core's own table is about to say: until then nothing is taken for any slot, or
        letters for this one would be accepted, and be nowhere.
        """
        state = self._slots.get(slot)
        if state is not None and state.loaded:
            self._note("another core took them, what they have here stops", slot)
            state.loaded = False
            state.is_lost = True
            self._unloaded.add(slot)

    def _data_lost(self, slot: int) -> None:
        """Redis hasn't what it had acknowledged: take the slot again, and write what is here anew."""
        state = self._slots.get(slot)
        if state is not None and state.loaded:
            self._note("Redis lost what it had of their sessions; it is written anew from memory", slot)
            task = asyncio.ensure_future(self._take_again(state))
            self._rewriting.add(task)
            task.add_done_callback(self._rewriting.discard)

    async def _take_again(self, state: _Slot) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        while self._slots.get(state.number) is state:
            try:
                taken = await self._store.take(state.number, state.fence)
            except StoreFenced:
                self._fenced(state.number)
                return
            except LogError as error:
                log.warning("slot %d of sessions waits for Redis: %s", state.number, error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
                continue
            here = self._sessions_of(state)
            for client_id in taken.sessions.keys() - {session.client_id for session in here}:
                self._store.drop(state.number, client_id)
            for session in here:
                session.write_again()
            for source, number in state.marks.items():
                self._store.mark(state.number, source, number_bytes(number))
            self._seal()
            return

    # --- connections --------------------------------------------------------------------------------------------------

    def open(
        self,
        client_id: bytes,
        incarnation: str,
        token: int,
        opening: wire.Opening | None,
        answer: Callable[[int], None],
    ) -> None:
        self._now()
        known = self.sessions.by_id.get(client_id)
        state = self._slots[slot_of(client_id)]
        if opening is None:
            if known is not None:
                self.sessions.end(known)
                self._seal()
                self._store.barrier(state.number, partial(_if_durable, answer, 0))
            else:
                answer(0)
            return
        sink = self._way_to(opening, incarnation, client_id, token)
        limits = self._host.limits(opening.zone)
        source = session_source(opening.nonce)
        meta = Meta(source + opening.nonce, opening.expiry_s, opening.version, _will_of(opening))
        fresh = DurableSession(
            state.journal, self.ledger, meta, sink, client_id, limits, opening.window, opening.max_packet_bytes
        )
        asked_before = isinstance(known, DurableSession) and known.meta.will_source == opening.nonce
        session, present = self.sessions.open(fresh, opening.clean_start and not asked_before)
        assert isinstance(session, DurableSession)
        if present and asked_before:
            present = session.meta.source != source
        if not present and not opening.expiry_s:
            session.abandon()  # it is the connection's own
            self._seal()
            self._store.barrier(state.number, partial(_if_durable, answer, 0))
            return
        state.clients.add(client_id)
        self._attached[token] = session
        self._seal()
        self._store.barrier(state.number, partial(self._opened, session, token, present, answer))

    def _opened(
        self, session: DurableSession, token: int, present: bool, answer: Callable[[int], None], durable: bool
    ) -> None:
        if not durable or self._attached.get(token) is not session:
            return
        self._now()
        answer(wire.LASTS | wire.PRESENT if present else wire.LASTS)
        session.send_again()
        self._seal()
        self._host.flush_soon()

    def leave(self, client_id: bytes, token: int, expiry_s: int, with_will: bool) -> None:
        session = self._attached.pop(token, None)
        if session is None:
            if client_id in self._expected and not with_will:
                self._left[client_id] = expiry_s  # unless a newer connection of it says that it is there
            return
        self._now()
        if expiry_s >= 0:
            session.expiry_s = expiry_s
        self.sessions.leave(session, token, session.meta.will if with_will else None, self.router.now_s)
        self._seal()

    def resume(self, client_id: bytes, incarnation: str, token: int, opening: wire.Opening, pairs: bytes) -> bool:
        """A front that is there, and may have missed what was sent: all of it again, the front knows what it had."""
        self._now()
        session = self.sessions.by_id.get(client_id)
        if not isinstance(session, DurableSession):
            return False
        sink = self._way_to(opening, incarnation, client_id, token)
        before = self._attached.get(token)
        if before is session:
            session.attach(sink, session.limits, opening.window, opening.max_packet_bytes)
        else:
            limits = self._host.limits(opening.zone)
            meta = Meta(session.meta.source + opening.nonce, opening.expiry_s, opening.version, _will_of(opening))
            fresh = DurableSession(
                session.journal, self.ledger, meta, sink, client_id, limits, opening.window, opening.max_packet_bytes
            )
            self._detach(session)
            self.sessions.open(fresh, False)
            self._attached[token] = session
        session.reported(pairs)
        session.send_again()
        self._seal()
        self._host.flush_soon()
        return True

    def _way_to(self, opening: wire.Opening, incarnation: str, client_id: bytes, token: int) -> _ToFront:
        return _ToFront(self.router, opening.version, self._homes, self._overflowed, incarnation, client_id, token)

    def _overflowed(self, sink: _ToFront) -> None:
        """Cut off with a reason rather than left with a gap; the session is away from now on."""
        self._homes.overflow(sink.incarnation, sink.client_id, sink.token)
        self.leave(sink.client_id, sink.token, -1, True)

    def _detach(self, session: DurableSession) -> None:
        sink = session.sink
        if isinstance(sink, _ToFront):
            self._attached.pop(sink.token, None)

    def cut(self, incarnation: str) -> None:
        """What was sent to a node may not have come: nothing more goes there until all of it goes again.

        Its fronts say themselves that they are there when they find a link lost; but they may have found it before us,
        and were sent everything by a link that was taken for good.
        """
        for session in self._attached.values():
            if isinstance(session.sink, _ToFront) and session.sink.incarnation == incarnation:
                session.sink.is_cut = True
        self._send_again_later(incarnation)

    def behind(self, incarnation: str) -> None:
        """There was no link for deliveries, or no room on it."""
        self.cut(incarnation)

    def _send_again_later(self, incarnation: str) -> None:
        if incarnation not in self._cut:
            self._cut.add(incarnation)
            asyncio.get_running_loop().call_later(bounds.HOME_BEHIND_S, self._send_again_to, incarnation)

    def _send_again_to(self, incarnation: str) -> None:
        self._cut.discard(incarnation)
        cut = [
            session
            for session in self._attached.values()
            if isinstance(session.sink, _ToFront) and session.sink.incarnation == incarnation and session.sink.is_cut
        ]
        if not cut:
            return
        if not self._homes.is_linked(incarnation):
            self._send_again_later(incarnation)
            return
        self._now()
        for session in cut:
            assert isinstance(session.sink, _ToFront)
            session.sink.is_cut = False
            session.send_again()
        self._host.flush_soon()

    def node_gone(self, incarnation: str) -> None:
        """Its connections are gone with it; their wills are published."""
        gone = [
            (token, session)
            for token, session in self._attached.items()
            if isinstance(session.sink, _ToFront) and session.sink.incarnation == incarnation
        ]
        for token, session in gone:
            self.leave(session.client_id, token, -1, True)
        self._strange[node_source(incarnation)] = self.router.now_s + bounds.MARKS_KEPT_S

    def _forget_strangers(self) -> None:
        """Nodes that went long enough ago: those that come back as another incarnation repeat what they sent before."""
        for source, until_s in list(self._strange.items()):
            if until_s <= self.router.now_s:
                del self._strange[source]
                for state in self._slots.values():
                    if state.loaded and state.marks.forget(source):
                        self._store.unmark(state.number, source)

    def close(self, client_id: bytes) -> bool:
        """End a session whose client is away; False if there is none."""
        session = self.sessions.by_id.get(client_id)
        if session is None or client_id not in self.sessions.away:
            return False
        self.sessions.end(session)
        self._seal()
        return True

    # --- what clients say ---------------------------------------------------------------------------------------------

    def report(self, incarnation: str, token: int, pairs: bytes) -> None:
        session = self._attached.get(token)
        if session is None or not isinstance(session.sink, _ToFront) or session.sink.incarnation != incarnation:
            return
        self._now()
        session.reported(pairs)
        self._seal()
        self._host.flush_soon()

    def ask(self, client_id: bytes, token: int, question: wire.Question, answer: Answered) -> None:
        session = self._attached.get(token)
        if session is None:
            answer(b"")
            return
        self._now()
        match question:
            case wire.Receive(packet_id=packet_id):
                number = session.receive(packet_id)
                origin = session.origin(number) if number else b""
                self._seal()
                self._settle(session, partial(answer, wire.encode(origin)))
            case wire.Unsubscribe(filters=filters):
                reasons = self.sessions.unsubscribe(session, filters)
                self._seal()
                self._settle(session, partial(answer, wire.encode(reasons)))
            case wire.Subscribe():
                settle = partial(self._settle, session)
                Subscribing(self._host, self.router, session, question, settle, answer).start()
                self._seal()

    def _settle(self, session: DurableSession, then: Callable[[], None]) -> None:
        self._store.barrier(session.journal.slot, partial(_if_durable, then))

    # --- letters ------------------------------------------------------------------------------------------------------

    def epoch(self) -> int:
        return self._dealt_at if self._noticed else self._host.slots_epoch()

    def view(self) -> int:
        return self._view

    def is_loading(self) -> bool:
        """Or a slot was let go whose loss isn't in the view yet: what is taken without it must not be accepted. Or so
        much waits for Redis that letters wait at their senders.
        """
        return self._noticed or self._store.is_full() or bool(self._unloaded)

    def take(self, letters: Sequence[Letter], epoch: int, sender: str, done: Callable[[bool], None]) -> None:
        """Put each letter to every session that matches, once; `done` when all of them are durable."""
        self._now()
        touched: set[int] = set()
        for letter in letters:
            try:
                self._take_one(letter, epoch, touched)
            except PacketError as error:
                log.error("%s sent a letter that can't be delivered: %s", sender, error)
        self._seal()
        if touched:
            waits = _All(len(touched), done)
            for slot in touched:
                self._store.barrier(slot, waits.one)
        else:
            done(True)
        self._host.flush_soon()

    def _take_one(self, letter: Letter, epoch: int, touched: set[int]) -> None:
        message = message_of(letter)
        self.router.counters.messages_arrived += 1
        is_new: dict[int, bool] = {}
        for subscription in self.router.route(message.topic).fanout.deliveries:
            session = subscription.session
            assert isinstance(session, DurableSession)
            slot = session.journal.slot
            state = self._slots.get(slot)
            if state is None or state.gained_at > epoch:
                continue
            if slot not in is_new:
                is_new[slot] = state.marks.is_new(letter.source, letter.number)
            if is_new[slot]:
                self.router.give(subscription, message)
        number = number_bytes(letter.number)
        for slot, new in is_new.items():
            touched.add(slot)
            if new:
                fell_out = self._slots[slot].marks.set(letter.source, letter.number)
                self._store.mark(slot, letter.source, number)
                if fell_out:
                    self._store.unmark(slot, fell_out)

    def take_runs(self, letters: Sequence[Letter]) -> None:
        """Of QoS 0."""
        self._now()
        for letter in letters:
            try:
                take_run(self.router, letter.version, letter.packet, letter.publisher)
            except PacketError as error:
                log.error("a run of QoS 0 can't be delivered: %s", error)
        self._host.flush_soon()

    def _note(self, what: str, slot: int) -> None:
        """One line for all slots that it happens to at once."""
        if not self._noted:
            self._host.soon(self._tell_noted)
        self._noted.setdefault(what, []).append(slot)

    def _tell_noted(self) -> None:
        noted, self._noted = self._noted, {}
        for what, slots in noted.items():
            log.warning("%d slots of sessions, the first of them %d: %s", len(slots), slots[0], what)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _now(self) -> None:
        self.router.now_s = time.monotonic()
        self.ledger.wall_offset_s = time.time() - self.router.now_s

    def _unsealed(self) -> None:
        if not self._sealing:
            self._sealing = True
            self._host.soon(self._seal)

    def _seal(self) -> None:
        self._sealing = False
        self.ledger.seal()


class _Port(NodePort):
    """What `Sessions` asks of its node."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents

    def publish(self, message: Publish, session: Session) -> None:
        assert isinstance(session, DurableSession)
        message.origin = session.will_origin()
        self._residents._host.publish(message)

    def unrouted(self, session: Session, filters: list[bytes]) -> None:
        assert isinstance(session, DurableSession)
        residents = self._residents
        gone = partial(residents._host.unrouted_slot, session.journal.slot, filters)
        residents._store.barrier(session.journal.slot, partial(_if_durable, gone))

    def session_ended(self, session: Session) -> None:
        assert isinstance(session, DurableSession)
        residents = self._residents
        state = residents._slots.get(session.journal.slot)
        if state is not None:
            state.clients.discard(session.client_id)
        residents._host.session_ended(session)


class _All:
    """Many barriers with one answer."""

    __slots__ = ("_done", "_durable", "_waits")

    def __init__(self, waits: int, done: Callable[[bool], None]) -> None:
        self._waits = waits
        self._done = done
        self._durable = True

    def one(self, durable: bool) -> None:
        self._durable = self._durable and durable
        self._waits -= 1
        if self._waits == 0:
            self._done(self._durable)


def _if_durable(then: Callable[..., None], *arguments: object) -> None:
    """The last argument is whether it is durable; who never hears is kicked, or asks the slot's new home."""
    *rest, durable = arguments
    if durable:
        then(*rest)


def _will_of(opening: wire.Opening) -> Will | None:
    if opening.will is None:
        return None
    packet, version = opening.will.packet, opening.will.version
    _, body = remaining_length(packet, 1, version)
    return Will(parse_publish(packet, 0, body, len(packet), version), opening.will.delay_s)
