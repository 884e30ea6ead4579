"""Letters that reach this home: to each session that matches, once (`intake.Residents`).

What always holds: a letter is accepted when it is durable at all slots that it matched here, repeats included; a slot
takes of each source what is above the number that it took last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from flockmq.home.barriers import All
from flockmq.home.holding import Holding
from flockmq.home.marks import number_bytes
from flockmq.home.port import Host
from flockmq.home.store import Store
from flockmq.mqtt.errors import PacketError
from flockmq.session.durable import DurableSession
from flockmq.session.forwarded import take_run
from flockmq.session.homed import message_of
from flockmq.session.letter import Letter
from flockmq.session.shared import SHARED
from flockmq.session.slotted import addressed

log: Final = logging.getLogger(__name__)


class Letters:
    """One per core."""

    def __init__(self, host: Host, holding: Holding, store: Store) -> None:
        self._host = host
        self._holding = holding
        self._store = store
        self._router = holding.router

    def epoch(self) -> int:
        return self._holding.epoch()

    def view(self) -> int:
        return self._holding.view

    def is_loading(self) -> bool:
        """Or so much waits for Redis that letters wait at their senders."""
        return self._holding.is_loading() or self._store.is_full()

    def take(self, letters: Sequence[Letter], epoch: int, sender: str, done: Callable[[bool], None]) -> None:
        """Put each letter to every session that matches, once; `done` when all of them are durable."""
        self._holding.now()
        touched: set[int] = set()
        for letter in letters:
            try:
                if letter.version & SHARED:
                    self._deal(letter, epoch, touched)
                else:
                    self._take_one(letter, epoch, touched)
            except PacketError as error:
                log.error("%s sent a letter that can't be delivered: %s", sender, error)
        self._holding.seal()
        if touched:
            waits = All(len(touched), done)
            for slot in touched:
                self._store.barrier(slot, waits.one)
        else:
            done(True)
        self._host.flush_soon()

    def _take_one(self, letter: Letter, epoch: int, touched: set[int]) -> None:
        message = message_of(letter)
        self._router.counters.messages_arrived += 1
        is_new: dict[int, bool] = {}
        for subscription in self._router.route(message.topic).fanout.deliveries:
            session = subscription.session
            assert isinstance(session, DurableSession)
            slot = session.journal.slot
            state = self._holding.slots.get(slot)
            if state is None or state.gained_at > epoch:
                continue
            if slot not in is_new:
                is_new[slot] = state.marks.is_new(letter.source, letter.number)
            if is_new[slot]:
                try:
                    self._router.give(subscription, message)
                except Exception:  # the other sessions, and the other letters, have no part in it
                    log.exception("a message to %r could not be given to %r", message.topic, session.client_id)
        for slot, new in is_new.items():
            touched.add(slot)
            if new:
                self._mark(slot, letter)

    def _deal(self, letter: Letter, epoch: int, touched: set[int]) -> None:
        """To one member of a shared subscription, of one slot."""
        slot, chunk = addressed(letter.packet)
        state = self._holding.slots.get(slot)
        if state is None or state.gained_at > epoch:
            return
        touched.add(slot)
        if state.marks.is_new(letter.source, letter.number):
            try:
                self._router.deal(slot, letter.version & ~SHARED, chunk)
            except PacketError:
                raise
            except Exception:  # the other letters have no part in it
                log.exception("a shared delivery could not be given to a member in slot %d", slot)
            self._mark(slot, letter)

    def _mark(self, slot: int, letter: Letter) -> None:
        fell_out = self._holding.slots[slot].marks.set(letter.source, letter.number)
        self._store.mark(slot, letter.source, number_bytes(letter.number))
        if fell_out:
            self._store.unmark(slot, fell_out)

    def take_runs(self, letters: Sequence[Letter]) -> None:
        """Of QoS 0."""
        self._holding.now()
        for letter in letters:
            try:
                if letter.version & SHARED:
                    slot, chunk = addressed(letter.packet)
                    self._router.deal(slot, letter.version & ~SHARED, chunk)
                else:
                    take_run(self._router, letter.version, letter.packet, letter.publisher)
            except PacketError as error:
                log.error("a run of QoS 0 can't be delivered: %s", error)
        self._host.flush_soon()
