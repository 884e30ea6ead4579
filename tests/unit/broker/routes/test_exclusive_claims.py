"""One client has an exclusive filter, whatever the order in which nodes hear of each other's claims."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.clock import SYSTEM
from flockmq.mqtt.reason import Reason
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import DELETE, PUT, Op, StreamId
from flockmq.rlog.write_reasons import WriteReasons
from flockmq.routes.exclusive_claims import ExclusiveClaims
from unit.broker.routes.redis import secured

T = b"t"


class Node:
    """Reads the log at its own pace; `answers` are what its claims came to, by client, `using` who uses the filter,
    `here` whose sessions are here."""

    def __init__(self, log: Log, name: str) -> None:
        self.log = log
        self.name = name
        self.read = 0
        self.using: set[bytes] = set()
        self.here: set[bytes] = set()
        in_use, is_here = self._is_using, self.here.__contains__
        self.exclusive = ExclusiveClaims(name, self._submit, secured, WriteReasons(SYSTEM).of, in_use, is_here)
        self.waiting: list[tuple[int, asyncio.Future[StreamId]]] = []
        self.answers: dict[bytes, int] = {}

    def claim(self, client_id: bytes) -> None:
        self.exclusive.claim(T, client_id, lambda reason: self.answers.__setitem__(client_id, reason))

    def _is_using(self, client_id: bytes, filter: bytes) -> bool:
        return client_id in self.using

    async def step(self) -> None:
        """Apply the next entry."""
        if self.read < len(self.log.entries):
            for _, kind, owner, filter, value in self.log.entries[self.read]:
                if kind == PUT:
                    self.exclusive.claims.put((filter, owner), value, None)
                else:
                    self.exclusive.claims.delete((filter, owner), value)
            self.read += 1
            while self.waiting and self.waiting[0][0] <= self.read:
                self.waiting.pop(0)[1].set_result(StreamId(1, self.read))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def catch_up(self) -> None:
        while self.read < len(self.log.entries):
            await self.step()

    def _submit(self, ops: Sequence[Op], user: bytes = b"") -> asyncio.Future[StreamId]:
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        if self.log.away:
            done.set_exception(StorageUnavailable("the log is away"))
        else:
            self.log.entries.append(ops)
            self.waiting.append((len(self.log.entries), done))
        return done


class Log:
    def __init__(self, nodes: int = 2) -> None:
        self.entries: list[Sequence[Op]] = []
        self.away = False
        self.nodes = [Node(self, f"n{number}@0") for number in range(nodes)]

    async def settle(self) -> None:
        """Everybody has read everything, and what follows from it."""
        while any(node.read < len(self.entries) for node in self.nodes):
            for node in self.nodes:
                await node.catch_up()


async def test_the_first_in_the_log_has_it_however_the_nodes_read() -> None:
    log = Log(3)
    for node in log.nodes:
        node.claim(node.name.encode())
    for node in reversed(log.nodes):
        await node.catch_up()
    answers = [node.answers[node.name.encode()] for node in log.nodes]
    assert answers == [Reason.SUCCESS, Reason.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED]
    await log.settle()
    log.nodes[1].claim(b"later")
    assert log.nodes[1].answers[b"later"] == Reason.QUOTA_EXCEEDED, "known without asking the log"
    log.nodes[0].exclusive.release(T)
    await log.settle()
    log.nodes[1].claim(b"later")
    await log.settle()
    assert log.nodes[1].answers[b"later"] == Reason.SUCCESS
    assert [len(node.exclusive) for node in log.nodes] == [0, 1, 0]


async def test_the_same_client_keeps_it_when_it_asks_again_or_moves() -> None:
    log = Log()
    here, there = log.nodes
    for node in (here, here, there):
        node.answers.clear()
        node.claim(b"c")
        await log.settle()
        assert node.answers == {b"c": Reason.SUCCESS}
    here.exclusive.release(T)
    await log.settle()
    here.claim(b"other")
    assert here.answers[b"other"] == Reason.QUOTA_EXCEEDED


async def test_what_nobody_uses_is_given_back_when_it_was_seen_twice() -> None:
    log = Log()
    here, there = log.nodes
    here.claim(b"c")
    await log.settle()
    await here.exclusive.look()
    here.using.add(b"c")
    await here.exclusive.look()
    here.using.clear()
    await here.exclusive.look()
    there.claim(b"d")
    assert there.answers.pop(b"d") == Reason.QUOTA_EXCEEDED, "nobody else may have it in between"
    there.claim(b"c")
    await log.settle()
    await here.exclusive.look()
    await log.settle()
    assert [len(node.exclusive) for node in log.nodes] == [0, 1]
    there.exclusive.release(T)
    await log.settle()
    here.claim(b"d")
    await log.settle()
    assert here.answers[b"d"] == Reason.SUCCESS


async def test_what_a_session_left_behind_is_given_back_when_it_is_claimed_where_the_session_went_on() -> None:
    log = Log(3)
    here, there, third = log.nodes
    here.claim(b"c")
    await log.settle()
    there.claim(b"c")
    await log.settle()
    third.claim(b"d")
    assert third.answers.pop(b"d") == Reason.QUOTA_EXCEEDED
    there.exclusive.release(T)
    await log.settle()
    third.claim(b"d")
    await log.settle()
    assert third.answers[b"d"] == Reason.SUCCESS


@pytest.mark.parametrize("ends", ["session is here", "claim is taken back"])
async def test_who_has_no_claim_elsewhere_or_is_here_keeps_it(ends: str) -> None:
    log = Log()
    here, there = log.nodes
    here.claim(b"c")
    await log.settle()
    there.claim(b"c")
    await there.catch_up()
    if ends == "session is here":
        here.here.add(b"c")
    else:
        there.exclusive.release(T)
        here.exclusive.claims.put((T, there.name), b"c", None)
        here.exclusive.claims.delete((T, there.name), b"c")
        here.read = len(log.entries)
    await log.settle()
    assert len(here.exclusive) == 1


async def test_what_is_asked_for_is_not_unused() -> None:
    log = Log(1)
    (node,) = log.nodes
    node.claim(b"c")
    for _ in range(3):
        await node.exclusive.look()
    await log.settle()
    assert node.answers == {b"c": Reason.SUCCESS}


async def test_who_was_refused_takes_nothing_from_who_has_it() -> None:
    log = Log()
    here, there = log.nodes
    here.claim(b"c")
    here.using.add(b"c")
    await log.settle()
    here.exclusive.release(T)
    await log.settle()
    there.claim(b"d")
    assert there.answers[b"d"] == Reason.QUOTA_EXCEEDED


async def test_a_claim_that_came_to_nothing_is_given_back_though_a_session_came_with_the_filter() -> None:
    log = Log(3)
    here, there, third = log.nodes
    there.claim(b"d")
    here.using.add(b"c")
    here.claim(b"c")
    await log.settle()
    assert here.answers[b"c"] == Reason.QUOTA_EXCEEDED
    there.exclusive.release(T)
    await log.settle()
    third.claim(b"e")
    await log.settle()
    assert third.answers[b"e"] == Reason.SUCCESS


async def test_another_client_of_the_node_is_refused_while_the_log_is_asked() -> None:
    log = Log(1)
    (node,) = log.nodes
    node.claim(b"c")
    node.claim(b"other")
    assert node.answers == {b"other": Reason.QUOTA_EXCEEDED}
    await log.settle()
    assert node.answers[b"c"] == Reason.SUCCESS


async def test_a_client_that_asks_again_while_the_log_is_asked_gets_the_same_answer() -> None:
    log = Log(1)
    (node,) = log.nodes
    answers: list[int] = []
    for _ in range(2):
        node.exclusive.claim(T, b"c", answers.append)
    assert answers == []
    await log.settle()
    assert answers == [Reason.SUCCESS] * 2
    assert len(log.entries) == 1


async def test_what_a_session_that_ends_asked_for_is_not_taken_from_the_next_one_of_its_client() -> None:
    """The former has no use for it when it is granted; the later one does."""
    log = Log(1)
    (node,) = log.nodes
    node.exclusive.claim(T, b"c", lambda reason: node.exclusive.release(T))
    node.exclusive.claim(T, b"c", lambda reason: node.using.add(b"c"))
    await log.settle()
    assert (len(node.exclusive), len(log.entries)) == (1, 1)


async def test_a_claim_that_was_on_its_way_when_the_node_was_purged_is_granted_to_nobody() -> None:
    log = Log()
    here, there = log.nodes
    here.claim(b"c")
    assert here.exclusive.rename("n0@1") == []
    await log.settle()
    assert here.answers == {b"c": Reason.UNSPECIFIED_ERROR}
    here.exclusive.claims.delete((T, "n0@0"), b"c")  # the purge
    there.exclusive.claims.delete((T, "n0@0"), b"c")
    there.claim(b"d")
    await log.settle()
    assert there.answers == {b"d": Reason.SUCCESS}


async def test_a_log_that_is_away_grants_nothing_and_is_told_again_what_was_given_back() -> None:
    log = Log()
    here, there = log.nodes
    here.claim(b"c")
    await log.settle()
    log.away = True
    there.claim(b"d")
    here.exclusive.release(T)
    await asyncio.sleep(0)
    log.away = False
    await log.settle()
    there.claim(b"d")
    assert there.answers[b"d"] == Reason.QUOTA_EXCEEDED, "the row is still there"
    here.exclusive.release_again()
    await log.settle()
    there.claim(b"d")
    await log.settle()
    assert there.answers[b"d"] == Reason.SUCCESS


async def test_a_claim_that_nobody_saw_come_is_refused_if_there_is_another() -> None:
    """The tables were replaced as a whole meanwhile: who was first can't be said any more."""
    log = Log()
    here, there = log.nodes
    here.claim(b"c")
    there.claim(b"d")
    fresh = there.exclusive.claims.fresh()
    fresh.put((T, here.name), b"c", None)
    fresh.put((T, there.name), b"d", None)
    there.exclusive.claims.swap(fresh)
    there.waiting.pop(0)[1].set_result(StreamId(1, 2))
    there.read = 2
    await asyncio.sleep(0)
    assert there.answers == {b"d": Reason.QUOTA_EXCEEDED}


STEPS = st.lists(
    st.tuples(st.sampled_from(["claim", "release", "read", "read", "read"]), st.integers(0, 2), st.integers(0, 1)),
    max_size=60,
)


@settings(max_examples=300)
@given(STEPS)
def test_never_two_at_once(steps: list[tuple[str, int, int]]) -> None:
    async def play() -> None:
        log = Log(3)
        has: set[bytes] = set()
        for step, number, client in steps:
            node = log.nodes[number]
            client_id = b"%d-%d" % (number, client)
            if step == "claim" and client_id not in has:
                node.answers.pop(client_id, None)
                node.claim(client_id)
            elif step == "release" and client_id in has:
                has.discard(client_id)
                node.answers.pop(client_id)
                node.exclusive.release(T)
            else:
                await node.step()
            has = {who for one in log.nodes for who, reason in one.answers.items() if reason == Reason.SUCCESS}
            assert len(has) <= 1
        await log.settle()
        has = {who for one in log.nodes for who, reason in one.answers.items() if reason == Reason.SUCCESS}
        assert len(has) <= 1
        if not has:
            log.nodes[0].claim(b"new")
            await log.settle()
            assert log.nodes[0].answers[b"new"] == Reason.SUCCESS, "it can be had again"

    asyncio.run(play())


@pytest.mark.parametrize("answered", [True, False])
async def test_what_is_released_while_it_is_asked_for_is_given_back(answered: bool) -> None:
    log = Log()
    here, there = log.nodes
    here.claim(b"c")
    if answered:
        await log.settle()
    here.exclusive.release(T)
    await log.settle()
    there.claim(b"d")
    await log.settle()
    assert there.answers[b"d"] == Reason.SUCCESS


class Lossy(Node):
    """It hears when Redis can't lose its claims any more."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, "n0@0")
        self.asked: list[asyncio.Future[StreamId]] = []
        self.exclusive = ExclusiveClaims(
            self.name, self._submit, self._secure, WriteReasons(SYSTEM).of, self._is_using, self.here.__contains__
        )

    def _secure(self) -> asyncio.Future[StreamId]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    async def answer(self, error: Exception | None = None) -> None:
        done = self.asked.pop(0)
        if error is None:
            done.set_result(StreamId(1, self.read))
        else:
            done.set_exception(error)
        await asyncio.sleep(0)

    async def find(self, *rows: tuple[str, bytes]) -> None:
        """A bootstrap brings this table."""
        fresh = self.exclusive.claims.fresh()
        for owner, client_id in rows:
            fresh.put((T, owner), client_id, None)
        self.exclusive.claims.swap(fresh)


@pytest.fixture
async def lossy() -> Lossy:
    """Its claim is in its table."""
    node = Lossy(Log())
    node.claim(b"c")
    await node.catch_up()
    assert (node.answers, len(node.asked)) == ({}, 1)
    return node


async def test_it_is_granted_when_redis_can_not_lose_it_any_more(lossy: Lossy) -> None:
    await lossy.answer()
    assert lossy.answers == {b"c": Reason.SUCCESS}


async def test_it_is_refused_and_deleted_when_nobody_knows_whether_redis_can_lose_it(lossy: Lossy) -> None:
    await lossy.answer(StorageUnavailable("too few cores had it"))
    assert lossy.answers == {b"c": Reason.UNSPECIFIED_ERROR}
    assert [op[1] for op in lossy.log.entries[-1]] == [DELETE]


@pytest.mark.parametrize("rival_is_first", [False, True])
async def test_one_that_redis_lost_is_judged_again_where_it_comes_the_next_time(
    lossy: Lossy, rival_is_first: bool
) -> None:
    await lossy.find()
    if rival_is_first:
        lossy.exclusive.claims.put((T, "n1@0"), b"rival", None)
    lossy.exclusive.claims.put((T, lossy.name), b"c", None)
    await lossy.answer()
    if not rival_is_first:
        assert lossy.answers == {}, "what was asked was about the former one"
        lossy.exclusive.claims.put((T, "n1@0"), b"rival", None)
        await lossy.answer()
    assert lossy.answers == {b"c": Reason.QUOTA_EXCEEDED if rival_is_first else Reason.SUCCESS}


@pytest.mark.parametrize("rows", [[], [("n0@0", b"c"), ("n1@0", b"rival")]])
async def test_one_that_is_lost_or_came_with_others_in_a_bootstrap_is_refused(
    lossy: Lossy, rows: list[tuple[str, bytes]]
) -> None:
    """Nobody knows which came first."""
    await lossy.find(*rows)
    await lossy.answer()
    assert lossy.answers == {b"c": Reason.QUOTA_EXCEEDED if rows else Reason.UNSPECIFIED_ERROR}
    assert [op[1] for op in lossy.log.entries[-1]] == [DELETE], "behind what the writer writes again"
