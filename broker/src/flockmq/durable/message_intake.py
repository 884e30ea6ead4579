"""Delivers slot messages on this core, once to each session that matches. Implements `slot_receiver.ReceivingSessions`.

Invariants:
- A message is accepted when, for each slot here that it matched, it is committed or was a duplicate. A slot takes a
  message only if its number is above the last one of its source.
- A slot may be unable to take messages: its sessions aren't loaded, or too much of its data waits for Redis. It must
  not delay other slots. So messages for it are held here, in order, within the send windows of their senders
  (SLOT_WINDOW_BYTES, SLOT_BLOCKED_MAX_BYTES).
- A shared delivery for which the slot has no member is accepted first. After that is committed it goes to another node.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from flockmq.delivery.slot_acceptance import SlotBarriers, number_bytes
from flockmq.durable.ports import HostPort
from flockmq.durable.session import DurableSession
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot_manager import SlotManager
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish
from flockmq.routing.forwarded import take_run
from flockmq.routing.shared_frames import SHARED, SharedItem
from flockmq.routing.slots import SlotMessage, addressed
from flockmq.routing.subscriber import Subscription

log: Final = logging.getLogger(__name__)

_ALWAYS: Final = 1 << 62
"""An epoch later than all others. It marks a held message whose epoch was checked before."""


class _HeldMessage:
    """An item that waits for one slot: a message with its sender and time, or a `done` that waits for the messages
    before it.
    """

    __slots__ = ("done", "message", "sender", "since_s")

    def __init__(
        self, message: SlotMessage | None, sender: str, since_s: float, done: Callable[[bool], None] | None
    ) -> None:
        self.message = message
        self.sender = sender
        self.since_s = since_s
        self.done = done


class MessageIntake:
    """Takes the slot messages that arrive at one core."""

    def __init__(self, host: HostPort, manager: SlotManager, store: SessionStore) -> None:
        self._held: dict[int, deque[_HeldMessage]] = {}
        self._unsettled: dict[int, list[tuple[Subscription, Publish]]] = {}
        """For the current batch, by slot: deliveries at QoS 0."""
        self._host = host
        self._manager = manager
        self._store = store
        self._router = manager.router
        self.is_changing: Callable[[], bool] = manager.is_changing

    def epoch(self) -> int:
        return self._host.slots.epoch

    def view(self) -> int:
        return self._manager.view

    def is_loading(self) -> bool:
        """True if slots aren't loaded, or so much waits for Redis that messages which don't name their slots must wait
        at their senders.
        """
        return self._manager.is_loading() or len(self._closed()) > 0

    @property
    def is_holding(self) -> bool:
        return len(self._held) > 0

    def _closed(self) -> set[int]:
        """Slots that can't take messages now."""
        closed = set(self._manager.unloaded)
        closed.update(self._held)
        if self._store.is_any_full():
            closed.update([slot for slot in self._manager.slots if self._store.is_full(slot)])
        return closed

    def take(
        self, messages: Sequence[SlotMessage], epoch: int, sender: str, done: Callable[[bool], None]
    ) -> SlotBarriers:
        """Deliver each message once to every session that matches. Calls `done` when all of that is committed."""
        self._manager.now()
        closed = self._closed()
        touched: dict[int, None] = {}
        for message in messages:
            if closed:
                self._hold(message, epoch, sender, closed, touched)
            try:
                if message.version & SHARED:
                    self._deal(message, epoch, closed, touched)
                else:
                    self._router.counters.messages_arrived += 1
                    self._deliver_one(message, epoch, closed, touched)
            except PacketError as error:
                log.error("%s sent a message that can't be delivered: %s", sender, error)
        self._settle_qos0()
        self._manager.request_barriers()
        waits = SlotBarriers(touched, done)
        if touched:
            for slot in list(touched):
                settled = partial(waits.one, slot)
                held = self._held.get(slot)
                if held is None:
                    self._store.barrier(slot, settled)
                else:
                    held.append(_HeldMessage(None, "", 0.0, settled))
        else:
            done(True)
        self._host.flush_soon()
        return waits

    # --- what is held -------------------------------------------------------------------------------------------------

    def _hold(self, message: SlotMessage, epoch: int, sender: str, closed: set[int], touched: dict[int, None]) -> None:
        for slot in message.slots:
            if slot in closed:
                state = self._manager.slots.get(slot)
                if state is not None and state.gained_at <= epoch:
                    held = self._held.setdefault(slot, deque())
                    held.append(_HeldMessage(message, sender, self._router.host.now_s, None))
                    touched[slot] = None

    def advance(self) -> None:
        """Deliver the held messages of slots that can take messages again."""
        if not self._held:
            return
        self._manager.now()
        for slot in [slot for slot in self._held if self._manager.has_loaded(slot)]:
            self._advance(slot)
        self._settle_qos0()
        self._manager.request_barriers()
        self._host.flush_soon()

    def _advance(self, slot: int) -> None:
        held = self._held[slot]
        while held and not self._store.is_full(slot):
            item = held.popleft()
            if item.done is not None:
                self._manager.request_barriers()
                self._store.barrier(slot, item.done)
            elif item.message is not None and item.sender in self._host.members():
                self._deliver_held(slot, item, item.message)
        if not held:
            self._held.pop(slot, None)

    def _deliver_held(self, slot: int, item: _HeldMessage, message: SlotMessage) -> None:
        waited_s = int(self._router.host.now_s - item.since_s)
        try:
            message = message.aged(waited_s) if waited_s > 0 else message
            if message.version & SHARED:
                self._deal(message, _ALWAYS, set(), {})
            else:
                self._deliver_one(message, _ALWAYS, set(), {}, slot)
        except PacketError as error:
            log.error("%s sent a message that can't be delivered: %s", item.sender, error)

    def let_go(self, slot: int) -> None:
        """Another core owns the slot now; the senders send the held messages there."""
        for item in self._held.pop(slot, ()):
            if item.done is not None:
                item.done(False)

    # --- one message --------------------------------------------------------------------------------------------------

    def _deliver_one(
        self, message: SlotMessage, epoch: int, closed: set[int], touched: dict[int, None], only: int = -1
    ) -> None:
        """Deliver at all slots that aren't closed, or only at slot `only`."""
        publish = message.publish()
        is_new: dict[int, bool] = {}
        for subscription in self._router.route(publish.topic).fanout.deliveries:
            session = subscription.session
            assert isinstance(session, DurableSession)
            slot = session.writer.slot
            state = self._manager.slots.get(slot)
            if state is None or state.gained_at > epoch or slot in closed or (only >= 0 and slot != only):
                continue
            if slot not in is_new:
                is_new[slot] = state.marks.is_new(message.source, message.number)
                if is_new[slot]:
                    self._store.begin_message(slot)
            if is_new[slot] and subscription.qos:
                # A publisher with MQTT 3.1.1 isn't told of a refusal while Redis is short of memory.
                if publish.version < 5 and session.meta.left_ms != 0 and self._store.is_short(slot):
                    self._router.counters.dropped_queue_full += 1
                else:
                    self._give(subscription, publish)
            elif is_new[slot]:
                self._unsettled.setdefault(slot, []).append((subscription, publish))
        for slot, new in is_new.items():
            touched[slot] = None
            if new:
                self._mark(slot, message)

    def _give(self, subscription: Subscription, publish: Publish) -> None:
        try:
            self._router.delivery.deliver_to(subscription, publish, None)
        except Exception:  # One failing delivery must not stop the others.
            log.exception("a message to %r could not be delivered to %r", publish.topic, subscription.session.client_id)

    def _settle_qos0(self) -> None:
        """Send QoS 0 copies after the message's sequence number is committed. Otherwise the slot's next owner would
        send them again.
        """
        unsettled, self._unsettled = self._unsettled, {}
        for slot, copies in unsettled.items():
            self._manager.settle(slot, partial(self._give_qos0, copies))

    def _give_qos0(self, copies: list[tuple[Subscription, Publish]]) -> None:
        self._manager.now()
        for subscription, publish in copies:
            session = subscription.session
            assert isinstance(session, DurableSession)
            if not session.has_ended():
                self._give(subscription, publish)
        self._host.flush_soon()

    def _deal(self, message: SlotMessage, epoch: int, closed: set[int], touched: dict[int, None]) -> None:
        """Give the message to one member of a shared subscription in one slot."""
        slot, chunk = addressed(message.packet)
        state = self._manager.slots.get(slot)
        if state is None or state.gained_at > epoch or slot in closed:
            return
        touched[slot] = None
        if state.marks.is_new(message.source, message.number):
            left: list[SharedItem] = []
            version = message.version & ~SHARED
            self._store.begin_message(slot)
            try:
                left = self._router.deal(slot, version, chunk)
            except PacketError:
                raise
            except Exception:  # One failing delivery must not stop the other messages.
                log.exception("a shared delivery could not be delivered to a member in slot %d", slot)
            self._mark(slot, message)
            # Only after the sequence number is committed; otherwise the slot's next owner would deliver them too.
            if left:
                self._manager.settle(slot, partial(self._pass_on, slot, version, left))

    def _pass_on(self, slot: int, version: int, items: list[SharedItem]) -> None:
        try:
            self._router.pass_on(slot, version, items)
        except PacketError as error:
            log.error("a shared delivery for slot %d can't be passed on: %s", slot, error)
        self._host.flush_soon()

    def _mark(self, slot: int, message: SlotMessage) -> None:
        fell_out = self._manager.slots[slot].marks.set(message.source, message.number)
        self._store.mark(slot, message.source, number_bytes(message.number))
        if fell_out:
            self._store.mark(slot, fell_out, None)

    def take_runs(self, messages: Sequence[SlotMessage]) -> None:
        """Deliver runs of QoS 0 packets."""
        self._manager.now()
        for message in messages:
            try:
                if message.version & SHARED:
                    slot, chunk = addressed(message.packet)
                    version = message.version & ~SHARED
                    self._router.pass_on(slot, version, self._router.deal(slot, version, chunk))
                else:
                    take_run(self._router, message.version, message.packet, message.publisher)
            except PacketError as error:
                log.error("a run of QoS 0 can't be delivered: %s", error)
        self._host.flush_soon()
