"""Messages from other nodes for the sessions that run here, until they are committed. No I/O: answers go when `soon`
runs.

Invariants, for each sender:

- Its batches are taken in the order of their numbers, each once. A repeat, on any link, is only acknowledged again.
- A batch is taken when this node has reached the batch's log position, no slot is being loaded, and the sender is a
  member. Messages of a purged node don't count any more, because its sequence numbers may be deleted. A batch whose
  messages name their slots needn't wait for loading: the sessions hold messages for slots that can't take them yet.
- The time that a batch waited counts for the expiry of its messages [MQTT-3.3.2-6].
- `back` is called at most once per event-loop iteration, with the number up to which all batches are committed, and the
  view at that moment. If a batch isn't committed after TAKEN_APART_AFTER_S, its slots are blocked, and later batches
  are acknowledged except for these slots.
- If a slot is lost before a batch for it is committed, the batch isn't accepted. It and all later ones are taken again,
  after the sessions have handled the loss. So are those of a sender that was no member for a moment.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from flockmq import bounds
from flockmq.delivery.slot_acceptance import SlotBarriers
from flockmq.routing.slots import SlotMessage

log: Final = logging.getLogger(__name__)

Blocked = dict[int, int]
"""Slot → the first batch that isn't committed there."""
Back = Callable[[int, int, Blocked], None]
"""(number, view, blocked): all batches up to `number` are committed, for all slots that this core has owned since epoch
`view`, except for blocked ones."""


class ReceivingSessions(Protocol):
    """The sessions that run here."""

    def epoch(self) -> int:
        """The position of the cluster log up to which they know the owners of slots."""
        ...

    def view(self) -> int:
        """The log position at which their slots last changed; not below that at which any of the slots was gained."""
        ...

    def is_loading(self) -> bool:
        """Some slot can't take messages yet."""
        ...

    def is_changing(self) -> bool:
        """Slots were lost, which isn't in the view yet."""
        ...

    def take(
        self, messages: Sequence[SlotMessage], epoch: int, sender: str, done: Callable[[bool], None]
    ) -> SlotBarriers | None:
        """Deliver the messages to the sessions of slots that were gained at `epoch` or before, except for repeats.
        `done` is called once, perhaps at once: True: all is committed, repeats too; False: some slot was lost before.
        Returns the barriers that it waits for."""
        ...

    def advance(self) -> None:
        """Deliver held messages to slots that can take them now."""
        ...

    @property
    def is_holding(self) -> bool: ...

    def take_runs(self, messages: Sequence[SlotMessage]) -> None:
        """Deliver runs of QoS 0 packets to the sessions."""
        ...


class _Batch:
    __slots__ = ("came_s", "epoch", "is_committed", "messages", "number", "size_bytes", "taken_s", "tries", "waits")

    def __init__(
        self, number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int, came_s: float
    ) -> None:
        self.number = number
        self.epoch = epoch
        self.messages = messages
        self.size_bytes = size_bytes
        self.came_s = came_s
        self.taken_s = 0.0
        self.is_committed = False
        self.tries = 0
        self.waits: SlotBarriers | None = None
        """The barriers that it waits for, since it was taken."""

    def is_addressed(self) -> bool:
        return len(self.messages) > 0 and len(self.messages[0].slots) > 0

    def aged(self, now_s: float) -> Sequence[SlotMessage]:
        """Its messages, with the expiry reduced by the time that they waited."""
        waited_s = int(now_s - self.came_s)
        if waited_s <= 0:
            return self.messages
        return [message.aged(waited_s) for message in self.messages]


class _Sender:
    """`waiting`: batches that aren't taken. `taken`: batches that aren't committed. `answered`: the last
    acknowledgement."""

    __slots__ = ("answered", "back", "first", "is_losing", "last", "name", "size_bytes", "taken", "waiting")

    def __init__(self, name: str, back: Back) -> None:
        self.name = name
        self.back = back
        self.first = self.last = 0
        """Numbers of the first and the last batch that arrived."""
        self.answered: tuple[int, Blocked] = 0, {}
        self.size_bytes = 0
        self.waiting: deque[_Batch] = deque()
        self.taken: deque[_Batch] = deque()
        self.is_losing = False
        """A slot is being lost: take nothing more in this event-loop iteration."""

    def committed(self, now_s: float) -> tuple[int, Blocked]:
        """The number up to which all batches are committed, and the slots for which this isn't so. If the
        number is below `first`, no batch is committed."""
        blocked: Blocked = {}
        for batch in self.taken:
            if batch.is_committed:
                continue
            if batch.waits is None or not batch.is_addressed():
                return batch.number - 1, blocked
            if now_s - batch.taken_s >= bounds.TAKEN_APART_AFTER_S:
                for slot in batch.waits.slots:
                    blocked.setdefault(slot, batch.number)
            elif any(slot not in blocked for slot in batch.waits.slots):
                return batch.number - 1, blocked
        return (self.waiting[0].number - 1 if self.waiting else self.last), blocked


class SlotReceiver:
    """`is_member` tells if an incarnation is a member. `soon` runs a call after this iteration. `now_s` is
    monotonic."""

    def __init__(
        self,
        sessions: ReceivingSessions,
        is_member: Callable[[str], bool],
        soon: Callable[[Callable[[], None]], object],
        now_s: Callable[[], float],
    ) -> None:
        self._sessions = sessions
        self._is_member = is_member
        self._soon = soon
        self._now_s = now_s
        self._senders: dict[str, _Sender] = {}
        self._answering: dict[str, _Sender] = {}

    def received(
        self, sender: str, back: Back, number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int
    ) -> None:
        """A batch, or QoS 0 runs if `number` is 0. From now on `back` is the way to acknowledge to this sender."""
        if number == 0:
            self._take_runs(sender, messages)
            return
        known = self._senders.get(sender)
        if known is None:
            known = self._senders[sender] = _Sender(sender, back)
        known.back = back
        if number <= known.last:
            self._answer_soon(known)
            return
        known.first = known.first or number
        known.last = number
        known.size_bytes += size_bytes
        known.waiting.append(_Batch(number, epoch, messages, size_bytes, self._now_s()))
        self._advance(known)

    def advance(self) -> None:
        """Take batches that waited for the log, for a loss of slots to be handled, or for slots to be loaded.
        Acknowledge others without slots that have been uncommitted for too long."""
        self._sessions.advance()
        now_s = self._now_s()
        for sender in list(self._senders.values()):
            self._advance(sender)
            if sender.taken and sender.committed(now_s) != sender.answered:
                self._answer_soon(sender)

    def suspend(self, incarnation: str) -> None:
        """The node is no member, but its link is up: if it becomes a member again, it sends nothing again. Then take
        what isn't committed again, because sessions drop messages that they hold for a node that is no member."""
        sender = self._senders.get(incarnation)
        if sender is not None and sender.taken:
            self._take_back(sender, sender.taken[0])

    def node_gone(self, incarnation: str) -> None:
        """The node was purged, and sends nothing more here: forget what it sent."""
        self._senders.pop(incarnation, None)
        self._answering.pop(incarnation, None)

    def reset(self) -> None:
        """This node is another incarnation: all senders number from 1 for it."""
        self._senders.clear()
        self._answering.clear()

    @property
    def is_holding(self) -> bool:
        """Some batches wait, or aren't committed yet."""
        return self._sessions.is_holding or any(s.waiting or s.taken for s in self._senders.values())

    @property
    def waiting_bytes(self) -> int:
        """Uncommitted bytes of all senders."""
        return sum(sender.size_bytes for sender in self._senders.values())

    def held_bytes(self, sender: str) -> int:
        """Uncommitted bytes of one sender."""
        known = self._senders.get(sender)
        return 0 if known is None else known.size_bytes

    # --- inside -----------------------------------------------------------------------------------------------------

    def _advance(self, sender: _Sender) -> None:
        sessions = self._sessions
        while sender.waiting and not sender.is_losing:
            batch = sender.waiting[0]
            if batch.epoch > sessions.epoch() or sessions.is_changing() or not self._is_member(sender.name):
                return
            if not batch.is_addressed() and sessions.is_loading():
                return
            sender.taken.append(sender.waiting.popleft())
            batch.tries += 1
            batch.taken_s = now_s = self._now_s()
            done = partial(self._done, sender, batch, batch.tries)
            try:
                batch.waits = sessions.take(batch.aged(now_s), batch.epoch, sender.name, done)
            except Exception:  # accept it all the same: the sender would send it forever
                log.exception("%d messages from %s could not be delivered", len(batch.messages), sender.name)
                done(True)

    def _take_runs(self, sender: str, messages: Sequence[SlotMessage]) -> None:
        try:
            self._sessions.take_runs(messages)
        except Exception:
            log.exception("QoS 0 messages from %s could not be delivered", sender)

    def _done(self, sender: _Sender, batch: _Batch, tries: int, is_committed: bool) -> None:
        if batch.tries != tries or batch.is_committed:
            return  # it was taken again since
        if not is_committed:
            self._take_back(sender, batch)
            return
        batch.is_committed = True
        sender.size_bytes -= batch.size_bytes
        if sender.taken[0] is batch:
            sender.taken.popleft()
        elif sender.taken[-1] is batch:
            sender.taken.pop()
        else:
            sender.taken.remove(batch)
        self._answer_soon(sender)

    def _take_back(self, sender: _Sender, first: _Batch) -> None:
        """A slot was lost, now or before the batch was committed for other slots: from this batch on take all again, in
        order."""
        if not sender.is_losing:
            sender.is_losing = True
            self._soon(partial(self._go_on, sender))
        while True:
            batch = sender.taken.pop()
            batch.tries += 1
            batch.waits = None
            sender.waiting.appendleft(batch)
            if batch is first:
                return

    def _go_on(self, sender: _Sender) -> None:
        sender.is_losing = False
        if self._senders.get(sender.name) is sender:
            self._advance(sender)

    def _answer_soon(self, sender: _Sender) -> None:
        if self._senders.get(sender.name) is not sender:
            return
        if not self._answering:
            self._soon(self._answer)
        self._answering[sender.name] = sender

    def _answer(self) -> None:
        answering, self._answering = self._answering, {}
        now_s = self._now_s()
        for sender in answering.values():
            number, blocked = sender.answered = sender.committed(now_s)
            if number >= sender.first:
                sender.back(number, self._sessions.view(), blocked)
