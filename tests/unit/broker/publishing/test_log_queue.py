"""Messages for the log: many in one write, users in turn, each user's in order, and answered in slices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from flockmq.bounds import LOGGED_TOGETHER_MAX, SLOT_WORK_MAX_S
from flockmq.clock import SYSTEM, Clock
from flockmq.mqtt.reason import Reason
from flockmq.publishing import log_queue
from flockmq.publishing.log_queue import OVER_QUOTA, LogQueue, QueuedRow
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import PUT, Op, StreamId
from flockmq.rlog.errors import LogFull
from flockmq.rlog.schema import MESSAGES
from flockmq.rlog.write_reasons import WriteReasons

PATIENCE_S = 10


class Written:
    """A queue over a log that answers when it is told to. A message is (user, number)."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = 0.0
        """What each answer takes."""
        self.iteration = 0
        self.writes: list[tuple[Sequence[Op], asyncio.Future[StreamId]]] = []
        self.log: list[bytes] = []
        self.done: list[tuple[bytes, int]] = []
        self.reasons: dict[tuple[bytes, int], int] = {}
        self.iterations: list[int] = []
        self.submitted = asyncio.Event()
        self.is_full = False
        self.fits = LOGGED_TOGETHER_MAX
        """How many rows a write may have."""
        self.may: dict[bytes, bool | None] = {}
        self.granted = 0
        self.instead: Op | None = None
        self.routes_seen = 0
        self.tasks: set[asyncio.Future[None]] = set()
        self.queue = LogQueue[tuple[bytes, int]](
            self.row,
            self.answered,
            self.submit,
            self,
            WriteReasons(SYSTEM).of,
            self.see_routes,
            lambda work: self.tasks.add(asyncio.ensure_future(work)),
            Clock(lambda: self.now_s, lambda: self.now_s),
        )

    def put(self, user: bytes, *numbers: int) -> None:
        for number in numbers:
            self.queue.put(user, (user, number), 10)

    def row(self, message: tuple[bytes, int]) -> QueuedRow | int:
        user, number = message
        if number < 0:
            raise ValueError
        return QueuedRow((MESSAGES.number, PUT, "", b"%b/%d" % message, b""), user, 1, self.instead, sees_routes=True)

    def answered(self, message: tuple[bytes, int], reason: int) -> None:
        self.now_s += self.step_s
        self.done.append(message)
        self.reasons[message] = reason
        self.iterations.append(self.iteration)

    def submit(self, ops: Sequence[Op]) -> asyncio.Future[StreamId]:
        written: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        if len(ops) > self.fits or (self.is_full and any(op[1] == PUT for op in ops)):
            written.set_exception(LogFull("no room"))
        else:
            self.writes.append((ops, written))
            self.submitted.set()
        return written

    def whose(self, user: bytes | None) -> bytes | None:
        return user

    def grant(self, user: bytes, more_bytes: int) -> bool | None:
        may = self.may.get(user, True)
        self.granted += may is True
        return may

    def confirmed(self, user: bytes, more_bytes: int) -> None:
        self.granted -= 1

    async def see_routes(self) -> None:
        self.routes_seen += 1

    async def asked(self) -> list[bytes]:
        """What the next write has."""
        async with asyncio.timeout(PATIENCE_S):
            await self.submitted.wait()
        return [op[3] for op in self.writes[0][0]]

    async def answer(self, error: Exception | None = None) -> list[bytes]:
        keys = await self.asked()
        _, written = self.writes.pop(0)
        if not self.writes:
            self.submitted.clear()
        if error is None:
            self.log += keys
            written.set_result(StreamId(1, 1))
        else:
            written.set_exception(error)
        return keys

    async def is_answered(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.done) < count:
                self.iteration += 1
                await asyncio.sleep(0)


@pytest.fixture
async def written() -> Written:
    return Written()


async def test_what_comes_together_is_one_write_and_no_task_each(written: Written) -> None:
    written.put(b"u", *range(100))
    assert len(await written.asked()) == 100
    assert not written.done, "acknowledgements wait for the commit"
    await written.answer()
    await written.is_answered(100)
    assert set(written.reasons.values()) == {Reason.SUCCESS}
    assert written.done == [(b"u", number) for number in range(100)]
    assert (written.routes_seen, len(written.tasks)) == (1, 2)
    assert (written.queue.waiting_bytes, written.granted) == (0, 0)


async def test_users_take_turns_and_each_ones_keep_their_order(written: Written) -> None:
    written.put(b"many", *range(10 * LOGGED_TOGETHER_MAX))
    await written.asked()
    written.put(b"one", 1, 2)
    await written.answer()
    assert {b"one/1", b"one/2"} <= set(await written.answer())
    while len(written.log) < 10 * LOGGED_TOGETHER_MAX + 2:
        assert len(await written.answer()) <= LOGGED_TOGETHER_MAX
    await written.is_answered(10 * LOGGED_TOGETHER_MAX + 2)
    many = [key for key in written.log if key.startswith(b"many")]
    assert many == [b"many/%d" % number for number in range(10 * LOGGED_TOGETHER_MAX)]


async def test_an_iteration_answers_as_many_as_a_slice_has_room_for(written: Written) -> None:
    written.step_s = SLOT_WORK_MAX_S / 2
    written.put(b"u", *range(100))
    await written.answer()
    await written.is_answered(100)
    assert max(Counter(written.iterations).values()) <= 3


async def test_a_write_that_the_log_holds_up_does_not_hold_up_the_next_ones(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is refused in its time."""
    monkeypatch.setattr(log_queue, "LOGGED_WAIT_S", 0.001)
    written.put(b"u", *range(3 * LOGGED_TOGETHER_MAX))
    async with asyncio.timeout(PATIENCE_S):
        while len(written.writes) < 3:  # noqa: ASYNC110 - nothing tells how many there are
            await asyncio.sleep(0.001)
    await written.answer()
    await written.answer(StorageUnavailable("Redis is away"))
    await written.is_answered(2 * LOGGED_TOGETHER_MAX)
    assert len(written.writes) == 1
    assert Counter(written.reasons.values()) == {
        Reason.SUCCESS: LOGGED_TOGETHER_MAX,
        Reason.UNSPECIFIED_ERROR: LOGGED_TOGETHER_MAX,
    }


async def test_a_user_over_its_quota_is_refused_and_one_who_must_wait_delays_nobody(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_queue, "LOGGED_WAIT_S", 0.001)
    written.may = {b"over": False, b"waits": None}
    written.put(b"over", 1)
    written.put(b"waits", 1, 2)
    written.put(b"one", 1)
    assert await written.answer() == [b"one/1"]
    await written.is_answered(2)
    assert written.reasons == {(b"over", 1): OVER_QUOTA, (b"one", 1): Reason.SUCCESS}
    written.put(b"waits", 3)
    written.may[b"waits"] = True
    assert await written.answer() == [b"waits/1", b"waits/2", b"waits/3"]
    await written.is_answered(5)
    assert written.granted == 0


async def test_where_a_full_table_refuses_them_together_each_is_tried(written: Written) -> None:
    delete = MESSAGES.delete(b"t")
    written.instead, written.is_full = delete, True
    written.put(b"u", 1, 2)
    assert await written.answer() == [delete[3]]
    assert await written.answer() == [delete[3]]
    await written.is_answered(2)
    assert set(written.reasons.values()) == {Reason.SUCCESS}
    written.instead = None
    written.put(b"u", 3, 4)
    await written.is_answered(4)
    assert written.reasons[b"u", 3] == written.reasons[b"u", 4] == Reason.QUOTA_EXCEEDED


async def test_what_did_not_fit_together_is_written_before_what_came_later(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the log takes for the first of them."""
    monkeypatch.setattr(log_queue, "LOGGED_WAIT_S", 0.001)
    written.fits = 1
    written.put(b"u", 1, 2)
    await written.asked()
    written.put(b"u", 3)
    async with asyncio.timeout(PATIENCE_S):
        while len(written.writes) < 3:  # noqa: ASYNC110 - nothing tells how many there are
            await asyncio.sleep(0.001)
    for _ in range(3):
        await written.answer()
    await written.is_answered(3)
    assert written.log == [b"u/1", b"u/2", b"u/3"]


async def test_a_defect_in_one_message_leaves_the_others(written: Written) -> None:
    written.put(b"u", 1, -1, 2)
    assert await written.answer() == [b"u/1", b"u/2"]
    await written.is_answered(3)
    assert written.reasons[b"u", -1] == Reason.UNSPECIFIED_ERROR


async def test_what_waits_is_bounded_and_one_user_has_half_of_it(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_queue, "LOGGED_OF_USER_WAITING_MAX_BYTES", 1000)
    written.put(b"many", *range(10))
    written.put(b"one", 1)
    await written.answer()
    await written.is_answered(11)
    assert written.reasons[b"many", 9] == Reason.QUOTA_EXCEEDED
    assert written.reasons[b"one", 1] == Reason.SUCCESS
