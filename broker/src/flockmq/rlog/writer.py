"""This node's writes to one shard: they are numbered, sent to a core in order, and kept until its tables have them.

All writes of one event-loop iteration become one transaction. Only one append is under way at a time; later
transactions go with the next one. A transaction is done when this node's tables have applied its number, which the log
itself shows. So it doesn't matter if the answer of an append is lost. Exception: if Redis' replicas must confirm writes
too, only the answer shows that. If a core is lost or refuses for now, the next core gets the same numbers.

After LOG_WRITE_DEADLINE_S the caller gets an error. If the write surely never reached Redis, an empty transaction
replaces it. If it may have reached Redis, it can't be withdrawn. In shards of `FAIL_WITHOUT_EFFECT` the caller then
waits until the log shows the result, even if the incarnation is purged or this node has another one by now: a core may
still send it, also in the next generation of the log. The result is certain when the log has the purge, or goes on
without the incarnation. So a write that failed there never has an effect.

Transactions that are done are kept until a majority of the cores has them. If Redis loses them before, the tables
continue from an earlier number, and the writer writes them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from flockmq import bounds, tasks
from flockmq.logs import Retrying
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.rlog.change import Change, Puts
from flockmq.rlog.entry import START, StreamId, encode_transaction
from flockmq.rlog.errors import LogFull, LogGap, LogRefused, LogStopping, LogUntried
from flockmq.rlog.ports import CorePort
from flockmq.rlog.schema import FAIL_WITHOUT_EFFECT

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Transaction:
    number: int
    data: bytes
    waiting: list[asyncio.Future[StreamId]]
    puts: Puts
    deadline: asyncio.TimerHandle | None = field(default=None)
    is_late: bool = False
    """Its deadline has passed: withdraw it as soon as that is possible."""
    stream_id: StreamId = START
    """The log position at which this node's tables have it."""


class Writer:
    """The writes of one incarnation to one shard. `awaits_answer`: a transaction is done only when a core confirmed
    it."""

    def __init__(self, shard: str, incarnation: str, port: CorePort, *, awaits_answer: bool = False) -> None:
        self.shard = shard
        self.incarnation = incarnation
        self.pending_bytes = 0
        self.pending = Puts()
        """Rows that this node's tables don't have yet."""
        self.rewritten = 0
        """Transactions that Redis had lost and that were written again."""
        self._port = port
        self._awaits_answer = awaits_answer
        self._applied = (0, START)
        self._kept: deque[_Transaction] = deque()
        self._kept_bytes = 0
        self._losses = 0
        self._gathered = Change()
        self._gathered_waiting: list[asyncio.Future[StreamId]] = []
        self._pending: deque[_Transaction] = deque()
        self._next = 1
        self._waiting = Retrying(log, asyncio.get_running_loop().time)
        self._sent = 0  # the highest number that a core has committed
        self._reached = 0  # the highest number that Redis may have been given
        self.refused: StorageError | None = None
        self.registered_at = START
        """The log position of its registration."""
        self._is_final = False
        """The log can get nothing more of this incarnation, and this node's tables have all that it got."""
        self._numbered = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register, waiting for a core as long as it takes, then send. Raises LogRefused."""
        retry_s = bounds.LOG_RETRY_MIN_S
        while True:
            try:
                self.registered_at = await self._port.register(self.shard, self.incarnation)
                self._waiting.worked()
                break
            except StorageUnavailable as error:
                self._waiting.failed("registration in shard %s: %s; trying again", self.shard, error)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
        self._sender = tasks.vital(self._send(), f"rlog-writer-{self.shard}")

    def leave(self) -> None:
        """This node leaves the cluster: failed writes are no longer worth a warning."""
        self._waiting.leave()

    async def retire(self) -> None:
        """Stop sending: this node gets a new incarnation. Writes in shards of `FAIL_WITHOUT_EFFECT` that may have
        reached Redis stay pending until the log shows their result; all others fail."""
        await tasks.end(self._sender)
        self._refuse(LogStopping("this node is stopping"))

    async def stop(self) -> None:
        await self.retire()
        self._end()

    @property
    def is_undecided(self) -> bool:
        """It writes nothing more, and waits for the log to show which of its writes are there."""
        return self.refused is not None and bool(self._pending)

    def submit(self, change: Change) -> asyncio.Future[StreamId]:
        """Write the change as part of this event-loop iteration's transaction; the writer takes it over. The future
        gets the Stream ID at which this node's tables have it, or LogFull, StorageUnavailable, LogRefused."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[StreamId] = loop.create_future()
        gathered = self._gathered
        if self.refused is not None:
            done.set_exception(self.refused)
            return done
        if self.pending_bytes + gathered.bytes + change.bytes > bounds.LOG_PENDING_MAX_BYTES:
            waiting = f"{self.pending_bytes + gathered.bytes} of {bounds.LOG_PENDING_MAX_BYTES} bytes of writes wait"
            done.set_exception(LogFull(f"shard {self.shard}: {waiting} for the log; this one has {change.bytes}"))
            return done
        if not gathered.runs:
            loop.call_soon(self._number)
        elif gathered.bytes + change.bytes > bounds.LOG_TRANSACTION_MAX_BYTES:
            self._number()
            loop.call_soon(self._number)
        self.pending.add(change.puts)
        self._gathered.add(change)
        self._gathered_waiting.append(done)
        return done

    def applied(self, number: int, stream_id: StreamId, is_final: bool = False) -> None:
        """This node's tables have this incarnation's transactions up to `number`. `is_final`: there will be no more."""
        goes_on = stream_id.generation == self._applied[1].generation
        self._is_final = is_final
        if is_final:
            number = max(number, self._applied[0])
        elif number < self._applied[0]:
            self._write_again(number)
        if not is_final and (number < self._applied[0] or not goes_on):
            self._send_again(number)
        self._applied = number, stream_id
        if not self._awaits_answer:
            self._sent = max(self._sent, number)
        self._settle_reached()
        if is_final and self.refused is not None:
            self._end()

    def majority_reached(self, stream_id: StreamId) -> None:
        """A majority of the cores has applied everything up to there."""
        if stream_id.generation > self._applied[1].generation:
            return  # this node's tables must reach that generation first: they show which transactions it has
        kept = self._kept
        while kept and kept[0].stream_id <= stream_id:
            self._kept_bytes -= len(kept.popleft().data)

    def _settle_reached(self) -> None:
        number, stream_id = self._applied
        if self._awaits_answer and not self._is_final:  # the log with the purge has all that came before
            number = min(number, self._sent)
        pending, kept = self._pending, self._kept
        while pending and pending[0].number <= number:
            transaction = pending.popleft()
            transaction.stream_id = stream_id
            self._settle(transaction, stream_id)
            kept.append(transaction)
            self._kept_bytes += len(transaction.data)
        while self._kept_bytes > bounds.LOG_KEPT_MAX_BYTES:
            self._kept_bytes -= len(kept.popleft().data)

    def _write_again(self, number: int) -> None:
        """The log continues without this incarnation's transactions after `number`."""
        kept, again = self._kept, 0
        while kept and kept[-1].number > number:
            transaction = kept.pop()
            transaction.deadline, transaction.waiting = None, []
            self._pending.appendleft(transaction)
            self._kept_bytes -= len(transaction.data)
            self.pending_bytes += len(transaction.data)
            self.pending.add(transaction.puts)
            again += 1
        log.warning("shard %s: writes from number %d on are lost; %d are written again", self.shard, number + 1, again)
        self.rewritten += again

    def _send_again(self, number: int) -> None:
        """The next generation of the log may lack transactions after `number` that a core confirmed. Send them again;
        those that it has are just confirmed again."""
        self._losses += 1
        self._sent = min(self._sent, number)
        self._numbered.set()

    def _number(self) -> None:
        """Make a transaction of the changes of this event-loop iteration."""
        if not self._gathered.runs:
            return
        data = encode_transaction(self.incarnation, self._next, self._gathered.runs)
        transaction = _Transaction(self._next, data, self._gathered_waiting, self._gathered.puts)
        transaction.deadline = asyncio.get_running_loop().call_later(
            bounds.LOG_WRITE_DEADLINE_S, self._deadline_passed, transaction
        )
        self._pending.append(transaction)
        self.pending_bytes += len(data)
        self._next += 1
        self._gathered, self._gathered_waiting = Change(), []
        self._numbered.set()

    async def _send(self) -> None:
        retry_s = bounds.LOG_RETRY_MIN_S
        while True:
            transactions = self._unsent()
            if not transactions:
                self._numbered.clear()
                await self._numbered.wait()
                continue
            last, losses = transactions[-1].number, self._losses
            try:
                await self._append(transactions)
                if losses == self._losses:
                    self._sent = max(self._sent, last)
                    self._settle_reached()
                self._waiting.worked()
                retry_s = bounds.LOG_RETRY_MIN_S
            except LogGap as gap:
                if self._kept and self._kept[0].number <= gap.expected <= self._kept[-1].number:
                    await asyncio.sleep(retry_s)  # this node's tables will lose it, too, and then it is written again
                    retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
                elif not self._rewind(gap.expected):
                    lost = LogRefused(f"the log lost transactions of {self.incarnation}")
                    log.error("shard %s: %s; this node must rejoin", self.shard, lost)
                    self._refuse(lost)
                    return
            except LogRefused as refused:
                log.error("shard %s: %s; this node must rejoin", self.shard, refused)
                self._refuse(refused)
                return
            except StorageError as error:
                self._waiting.failed("write to shard %s: %s; trying again", self.shard, error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)

    async def _append(self, transactions: Sequence[_Transaction]) -> None:
        """Raises StorageError."""
        reached = self._reached
        self._reached = max(reached, transactions[-1].number)
        try:
            data = [transaction.data for transaction in transactions]
            await self._port.append(self.shard, self.incarnation, transactions[0].number, data)
        except (LogUntried, LogGap, LogRefused):
            self._reached = reached
            for transaction in transactions:
                if transaction.is_late and transaction.number > reached:
                    self._withdraw(transaction)
            raise

    def _unsent(self) -> list[_Transaction]:
        """The transactions of the next append."""
        pending = self._pending
        if not pending:
            return []
        begin = max(0, self._sent + 1 - pending[0].number)
        chosen: list[_Transaction] = []
        size = 0
        for transaction in islice(pending, begin, begin + bounds.LOG_APPEND_MAX_TRANSACTIONS):
            size += len(transaction.data)
            if chosen and size > bounds.LOG_APPEND_MAX_BYTES:
                break
            chosen.append(transaction)
        return chosen

    def _rewind(self, expected: int) -> bool:
        """Send again from the number that the log expects. False: that transaction is not kept any more."""
        if not self._pending or expected < self._pending[0].number or expected > self._pending[-1].number:
            return False
        self._sent = expected - 1
        return True

    def _settle(self, transaction: _Transaction, stream_id: StreamId) -> None:
        self.pending_bytes -= len(transaction.data)
        self.pending.add(transaction.puts, -1)
        if transaction.deadline is not None:
            transaction.deadline.cancel()
        for done in transaction.waiting:
            if not done.done():
                done.set_result(stream_id)

    def _deadline_passed(self, transaction: _Transaction) -> None:
        if self.refused is None and transaction.number > self._reached:
            self._withdraw(transaction)
        elif self.shard in FAIL_WITHOUT_EFFECT:
            transaction.is_late = True
        else:
            self._fail_late(transaction)

    def _withdraw(self, transaction: _Transaction) -> None:
        """Replace it by an empty transaction, because later ones already have later numbers."""
        self.pending_bytes -= len(transaction.data)
        self.pending.add(transaction.puts, -1)
        transaction.data, transaction.puts = encode_transaction(self.incarnation, transaction.number, ()), Puts()
        self.pending_bytes += len(transaction.data)
        self._fail_late(transaction)

    def _fail_late(self, transaction: _Transaction) -> None:
        error = StorageUnavailable(f"shard {self.shard}: not written within {bounds.LOG_WRITE_DEADLINE_S:g} s")
        self._fail(transaction.waiting, error)
        transaction.waiting = []

    def _refuse(self, error: StorageError) -> None:
        """This incarnation writes nothing more. The log decides about transactions that may have reached it."""
        self.refused = error = self.refused or error
        undecided = 0
        if self.shard in FAIL_WITHOUT_EFFECT and not self._is_final:
            undecided = sum(transaction.number <= self._reached for transaction in self._pending)
        self._fail(self._gathered_waiting, error)
        self._kept.clear()
        self._gathered, self._gathered_waiting, self._kept_bytes = Change(), [], 0
        self._drop(undecided, error)

    def _end(self) -> None:
        """Fail all pending transactions: they can't get into the log any more, or this node stops."""
        assert self.refused is not None
        self._drop(0, self.refused)

    def _drop(self, left: int, error: StorageError) -> None:
        """Fail all pending transactions but the first `left` ones."""
        while len(self._pending) > left:
            transaction = self._pending.pop()
            self._fail(transaction.waiting, error)
            if transaction.deadline is not None:
                transaction.deadline.cancel()
        self.pending_bytes, self.pending = 0, Puts()
        for transaction in self._pending:
            self.pending_bytes += len(transaction.data)
            self.pending.add(transaction.puts)

    @staticmethod
    def _fail(waiting: Sequence[asyncio.Future[StreamId]], error: StorageError) -> None:
        for done in waiting:
            if not done.done():
                done.set_exception(error)
