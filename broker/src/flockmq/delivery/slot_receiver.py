"""What other nodes send to the sessions that run here, until it is committed. Pure: answers go when `soon` says.

What always holds, for each sender:
- Its batches are taken in the order of their numbers, each once. A repeat, on whichever link, is only answered.
- A batch is taken when this node knows the place in the log that the batch names, no slot is being loaded, and the
  sender is a member: what a purged node sent counts no more, for its marks may be gone. A batch whose messages say for
  which slots they are needn't wait for slots: sessions hold what is for those that can't take it.
- The time that a batch waited counts for the expiry of its messages [MQTT-3.3.2-6].
- `back` is told once a turn up to which number all are committed, with the view at that moment. Where one isn't for
  TAKEN_APART_AFTER_S, its slots are stuck, and what came behind it is answered but for them.
- A batch that a slot lost before it was committed isn't accepted. It and all behind it are taken again, once the
  sessions have dealt with the loss.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from flockmq import bounds
from flockmq.delivery.commit_barriers import BySlot
from flockmq.delivery.slot_message import SlotMessage

log: Final = logging.getLogger(__name__)

Stuck = dict[int, int]
"""Slot → the first batch that isn't committed there."""
Back = Callable[[int, int, Stuck], None]
"""(number, view, stuck): all batches up to `number` are committed, for all slots that this core had since `view`, but
for those that are stuck."""


class ReceivingSessions(Protocol):
    """The sessions that run here."""

    def epoch(self) -> int:
        """The place in the cluster's log up to which they know who owns which slot."""
        ...

    def view(self) -> int:
        """The place at which their slots last changed; not below that at which any of them was gained."""
        ...

    def is_loading(self) -> bool:
        """Some slot can't take messages."""
        ...

    def is_changing(self) -> bool:
        """Slots were lost, which isn't in the view yet."""
        ...

    def take(
        self, messages: Sequence[SlotMessage], epoch: int, sender: str, done: Callable[[bool], None]
    ) -> BySlot | None:
        """Put them to the sessions of slots that were gained at `epoch` or before, but for those that a slot's mark
        knows. `done` is called once, perhaps at once: all is committed, repeats too; or False: some slot was lost
        before. Answers what it waits for.
        """
        ...

    def advance(self) -> None:
        """Put what was held to slots that can take it."""
        ...

    @property
    def is_holding(self) -> bool: ...

    def take_runs(self, messages: Sequence[SlotMessage]) -> None:
        """Put runs of QoS 0 packets to the sessions."""
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
        self.waits: BySlot | None = None
        """What for, since it was taken."""

    def is_addressed(self) -> bool:
        return len(self.messages) > 0 and len(self.messages[0].slots) > 0

    def aged(self, now_s: float) -> Sequence[SlotMessage]:
        """Its messages, after they waited."""
        waited_s = int(now_s - self.came_s)
        if waited_s <= 0:
            return self.messages
        return [message.aged(waited_s) for message in self.messages]


class _Sender:
    """`waiting`: not taken; `taken`: not committed. `answered`: what it was told last."""

    __slots__ = ("answered", "back", "first", "is_losing", "last", "name", "size_bytes", "taken", "waiting")

    def __init__(self, name: str, back: Back) -> None:
        self.name = name
        self.back = back
        self.first = self.last = 0
        """Numbers of batches that came."""
        self.answered: tuple[int, Stuck] = 0, {}
        self.size_bytes = 0
        self.waiting: deque[_Batch] = deque()
        self.taken: deque[_Batch] = deque()
        self.is_losing = False
        """A slot is being lost: nothing more is taken in this turn."""

    def committed(self, now_s: float) -> tuple[int, Stuck]:
        """Up to which batch all are committed, but for slots that are stuck. A number below `first`: none is."""
        stuck: Stuck = {}
        for batch in self.taken:
            if batch.is_committed:
                continue
            if batch.waits is None or not batch.is_addressed():
                return batch.number - 1, stuck
            if now_s - batch.taken_s >= bounds.TAKEN_APART_AFTER_S:
                for slot in batch.waits.slots:
                    stuck.setdefault(slot, batch.number)
            elif any(slot not in stuck for slot in batch.waits.slots):
                return batch.number - 1, stuck
        return (self.waiting[0].number - 1 if self.waiting else self.last), stuck


class SlotReceiver:
    """`is_member` knows the incarnations there are; `soon` runs a call after this turn; `now_s` only grows."""

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

    def came(
        self, sender: str, back: Back, number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int
    ) -> None:
        """A batch, or, of number 0, runs of QoS 0 packets. `back` is the way to the sender from now on."""
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
        """Take what waited for the log, for changes of slots to be dealt with, for slots to be loaded; and answer
        without what isn't committed for too long."""
        self._sessions.advance()
        now_s = self._now_s()
        for sender in list(self._senders.values()):
            self._advance(sender)
            if sender.taken and sender.committed(now_s) != sender.answered:
                self._answer_soon(sender)

    def node_gone(self, incarnation: str) -> None:
        """The node was purged: what it sent and isn't taken counts no more."""
        self._senders.pop(incarnation, None)
        self._answering.pop(incarnation, None)

    def begin_anew(self) -> None:
        """This node is another incarnation: to that everybody's numbers start at one."""
        self._senders.clear()
        self._answering.clear()

    @property
    def is_holding(self) -> bool:
        """Something waits that could be taken when the log goes on, or isn't committed yet."""
        return self._sessions.is_holding or any(s.waiting or s.taken for s in self._senders.values())

    @property
    def waiting_bytes(self) -> int:
        """What all senders sent and isn't committed."""
        return sum(sender.size_bytes for sender in self._senders.values())

    def held_bytes(self, sender: str) -> int:
        """What one sender sent and isn't committed."""
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
            except Exception:  # it would come again and again if it weren't accepted
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
        """A slot was lost, now or before other slots of the batch were committed: from this batch on all are to be
        taken again, in order."""
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
            number, stuck = sender.answered = sender.committed(now_s)
            if number >= sender.first:
                sender.back(number, self._sessions.view(), stuck)
