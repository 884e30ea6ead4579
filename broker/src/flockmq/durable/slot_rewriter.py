"""Writes a slot from memory to Redis again when Redis lost committed data.

Invariant: it first takes the slot again with the same fence, so no other core owns it meanwhile. Sessions that Redis
still has but that ended since are deleted; sessions that can't be read stay. What waited when Redis lost data is
answered when the whole slot is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from flockmq import bounds, tasks
from flockmq.clock import Clock
from flockmq.delivery.deduplicator import number_bytes
from flockmq.durable.session_store import SessionStore, StoreFenced
from flockmq.durable.session_table import SessionTable
from flockmq.durable.slot import OwnedSlot, SlotReports
from flockmq.durable.slot_reader import SlotContents, UnreadableSlot
from flockmq.logs import Retrying
from flockmq.redis.errors import StorageError

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
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def stop(self) -> None:
        await tasks.end(*self._tasks)

    def data_lost(self, number: int) -> None:
        """Redis lost all or part of the slot's data. A slot that isn't loaded yet is written when it is."""
        slot = self._slots.get(number)
        if slot is None:
            return
        slot.was_emptied = not slot.loaded
        if slot.loaded:
            what = "Redis lost what it had of their sessions, or a part; it is written anew from memory"
            self._reports.happened(what, number)
            task = asyncio.ensure_future(self._take_again(slot))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _take_again(self, slot: OwnedSlot) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        while self._is_ours(slot) and not slot.is_lost:
            try:
                taken = await self._store.take(slot.number, slot.fence, again=True)
                self._trouble.worked()
                if self._is_ours(slot):  # Otherwise its sessions were removed, and there is nothing to compare.
                    self._write_again(slot, taken)
                    self._reports.slot_unreadable(slot, "")
                return
            except StoreFenced:
                if self._is_ours(slot):
                    self._fenced(slot.number)
                return
            except UnreadableSlot as error:
                if self._is_ours(slot):
                    self._reports.slot_unreadable(slot, str(error))
                await asyncio.sleep(bounds.SLOT_SPOILT_RETRY_S)
            except StorageError as error:
                self._trouble.failed("slots of sessions that Redis lost wait for it: %s", error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
            except Exception:  # Otherwise nothing of the slot's sessions would ever be committed.
                log.exception("slot %d of sessions could not be taken again; it is tried again", slot.number)
                await asyncio.sleep(bounds.LOG_RETRY_MAX_S)

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
