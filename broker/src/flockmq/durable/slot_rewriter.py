"""Writes slots from memory to Redis again when Redis lost committed data.

Invariants:
- It first takes a slot again with the same fence, so no other core owns it meanwhile. Sessions that Redis still has but
  that ended since are deleted; sessions that can't be read stay. What waited when Redis lost data is answered when the
  whole slot is written.
- All slots of one server that were lost together are taken again together: one by one, each waits for the round trips
  of all others, and none is written before. Slots at one server don't wait for another server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final

from flockmq import bounds, tasks
from flockmq.clock import Clock
from flockmq.delivery.slot_acceptance import number_bytes
from flockmq.durable.session_store import SessionStore, StoreFenced
from flockmq.durable.session_table import SessionTable
from flockmq.durable.slot import OwnedSlot, SlotReports
from flockmq.durable.slot_reader import SlotContents, UnreadableSlot
from flockmq.logs import Retrying
from flockmq.redis.errors import StorageError, StorageUnavailable

log: Final = logging.getLogger(__name__)


class SlotRewriter:
    """One per core. `slots`: the slots that this core owns. `request_barriers` requests barriers for all writes.
    `fenced` is called if another core took the slot.
    """

    def __init__(
        self,
        store: SessionStore,
        slots: dict[int, OwnedSlot],
        sessions: SessionTable,
        request_barriers: Callable[[], None],
        fenced: Callable[[int], None],
        reports: SlotReports,
        clock: Clock,
    ) -> None:
        self._store = store
        self._slots = slots
        self._sessions = sessions
        self._request_barriers = request_barriers
        self._fenced = fenced
        self._reports = reports
        self._trouble = Retrying(log, clock.monotonic)
        self._lost: dict[int, OwnedSlot] = {}
        """Lost in this event-loop iteration."""
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def stop(self) -> None:
        await tasks.end(*self._tasks)

    async def done(self) -> None:
        """Return when all that was lost is put again."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def data_lost(self, number: int) -> None:
        """Redis lost all or part of the slot's data. A slot that isn't loaded yet is written when it is."""
        slot = self._slots.get(number)
        if slot is None:
            return
        slot.was_emptied = not slot.loaded
        if slot.loaded:
            what = "Redis lost what it had of their sessions, or a part; it is written anew from memory"
            self._reports.happened(what, number)
            if not self._lost:
                self._run(self._begin())
            self._lost[number] = slot

    def _run(self, taking: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(taking)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _begin(self) -> None:
        lost, self._lost = self._lost, {}
        await self._deal(lost, bounds.LOG_RETRY_MIN_S)

    async def _deal(self, slots: dict[int, OwnedSlot], retry_s: float) -> None:
        """Take the slots again, those of each server apart."""
        try:
            groups = await self._store.apart(slots)
        except StorageError as error:
            self._failed(error, slots, retry_s)
            return
        for group in groups:
            self._run(self._take_again({number: slots[number] for number in group}, retry_s))

    async def _take_again(self, slots: dict[int, OwnedSlot], retry_s: float) -> None:
        """The slots are at one server. Whatever prevents it, those that are still ours are tried again."""
        left = {number: slot for number, slot in slots.items() if self._is_running(slot)}
        fences = {number: slot.fence for number, slot in left.items()}
        try:
            async with aclosing(self._store.take_all(fences, again=True)) as taken:
                async for number, contents in taken:
                    self._trouble.worked()
                    self._taken(left.pop(number), contents)
                    await asyncio.sleep(0)
        except StorageError as error:
            self._failed(error, left, retry_s)
        except Exception:  # Otherwise nothing of the slots' sessions would ever be committed.
            log.exception("slots of sessions could not be taken again; they are tried again")
            self._run(self._later(left, bounds.LOG_RETRY_MAX_S))
        else:
            if left := {number: slot for number, slot in left.items() if self._is_running(slot)}:
                self._failed(StorageUnavailable("they were lost again while they were read"), left, retry_s)

    def _taken(self, slot: OwnedSlot, taken: SlotContents | StoreFenced | UnreadableSlot) -> None:
        if not self._is_ours(slot):  # Its sessions were removed, and there is nothing to compare.
            return
        if isinstance(taken, StoreFenced):
            self._fenced(slot.number)
            return
        if isinstance(taken, UnreadableSlot):
            self._reports.slot_unreadable(slot, str(taken))
            self._run(self._later({slot.number: slot}, bounds.SLOT_SPOILT_RETRY_S))
            return
        try:
            self._write_again(slot, taken)
            self._reports.slot_unreadable(slot, "")
        except Exception:  # Otherwise nothing of the slot's sessions would ever be committed.
            log.exception("slot %d of sessions could not be written again; it is tried again", slot.number)
            self._run(self._later({slot.number: slot}, bounds.LOG_RETRY_MAX_S))

    def _failed(self, error: StorageError, slots: dict[int, OwnedSlot], retry_s: float) -> None:
        self._trouble.failed("%d slots of sessions that Redis lost wait for it: %s", len(slots), error)
        self._run(self._later(slots, retry_s, min(2 * retry_s, bounds.LOG_RETRY_MAX_S)))

    async def _later(
        self, slots: dict[int, OwnedSlot], after_s: float, retry_s: float = bounds.LOG_RETRY_MIN_S
    ) -> None:
        await asyncio.sleep(after_s)
        if left := {number: slot for number, slot in slots.items() if self._is_running(slot)}:
            await self._deal(left, retry_s)

    def _is_running(self, slot: OwnedSlot) -> bool:
        return self._is_ours(slot) and not slot.is_lost

    def _is_ours(self, slot: OwnedSlot) -> bool:
        return self._slots.get(slot.number) is slot

    def _write_again(self, slot: OwnedSlot, taken: SlotContents) -> None:
        self._store.begin_anew(slot.number)
        here = [self._sessions.by_id.get(client_id) for client_id in slot.clients]
        sessions = [session for session in here if session is not None]
        known = {session.client_id for session in sessions} | slot.unread.keys()
        for client_id in [client_id for client_id in (*taken.sessions, *taken.unread) if client_id not in known]:
            self._store.drop(slot.number, client_id)
        for session in sessions:
            session.write_again()
        slot.wills.write_again()
        for source, number in slot.marks.items():
            self._store.mark(slot.number, source, number_bytes(number))
        self._store.end_anew(slot.number)
        self._request_barriers()
