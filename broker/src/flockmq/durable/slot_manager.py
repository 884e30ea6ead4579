"""The slots that this core owns, with their sessions: loads them, runs them and gives them up.

The sessions are in a router of their own (`DurableRouter`) and in `SessionTable`. Their durable state is mirrored in
the store. Invariants:
- A slot is used only after this core has set its fence in the store and loaded all sessions of the slot.
- A session that can't be read stays in Redis unchanged, and an alarm is raised until it is deleted. The same holds for
  a slot that can't be read.
- When another core has taken a slot, its sessions stop here at once. They are removed from the router in time slices.
  If the slot comes back before that is complete, it is loaded afterwards.
- `view` is the log position at which a slot last came or went. It rises before any message is accepted for the new set
  of slots.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from struct import error as StructError
from typing import Final, Protocol

from flockmq import bounds
from flockmq.clock import Clock
from flockmq.delivery.slot_acceptance import SlotBarriers
from flockmq.durable.commit_queue import CommitState
from flockmq.durable.departed_sources import DepartedSources
from flockmq.durable.due_wills import HASH as WILLS
from flockmq.durable.due_wills import DueWills, HeldBytes
from flockmq.durable.pending_writes import SlotWriter, if_durable
from flockmq.durable.ports import HostPort
from flockmq.durable.restored_session import restored
from flockmq.durable.router import DurableRouter
from flockmq.durable.session import DurableSession
from flockmq.durable.session_endings import SessionEndings
from flockmq.durable.session_store import SessionStore, StoreFenced
from flockmq.durable.session_table import SessionTable
from flockmq.durable.slot import OwnedSlot, SlotReports
from flockmq.durable.slot_loader import SlotLoader
from flockmq.durable.slot_reader import SlotContents, UnreadableSlot
from flockmq.durable.slot_rewriter import SlotRewriter
from flockmq.mqtt.errors import PacketError
from flockmq.redis.errors import StorageError
from flockmq.rlog.entry import StreamId
from flockmq.rlog.retained_order import author_of
from flockmq.routing.message_id import node_source
from flockmq.routing.slots import slot_of
from flockmq.time_slices import TimeSlices

log: Final = logging.getLogger(__name__)


class SessionConnections(Protocol):
    """Tells the session service which slots and sessions came and went."""

    def slot_loaded(self, slot: int) -> None: ...

    def slot_left(self, slot: int) -> None: ...

    def slot_retaken(self, slot: int) -> None:
        """The slot was lost and came back, and the nodes may not have noticed either."""
        ...

    def session_loaded(self, session: DurableSession, returns_by_s: float) -> None:
        """A session was loaded whose client was connected at its former owner. The client should
        reconnect until then.
        """
        ...

    def session_unloaded(self, session: DurableSession) -> None:
        """The session goes to another owner."""
        ...


class SlotManager:
    """The slots of one core."""

    def __init__(
        self,
        host: HostPort,
        store: SessionStore,
        router: DurableRouter,
        connections: SessionConnections,
        slices: TimeSlices,
        clock: Clock,
    ) -> None:
        self.router = router
        self.slots: dict[int, OwnedSlot] = {}
        self.endings = SessionEndings(host, store, router, self.slots)
        self.sessions = SessionTable(router, self.endings, slices)
        self.commit_state = CommitState(clock.wall() - clock.monotonic())
        self.held_wills = HeldBytes()
        self.view = 0
        self.unloaded: set[int] = set()
        """Slots that aren't `loaded` yet."""
        self._clock = clock
        self._host = host
        self._store = store
        self._connections = connections
        self._leaving: dict[int, OwnedSlot] = {}
        """Slots that were given up and still have sessions in the router."""
        self._slices = slices
        self._has_changed = False
        self._stopped = False
        self._loading = SlotLoader(store, self._blank, self._take_over, host.changed, clock.monotonic)
        self._reports = SlotReports(host)
        self._rewriter = SlotRewriter(
            store, self.slots, self.sessions, self.request_barriers, self._fenced, self._reports, clock
        )
        self._departed = DepartedSources()
        self._is_requesting = False
        store.on_fenced = self._fenced
        store.on_lost = self._rewriter.data_lost

    async def stop(self) -> None:
        """Load no more slots."""
        self._stopped = True
        await self._loading.stop()

    async def close(self) -> None:
        """Write no slot again any more."""
        await self._rewriter.stop()

    async def durable(self) -> None:
        """Return when all is durable, also what Redis lost since it was written, or never will be."""
        with contextlib.suppress(StorageError):  # Redis is away: what waits for it is all that is known to be missing.
            await self._store.check()
        await self._rewriter.done()
        self.request_barriers()
        if self.slots:
            done = asyncio.Event()
            waits = SlotBarriers(dict.fromkeys(self.slots), lambda _: done.set())
            for slot in self.slots:
                self._store.barrier(slot, partial(waits.one, slot))
            await done.wait()

    # --- turns --------------------------------------------------------------------------------------------------------

    def now(self) -> None:
        """Set the time for what follows."""
        self.router.host.now_s = self._clock.monotonic()
        self.commit_state.wall_offset_s = self._clock.wall() - self.router.host.now_s
        self.commit_state.is_short = self._store.core_is_short

    def request_barriers(self) -> None:
        """Request barriers for all writes so far."""
        self._is_requesting = False
        self.commit_state.request_barriers()

    def settle(self, slot: int, then: Callable[[], None]) -> None:
        """Call `then` when all writes so far for the slot are durable."""
        self._store.barrier(slot, partial(if_durable, then))

    def _wrote(self) -> None:
        if not self._is_requesting:
            self._is_requesting = True
            self._host.soon(self.request_barriers)

    # --- which are ours -----------------------------------------------------------------------------------------------

    def own(self, slot: int) -> None:
        epoch = self._change()
        fence = f"{StreamId(epoch >> 48, epoch & (1 << 48) - 1)} {self._host.incarnation}"
        writer = SlotWriter(slot, self._store, self._wrote, self._host.flush_soon)
        wills = DueWills(writer, self.commit_state, self._host.publish, self._host.has_authors, self.held_wills)
        self.slots[slot] = OwnedSlot(slot, epoch, fence, writer, wills)
        self.unloaded.add(slot)

    def disown(self, slot: int) -> None:
        """Stops the slot's sessions at once: Redis would refuse their writes."""
        self._change()
        self._let_go(slot)

    def has_loaded(self, slot: int) -> bool:
        held = self.slots.get(slot)
        return held is not None and held.loaded

    def holds(self, session: DurableSession) -> bool:
        """True if the session runs here."""
        return session.runs_in(self.slots.get(session.writer.slot))

    def is_loading(self) -> bool:
        return self.is_changing() or bool(self.unloaded)

    def is_changing(self) -> bool:
        """True if a slot was lost but `view` doesn't say so yet. Messages must not be accepted then."""
        if not self._stopped and not self.unloaded:  # as almost always
            return False
        return self._stopped or any(self.slots[number].is_lost for number in self.unloaded)

    def _change(self) -> int:
        """A slot comes or goes at the current position of the log."""
        self.view = self._host.slots.epoch
        if not self._has_changed:
            self._has_changed = True
            self._host.soon(self._look)
        return self.view

    def _look(self) -> None:
        """Runs after all slot changes of one log entry."""
        self._has_changed = False
        self._loading.look()
        self._host.changed()

    # --- taking over --------------------------------------------------------------------------------------------------

    def _blank(self) -> dict[int, str]:
        """Slots that must be loaded now, with their fences."""
        slots, now_s = self.slots, self._clock.monotonic()
        return {
            number: slots[number].fence
            for number in self.unloaded
            if number not in self._leaving and slots[number].is_blank() and slots[number].looked_at_s <= now_s
        }

    async def _take_over(self, number: int, fence: str, taken: SlotContents | StoreFenced | UnreadableSlot) -> None:
        slot = self.slots.get(number)
        if slot is None or slot.fence != fence or number in self._leaving:
            # Another core owns it now; or it went and came back meanwhile, and will be loaded again. If the store kept
            # it with the former fence, it would report that fenced out, and we would take that for the new one.
            self._store.release(number)
        elif isinstance(taken, StoreFenced):
            self._reports.happened("another core took them before their sessions were loaded", number)
            slot.lose(self._clock.monotonic())
        elif isinstance(taken, UnreadableSlot):
            slot.looked_at_s = self._clock.monotonic() + bounds.SLOT_SPOILT_RETRY_S
            self._reports.slot_unreadable(slot, str(taken))
        elif not slot.loaded and await self._load(slot, taken) and not slot.is_lost:
            slot.loaded = True
            slot.read_error = ""
            self.unloaded.discard(number)
            if slot.was_emptied:
                self._rewriter.data_lost(number)
            self._connections.slot_loaded(number)
            self._reports.look(slot)

    async def _load(self, slot: OwnedSlot, taken: SlotContents) -> bool:
        """Load the sessions that the last owner stored. Returns False if the slot was lost meanwhile."""
        self.now()
        for source in slot.marks.restore(taken.marks):
            self._store.mark(slot.number, source, None)
        self._departed.found(slot.marks.unknown_nodes(self._sources_of_members()), self.router.host.now_s)
        slot.unread.update(taken.unread)
        for client_id, fields in taken.sessions.items():
            if client_id in self.sessions.by_id:
                continue  # The slot is loaded again after Redis lost data; our copy is newer.
            try:
                if client_id == WILLS:
                    slot.wills.restore(fields, self.router.host.now_s)
                else:
                    self._restore(slot, client_id, fields)
            except (ValueError, IndexError, StructError, PacketError) as error:
                slot.cannot_read(client_id, fields, str(error) or repr(error))
            except Exception as error:  # One bad session must not stop the others.
                log.exception("the session of %r can't be restored", client_id)
                slot.cannot_read(client_id, fields, repr(error))
            if self._clock.monotonic() - self.router.host.now_s >= bounds.SLOT_WORK_MAX_S:
                self.request_barriers()
                await asyncio.sleep(0)
                self.now()
                if self.slots.get(slot.number) is not slot:
                    return False
        self.request_barriers()
        for client_id, why in slot.unread.items():
            log.error("the session of %r can't be restored, it is left in Redis: %s", client_id, why)
        return True

    def _restore(self, slot: OwnedSlot, client_id: bytes, fields: dict[bytes, bytes]) -> None:
        session = restored(slot.writer, self.commit_state, client_id, fields, self.router, self._host.limits)
        meta = session.meta
        now_s = self.router.host.now_s
        left_s = self.commit_state.monotonic_s(meta.left_ms) if meta.left_ms else now_s + bounds.CONNECTION_RETURN_S
        if meta.will is not None:  # It belongs to an earlier connection.
            meta.will.message.author = author_of(client_id, self._host.floor(slot.number), is_will=True)
        session.set_usage(self._host.usage(session.record.user))
        self.sessions.restore(session, meta.will, left_s)
        session.quota.begin()
        slot.clients[client_id] = None
        if not meta.left_ms:
            self._connections.session_loaded(session, left_s)
        subscriptions = session.subscriptions.all()
        self._host.filters_loaded(slot.number, client_id, [subscription.filter for subscription in subscriptions])
        if pending_retained := [
            subscription for subscription in subscriptions if session.record.awaits_retained(subscription.filter)
        ]:
            self._host.send_retained(pending_retained, saw_all=False)

    # --- letting go ---------------------------------------------------------------------------------------------------

    def _let_go(self, number: int) -> None:
        slot = self.slots.pop(number, None)
        if slot is None:
            return
        self.unloaded.discard(number)
        self._host.alarm(number, "", is_ours=False)
        self._store.release(number)
        self._connections.slot_left(number)
        slot.wills.let_go()
        self.router.give_up_shared(number)
        slot.writer.close()
        self._host.slot_gone(number)
        if number not in self._leaving:  # Otherwise the slot was never loaded.
            self._leaving[number] = slot
            self._slices.add(self._departures(slot))

    def _departures(self, slot: OwnedSlot) -> Iterator[Callable[[], None]]:
        while slot.clients:
            session = self.sessions.by_id.get(slot.clients.popitem()[0])
            if session is not None:
                yield partial(self.depart, session)
        del self._leaving[slot.number]
        self._loading.look()

    def depart(self, session: DurableSession) -> None:
        """Remove a session of a slot that was given up."""
        self._connections.session_unloaded(session)
        self.sessions.depart(session)

    def tick(self, is_connected: Callable[[bytes], bool]) -> None:
        """Publish wills that are due, and end expired sessions. Not while given-up sessions are still in the table:
        they are the next owner's. Nor while all may be another core's, which this core can't read yet. So this may be
        late by that time.
        """
        if self._host.may_do_what_is_due():
            self._do_what_is_due(is_connected)
        self._loading.look()
        self._take_what_is_lost_and_ours()

    def _do_what_is_due(self, is_connected: Callable[[bytes], bool]) -> None:
        if not self._leaving:
            self.sessions.tick(self.router.host.now_s)
        if self.held_wills.count or self.held_wills.cancelled:
            for slot in self.slots.values():
                if slot.loaded:
                    slot.wills.tick(self.router.host.now_s, is_connected)

    def _take_what_is_lost_and_ours(self) -> None:
        """The slot was lost to another core and returned, but a bootstrap skipped those log entries, so this core never
        saw the moves. If the table still says after SLOT_LOST_MAX_S that it is ours, take it again. If the table is
        merely behind, Redis refuses our lower fence and nothing changes.
        """
        since_s = self.router.host.now_s - bounds.SLOT_LOST_MAX_S
        for number in list(self.unloaded):
            slot = self.slots[number]
            if slot.is_lost and slot.lost_s <= since_s:
                self.disown(number)
                self.own(number)
                self._connections.slot_retaken(number)

    def _fenced(self, number: int) -> None:
        """Another core took the slot, and our table will say so soon. Until then accept no messages for any slot; those
        for this slot would be lost.
        """
        slot = self.slots.get(number)
        if slot is not None and not slot.is_lost:
            self._reports.happened("another core took them; their sessions stop here", number)
            slot.lose(self._clock.monotonic())
            self.unloaded.add(number)

    # --- sessions that can't be read ----------------------------------------------------------------------------------

    def why_unread(self, client_id: bytes) -> str:
        """Why the client's stored session can't be restored; "": there is none that can't."""
        held = self.slots.get(slot_of(client_id))
        return "" if held is None else held.unread.get(client_id, "")

    def drop_unread(self, client_id: bytes, slot: int) -> bool:
        """Delete an unreadable session, because its client or an operator asked for it. Returns False if
        there is none.
        """
        held = self.slots.get(slot)
        if held is None or not held.drop_unread(client_id):
            return False
        self._reports.look(held)
        return True

    # --- sequence numbers of purged nodes -----------------------------------------------------------------------------

    def node_gone(self, incarnation: str) -> None:
        self._departed.departed(node_source(incarnation), self.router.host.now_s)

    def forget_departed(self) -> None:
        """Forget the sequence numbers of nodes that were purged long ago. Nodes that came back keep theirs."""
        if due := self._departed.take_due(self.router.host.now_s):
            members = self._sources_of_members()
            for source in due:
                if source not in members:
                    self._forget(source)

    def _sources_of_members(self) -> set[bytes]:
        return {node_source(member) for member in self._host.members()}

    def _forget(self, source: bytes) -> None:
        for slot in self.slots.values():
            if slot.loaded and slot.marks.forget(source):
                self._store.mark(slot.number, source, None)
