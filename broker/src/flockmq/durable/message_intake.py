"""Letters that reach this home: to each session that matches, once (`slot_receiver.ReceivingSessions`).

What always holds: a letter is accepted when it is durable at all slots that it matched here, repeats included; a slot
takes of each source what is above the number that it took last. A slot that can't take letters, because its sessions
aren't here yet or too much of it waits for Redis, holds up none for other slots: what is for it is held here, in its
order, until it can. What is held is within its senders' windows (COURIER_WINDOW_BYTES, COURIER_STUCK_MAX_BYTES). A
shared delivery that its slot has no member for goes on to another node when it is durable that it was taken.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from flockmq.delivery.commit_barriers import BySlot
from flockmq.delivery.deduplicator import number_bytes
from flockmq.delivery.slot_message import SlotMessage
from flockmq.durable.ports import HostPort
from flockmq.durable.router import message_of
from flockmq.durable.session import DurableSession
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot_manager import SlotManager
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish
from flockmq.routing.forwarded import take_run
from flockmq.routing.shared_items import SHARED, Item
from flockmq.routing.slots import addressed
from flockmq.routing.subscriber import Subscription

log: Final = logging.getLogger(__name__)

_ALWAYS: Final = 1 << 62
"""Of an epoch that was looked at before."""


class _HeldMessage:
    """For one slot: a letter, since when and by whom; or who waits until those before it are durable."""

    __slots__ = ("done", "letter", "sender", "since_s")

    def __init__(
        self, letter: SlotMessage | None, sender: str, since_s: float, done: Callable[[bool], None] | None
    ) -> None:
        self.letter = letter
        self.sender = sender
        self.since_s = since_s
        self.done = done


class MessageIntake:
    """One per core."""

    def __init__(self, host: HostPort, holding: SlotManager, store: SessionStore) -> None:
        self._held: dict[int, deque[_HeldMessage]] = {}
        self._unsettled: dict[int, list[tuple[Subscription, Publish]]] = {}
        """By slot, of the letters at hand: who gets them at QoS 0."""
        self._host = host
        self._holding = holding
        self._store = store
        self._router = holding.router

    def epoch(self) -> int:
        return self._holding.epoch()

    def view(self) -> int:
        return self._holding.view

    def is_loading(self) -> bool:
        """Or so much waits for Redis that letters that say nothing of slots wait at their senders."""
        return self._holding.is_loading() or len(self._closed()) > 0

    def is_changing(self) -> bool:
        return self._holding.is_changing()

    @property
    def is_holding(self) -> bool:
        return len(self._held) > 0

    def _closed(self) -> set[int]:
        """Slots that can't take letters now."""
        closed = self._holding.unloaded()
        closed.update(self._held)
        if self._store.is_any_full():
            closed.update([slot for slot in self._holding.slots if self._store.is_full(slot)])
        return closed

    def take(self, letters: Sequence[SlotMessage], epoch: int, sender: str, done: Callable[[bool], None]) -> BySlot:
        """Put each letter to every session that matches, once; `done` when all of them are durable."""
        self._holding.now()
        closed = self._closed()
        touched: dict[int, None] = {}
        for letter in letters:
            if closed:
                self._hold(letter, epoch, sender, closed, touched)
            try:
                if letter.version & SHARED:
                    self._deal(letter, epoch, closed, touched)
                else:
                    self._router.counters.messages_arrived += 1
                    self._take_one(letter, epoch, closed, touched)
            except PacketError as error:
                log.error("%s sent a letter that can't be delivered: %s", sender, error)
        self._settle_qos0()
        self._holding.seal()
        waits = BySlot(touched, done)
        if touched:
            for slot in list(touched):
                self._settle(slot, partial(waits.one, slot))
        else:
            done(True)
        self._host.flush_soon()
        return waits

    def _settle(self, slot: int, done: Callable[[bool], None]) -> None:
        held = self._held.get(slot)
        if held is None:
            self._store.barrier(slot, done)
        else:
            held.append(_HeldMessage(None, "", 0.0, done))

    # --- what is held -------------------------------------------------------------------------------------------------

    def _hold(self, letter: SlotMessage, epoch: int, sender: str, closed: set[int], touched: dict[int, None]) -> None:
        for slot in letter.slots:
            if slot in closed:
                state = self._holding.slots.get(slot)
                if state is not None and state.gained_at <= epoch:
                    held = self._held.setdefault(slot, deque())
                    held.append(_HeldMessage(letter, sender, self._router.now_s, None))
                    touched[slot] = None

    def advance(self) -> None:
        """Give slots that can take letters again what was held for them."""
        if not self._held:
            return
        self._holding.now()
        for slot in [slot for slot in self._held if self._holding.has_loaded(slot)]:
            self._advance(slot)
        self._settle_qos0()
        self._holding.seal()
        self._host.flush_soon()

    def _advance(self, slot: int) -> None:
        held = self._held[slot]
        while held and not self._store.is_full(slot):
            item = held.popleft()
            if item.done is not None:
                self._holding.seal()
                self._store.barrier(slot, item.done)
            elif item.letter is not None and item.sender in self._host.members():
                self._give_held(slot, item, item.letter)
        if not held:
            self._held.pop(slot, None)

    def _give_held(self, slot: int, item: _HeldMessage, letter: SlotMessage) -> None:
        waited_s = int(self._router.now_s - item.since_s)
        try:
            letter = letter.aged(waited_s) if waited_s > 0 else letter
            if letter.version & SHARED:
                self._deal(letter, _ALWAYS, set(), {})
            else:
                self._take_one(letter, _ALWAYS, set(), {}, slot)
        except PacketError as error:
            log.error("%s sent a letter that can't be delivered: %s", item.sender, error)

    def let_go(self, slot: int) -> None:
        """Of another home: what was held here goes there."""
        for item in self._held.pop(slot, ()):
            if item.done is not None:
                item.done(False)

    # --- one letter ---------------------------------------------------------------------------------------------------

    def _take_one(
        self, letter: SlotMessage, epoch: int, closed: set[int], touched: dict[int, None], only: int = -1
    ) -> None:
        """At all slots that aren't closed, or at one of them."""
        message = message_of(letter)
        is_new: dict[int, bool] = {}
        for subscription in self._router.route(message.topic).fanout.deliveries:
            session = subscription.session
            assert isinstance(session, DurableSession)
            slot = session.journal.slot
            state = self._holding.slots.get(slot)
            if state is None or state.gained_at > epoch or slot in closed or (only >= 0 and slot != only):
                continue
            if slot not in is_new:
                is_new[slot] = state.marks.is_new(letter.source, letter.number)
                if is_new[slot]:
                    self._store.begin_letter(slot)
            if is_new[slot] and subscription.qos:
                if self._is_dropped(session, message):
                    self._router.counters.dropped_queue_full += 1
                else:
                    self._give(subscription, message)
            elif is_new[slot]:
                self._unsettled.setdefault(slot, []).append((subscription, message))
        for slot, new in is_new.items():
            touched[slot] = None
            if new:
                self._mark(slot, letter)

    def _is_dropped(self, session: DurableSession, message: Publish) -> bool:
        """Redis is short of memory, the client is away, and the publisher couldn't be told so, being of before 5.0."""
        return message.version < 5 and session.meta.left_ms != 0 and self._store.is_short(session.journal.slot)

    def _give(self, subscription: Subscription, message: Publish) -> None:
        try:
            self._router.give(subscription, message)
        except Exception:  # the other sessions, and the other letters, have no part in it
            log.exception("a message to %r could not be given to %r", message.topic, subscription.session.client_id)

    def _settle_qos0(self) -> None:
        """What goes at QoS 0 goes when it is durable that it was taken: else the slot's next home sends it again."""
        unsettled, self._unsettled = self._unsettled, {}
        for slot, copies in unsettled.items():
            self._holding.settle(slot, partial(self._give_qos0, copies))

    def _give_qos0(self, copies: list[tuple[Subscription, Publish]]) -> None:
        self._holding.now()
        for subscription, message in copies:
            session = subscription.session
            assert isinstance(session, DurableSession)
            if not session.has_ended():
                self._give(subscription, message)
        self._host.flush_soon()

    def _deal(self, letter: SlotMessage, epoch: int, closed: set[int], touched: dict[int, None]) -> None:
        """To one member of a shared subscription, of one slot."""
        slot, chunk = addressed(letter.packet)
        state = self._holding.slots.get(slot)
        if state is None or state.gained_at > epoch or slot in closed:
            return
        touched[slot] = None
        if state.marks.is_new(letter.source, letter.number):
            left: list[Item] = []
            version = letter.version & ~SHARED
            self._store.begin_letter(slot)
            try:
                left = self._router.deal(slot, version, chunk)
            except PacketError:
                raise
            except Exception:  # the other letters have no part in it
                log.exception("a shared delivery could not be given to a member in slot %d", slot)
            self._mark(slot, letter)
            if left:  # not before it is durable that it was taken here: else the slot's next home takes it, too
                self._holding.settle(slot, partial(self._pass_on, slot, version, left))

    def _pass_on(self, slot: int, version: int, items: list[Item]) -> None:
        try:
            self._router.pass_on(slot, version, items)
        except PacketError as error:
            log.error("a shared delivery for slot %d can't be passed on: %s", slot, error)
        self._host.flush_soon()

    def _mark(self, slot: int, letter: SlotMessage) -> None:
        fell_out = self._holding.slots[slot].marks.set(letter.source, letter.number)
        self._store.mark(slot, letter.source, number_bytes(letter.number))
        if fell_out:
            self._store.unmark(slot, fell_out)

    def take_runs(self, letters: Sequence[SlotMessage]) -> None:
        """Of QoS 0."""
        self._holding.now()
        for letter in letters:
            try:
                if letter.version & SHARED:
                    slot, chunk = addressed(letter.packet)
                    version = letter.version & ~SHARED
                    self._router.pass_on(slot, version, self._router.deal(slot, version, chunk))
                else:
                    take_run(self._router, letter.version, letter.packet, letter.publisher)
            except PacketError as error:
                log.error("a run of QoS 0 can't be delivered: %s", error)
        self._host.flush_soon()
