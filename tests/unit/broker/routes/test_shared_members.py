"""Counts of members in the log: written seldom, never forgotten, and picked by once the table has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from flockmq.bounds import SHARED_COUNTS_A_TURN
from flockmq.clock import SYSTEM
from flockmq.mqtt.reason import Reason
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import PUT, Op, StreamId
from flockmq.rlog.schema import SHARES, SharedMembers
from flockmq.rlog.write_reasons import WriteReasons
from flockmq.routes import count_turns, shared_members
from flockmq.routes.count_turns import CountTurns
from flockmq.routes.shared_members import OwnSharedMembers, RemoteSharedMembers
from flockmq.routing.router import Router
from flockmq.routing.sink import SinkHost
from flockmq.routing.targets import NodeTarget
from flockmq.telemetry.counters import Counters

ME = "node@1"
G = b"$share/g/t/#"
H = b"$share/h/t/+"


class Written:
    """This node's counts over a log that answers when it is told to."""

    def __init__(self) -> None:
        self.counts: dict[bytes, tuple[int, int]] = {}
        self.rows: dict[bytes, tuple[int, int]] = {}
        self.waiting: list[tuple[Sequence[Op], asyncio.Future[StreamId]]] = []
        self.answers: list[int] = []
        self.submitted = asyncio.Event()
        self.shares = OwnSharedMembers(
            ME, self._submit, lambda name: self.counts.get(name, (0, 0)), WriteReasons(SYSTEM).of, CountTurns()
        )

    def set(self, name: bytes, *counts: int) -> None:
        self.counts[name] = (counts[0], counts[1])
        self.shares.changed(name)

    async def written(self) -> list[Op]:
        """What is written next."""
        await self.submitted.wait()
        return list(self.waiting[0][0])

    async def answer(self, applied: bool = True) -> None:
        ops, done = self.waiting.pop(0)
        if not self.waiting:
            self.submitted.clear()
        if applied:
            for _, kind, owner, name, value in ops:
                assert owner == ME
                if kind == PUT:
                    row = SHARES.decode(value)
                    self.rows[name] = (row.connected, row.away)
                else:
                    self.rows.pop(name, None)
            done.set_result(StreamId(1, 1))
        else:
            done.set_exception(StorageUnavailable("the log is away"))
        await asyncio.sleep(0)

    def _submit(self, ops: Sequence[Op], user: bytes = b"") -> asyncio.Future[StreamId]:
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        self.waiting.append((ops, done))
        self.submitted.set()
        return done


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.setattr(count_turns, "SHARED_COUNTS_S", 0.001)
    monkeypatch.setattr(shared_members, "SHARED_RETRY_S", 0.001)
    return Written()


async def test_the_first_member_waits_for_the_row(log: Written) -> None:
    log.counts[G] = (1, 0)
    log.shares.put([G], log.answers.append)
    assert not log.shares.has(G)
    await log.answer()
    assert log.shares.has(G)
    assert (log.answers, log.rows) == ([Reason.SUCCESS], {G: (1, 0)})


async def test_many_changes_are_one_write(log: Written) -> None:
    for number in range(1, 100):
        log.set(G, number, 0)
        log.set(H, 1, number)
    assert len(await log.written()) == 2
    await log.answer()
    assert log.rows == {G: (99, 0), H: (1, 99)}
    assert log.waiting == []


async def test_a_change_that_was_undone_is_not_written(log: Written) -> None:
    log.set(G, 1, 0)
    await log.written()
    await log.answer()
    log.set(G, 2, 0)
    log.set(G, 1, 0)
    log.set(H, 1, 0)
    assert [op[3] for op in await log.written()] == [H]


async def test_counts_that_changed_are_written_a_few_at_a_time_users_in_turn(log: Written) -> None:
    for number in range(10 * SHARED_COUNTS_A_TURN):
        log.counts[b"$share/g/%d" % number] = (1, 0)
        log.shares.changed(b"$share/g/%d" % number, b"many")
    log.counts[G] = (1, 0)
    log.shares.changed(G, b"one")
    assert len(await log.written()) == SHARED_COUNTS_A_TURN
    assert G in [op[3] for op in log.waiting[0][0]]
    await asyncio.sleep(0.01)
    assert len(log.waiting) == 1, "the next ones wait for these"
    while len(log.rows) <= 10 * SHARED_COUNTS_A_TURN:
        assert len(await log.written()) <= SHARED_COUNTS_A_TURN
        await log.answer()
    assert log.waiting == []


async def test_a_count_that_changes_while_it_waits_is_one_row(log: Written) -> None:
    for number in range(1, 100):
        log.counts[G] = (number, 0)
        log.shares.changed(G, b"user %d" % (number % 2))
    await log.written()
    await log.answer()
    assert log.rows == {G: (99, 0)}
    await asyncio.sleep(0.01)
    assert log.waiting == []


async def test_the_last_member_takes_the_row_along(log: Written) -> None:
    log.set(G, 1, 0)
    await log.written()
    await log.answer()
    log.set(G, 0, 0)
    await log.written()
    assert not log.shares.has(G), "the row is still there, and about to go"
    log.counts[G] = (1, 0)
    log.shares.put([G], log.answers.append)
    await log.answer()
    assert not log.shares.has(G)
    await log.answer()
    assert log.shares.has(G)
    assert log.rows == {G: (1, 0)}


async def test_a_row_that_goes_while_a_late_count_is_seen_does_not_count_as_there(log: Written) -> None:
    """So a SUBSCRIBE meanwhile waits for the row."""
    log.counts[G] = (1, 0)
    log.shares.put([G], log.answers.append)
    log.set(G, 0, 0)
    await asyncio.sleep(0.01)
    assert len(log.waiting) == 2
    log.shares.mark_unknown(G)
    await log.answer()
    await log.answer()
    assert log.rows == {}
    assert not log.shares.has(G)
    await log.written()
    await log.answer()
    assert not log.shares.has(G)


async def test_a_write_whose_outcome_is_not_known_is_made_again(log: Written) -> None:
    log.counts[G] = (1, 0)
    log.shares.put([G], log.answers.append)
    await log.answer(applied=False)
    assert log.answers == [Reason.UNSPECIFIED_ERROR]
    assert not log.shares.has(G)
    log.set(G, 0, 0)  # what SUBACK refuses is taken back; the row may have been written all the same
    (op,) = await log.written()
    assert op == SHARES.delete((G, ME))
    await log.answer(applied=False)
    assert await log.written() == [op]
    await log.answer()
    assert log.waiting == []


class Cluster:
    """What one node hears of the others."""

    def __init__(self) -> None:
        self.router = Router(SinkHost(Counters()), 1000)
        self.peers = {name: NodeTarget() for name in ("a@1", "b@1")}
        self.router.shared.me = ME
        self.router.shared.find_peer = self.peers.get
        self.shares = RemoteSharedMembers(self.router, ME)
        self.shares.go_live()

    def total(self, topic: bytes) -> list[int]:
        """Members of each group of the topic."""
        return [self.router.shared.number_members(group) for group in self.router.route(topic).fanout.groups]


def test_groups_of_other_nodes_are_matched_and_counted() -> None:
    cluster = Cluster()
    assert cluster.total(b"t/1") == []
    cluster.shares.put((G, "a@1"), SharedMembers(2, 0), None)
    cluster.shares.put((G, "b@1"), SharedMembers(1, 4), None)
    cluster.shares.put((G, ME), SharedMembers(9, 0), None)
    cluster.shares.put((H, "b@1"), SharedMembers(0, 3), None)
    assert cluster.total(b"t/1") == [3, 3]
    assert cluster.router.route(b"t/1").fanout.crosses
    assert cluster.total(b"t/1/2") == [3]
    cluster.shares.put((G, "a@1"), SharedMembers(5, 0), SharedMembers(2, 0))
    cluster.shares.delete((H, "b@1"), SharedMembers(0, 3))
    assert cluster.total(b"t/1") == [6]
    cluster.shares.delete((G, "a@1"), SharedMembers(5, 0))
    cluster.shares.delete((G, "b@1"), SharedMembers(1, 4))
    assert cluster.total(b"t/1") == []
    assert cluster.router.route(b"t/1").fanout.reaches_nobody


def test_a_node_that_was_purged_is_not_picked_though_its_rows_are_still_there() -> None:
    cluster = Cluster()
    cluster.shares.put((G, "a@1"), SharedMembers(2, 0), None)
    cluster.shares.put((G, "b@1"), SharedMembers(1, 0), None)
    assert cluster.total(b"t/1") == [3]
    del cluster.peers["a@1"]
    cluster.router.shared.others_changed()
    assert cluster.total(b"t/1") == [1]


def test_a_bootstrap_replaces_them_all() -> None:
    cluster = Cluster()
    cluster.shares.put((G, "a@1"), SharedMembers(2, 0), None)
    fresh = cluster.shares.fresh()
    fresh.put((H, "b@1"), SharedMembers(7, 0), None)
    assert cluster.total(b"t/1") == [2], "the fresh ones are nobody's yet"
    cluster.shares.swap(fresh)
    assert cluster.total(b"t/1") == [7]
    cluster.shares.delete((H, "b@1"), SharedMembers(7, 0))
    assert cluster.total(b"t/1") == []


def test_members_in_slots_are_counted_and_told() -> None:
    cluster = Cluster()
    told: list[tuple[int, bytes]] = []
    shares = RemoteSharedMembers(cluster.router, ME, lambda *where: told.append(where))
    shares.go_live()
    shares.put((G, "a@1"), SharedMembers(2, 0), None)
    shares.put((G, "#7"), SharedMembers(3, 1), None)
    cluster.peers["#7"] = NodeTarget()
    assert cluster.total(b"t/1") == [5]
    assert (told, shares.count(G, "#7")) == ([(7, G)], (3, 1))
    shares.delete((G, "#7"), SharedMembers(3, 1))
    assert (told, shares.count(G, "#7")) == ([(7, G)] * 2, (0, 0))
    assert cluster.total(b"t/1") == [2]
