"""A durable session keeps its exclusive filter whoever is its owner, and whenever its owners' writes come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.clock import SYSTEM
from flockmq.mqtt.reason import Reason
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import PUT, Op, StreamId
from flockmq.rlog.write_reasons import WriteReasons
from flockmq.routes.durable_exclusive_claims import DurableExclusiveClaims
from flockmq.routes.exclusive_claim_table import PendingClaims, durable_key, epoch_of, filter_of
from flockmq.routes.filter_registration import claim_all
from flockmq.routing.slots import slot_of
from unit.broker.routes.redis import secured

T = b"t"
C, SAME_SLOT, OTHER = b"c-0", b"c-124", b"c-1"
"""The first two are of one slot."""


class Log:
    """Entries in the order in which they come, which is that of each writer: some are on their way for long."""

    def __init__(self) -> None:
        self.entries: list[Sequence[Op]] = []

    def rows(self) -> set[tuple[bytes, str]]:
        rows: dict[tuple[bytes, str], bytes] = {}
        for entry in self.entries:
            for _, kind, owner, raw, value in entry:
                if kind == PUT:
                    rows[raw, owner] = value
                else:
                    rows.pop((raw, owner), None)
        return set(rows)


class Core:
    """A core with slots. `stored`: what Redis has of sessions, behind the fence of each slot's latest owner."""

    def __init__(self, log: Log, stored: Stored) -> None:
        self.log = log
        self.stored = stored
        self.read = 0
        self.using: set[bytes] = set()
        self.unread: set[bytes] = set()
        self.gained: dict[int, int] = {}
        self.is_away = False
        self.answers: list[tuple[bytes, int]] = []
        self.on_its_way: list[tuple[Sequence[Op], asyncio.Future[StreamId]]] = []
        self.waiting: list[tuple[int, asyncio.Future[StreamId]]] = []
        self.pending = PendingClaims(self._submit, secured, WriteReasons(SYSTEM).of, lambda key, client_id: None)
        self.claims = DurableExclusiveClaims(self.pending, self._submit, WriteReasons(SYSTEM).of, self)

    # what claims ask

    def has_exclusively(self, client_id: bytes, filter: bytes) -> bool:
        return client_id in self.using

    def is_unread(self, client_id: bytes) -> bool:
        return client_id in self.unread

    def gained_at(self, slot: int) -> int:
        return self.gained.get(slot, -1)

    def loaded(self) -> Iterable[int]:
        return self.gained

    def has_loaded(self, slot: int) -> bool:
        return slot in self.gained

    def settle(self, slot: int, then: Callable[[], None]) -> None:
        if self.stored.owners.get(slot) is self:
            self.stored.using = {who for who in self.stored.using if slot_of(who) != slot}
            self.stored.using |= {who for who in self.using if slot_of(who) == slot}
            then()

    # what happens to it

    def takes(self, slot: int) -> None:
        """Behind a fence of its own; the former owner hears of it by `loses`."""
        self.stored.epoch += 1
        self.stored.owners[slot] = self
        self.gained[slot] = self.stored.epoch
        self.using = {who for who in self.using if slot_of(who) != slot}
        for client_id in [who for who in sorted(self.stored.using) if slot_of(who) == slot]:
            self.using.add(client_id)
            self.claims.keep(T, client_id, _tried_again)

    def loses(self, slot: int) -> None:
        del self.gained[slot]
        self.using = {who for who in self.using if slot_of(who) != slot}

    def claim(self, client_id: bytes) -> None:
        self.claims.claim(T, client_id, lambda reason: self._answered(client_id, reason))

    def _answered(self, client_id: bytes, reason: int) -> None:
        slot = slot_of(client_id)
        if reason == Reason.SUCCESS and slot in self.gained:
            self.using.add(client_id)
            self.settle(slot, lambda: self.answers.append((client_id, reason)))
        elif reason != Reason.SUCCESS:
            self.answers.append((client_id, reason))

    def unsubscribe(self, client_id: bytes) -> None:
        self.using.discard(client_id)
        self.settle(slot_of(client_id), lambda: self.claims.release(T, client_id))

    # the log

    def _submit(self, ops: Sequence[Op], user: bytes = b"") -> asyncio.Future[StreamId]:
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        if self.is_away:
            done.set_exception(StorageUnavailable("the log is away"))
        else:
            self.on_its_way.append((ops, done))
        return done

    def write(self) -> None:
        """What it submitted first is in the log."""
        if self.on_its_way:
            ops, done = self.on_its_way.pop(0)
            self.log.entries.append(ops)
            self.waiting.append((len(self.log.entries), done))

    async def apply(self) -> None:
        """The next entry."""
        if self.read < len(self.log.entries):
            for _, kind, owner, raw, value in self.log.entries[self.read]:
                if kind == PUT:
                    self.pending.claims.put((raw, owner), value, None)
                else:
                    self.pending.claims.delete((raw, owner), value)
            self.read += 1
            while self.waiting and self.waiting[0][0] <= self.read:
                self.waiting.pop(0)[1].set_result(StreamId(1, self.read))
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class Stored:
    def __init__(self) -> None:
        self.epoch = 0
        self.owners: dict[int, Core] = {}
        self.using: set[bytes] = set()


class Cluster:
    def __init__(self, cores: int = 2) -> None:
        self.log = Log()
        self.stored = Stored()
        self.cores = [Core(self.log, self.stored) for _ in range(cores)]

    async def settle(self) -> None:
        """Everything is written, and everybody has read it."""
        while any(core.on_its_way or core.read < len(self.log.entries) for core in self.cores):
            for core in self.cores:
                core.write()
                await core.apply()

    async def look(self) -> None:
        for core in self.cores:
            await core.claims.look()
        await self.settle()


def _tried_again(reason: int) -> None:
    """`DurableHost` does."""


@pytest.fixture
async def cluster() -> Cluster:
    cluster = Cluster()
    cluster.cores[0].takes(slot_of(C))
    cluster.cores[1].takes(slot_of(OTHER))
    return cluster


def test_the_clients_are_of_the_slots_that_these_tests_need() -> None:
    assert slot_of(C) == slot_of(SAME_SLOT) != slot_of(OTHER)


def test_a_key_tells_of_its_claim() -> None:
    key = durable_key(T, C, 7)
    assert (filter_of(key), epoch_of(key), key[1]) == (T, 7, f"#{slot_of(C)}")
    assert filter_of((T, "core-1@0")) == T


@pytest.mark.parametrize("rival", [SAME_SLOT, OTHER])
async def test_the_first_in_the_log_has_it(cluster: Cluster, rival: bytes) -> None:
    cluster.cores[0].claim(C)
    cluster.stored.owners[slot_of(rival)].claim(rival)
    await cluster.settle()
    answers = [answer for core in cluster.cores for answer in core.answers]
    assert answers == [(C, Reason.SUCCESS), (rival, Reason.QUOTA_EXCEEDED)]
    cluster.cores[0].unsubscribe(C)
    await cluster.settle()
    assert cluster.log.rows() == set()
    cluster.stored.owners[slot_of(rival)].claim(rival)
    await cluster.settle()
    assert [answer for core in cluster.cores for answer in core.answers][-1] == (rival, Reason.SUCCESS)


async def test_a_client_that_asks_again_gets_the_same_answer(cluster: Cluster) -> None:
    core = cluster.cores[0]
    core.claim(C)
    core.claim(C)
    await cluster.settle()
    core.claim(C)
    assert core.answers == [(C, Reason.SUCCESS)] * 3
    assert len(cluster.log.entries) == 1


async def test_the_next_owner_writes_nothing_and_the_client_has_it_at_once(cluster: Cluster) -> None:
    former, later = cluster.cores
    former.claim(C)
    await cluster.settle()
    later.takes(slot_of(C))
    later.claim(C)
    assert (later.answers, later.on_its_way) == ([(C, Reason.SUCCESS)], [])
    later.claim(OTHER)
    assert later.answers[-1] == (OTHER, Reason.QUOTA_EXCEEDED)
    later.unsubscribe(C)
    await cluster.settle()
    assert cluster.log.rows() == set()


async def test_the_claim_of_a_session_that_cannot_be_read_is_kept_until_that_is_gone(cluster: Cluster) -> None:
    former, later = cluster.cores
    former.claim(C)
    await cluster.settle()
    former.loses(slot_of(C))
    cluster.stored.using = set()
    later.unread = {C}
    later.takes(slot_of(C))
    await cluster.look()
    assert len(cluster.log.rows()) == 1
    later.unread = set()
    await cluster.look()
    assert cluster.log.rows() == set()


async def test_a_claim_that_does_not_stand_is_written_by_the_owner_that_has_the_session(cluster: Cluster) -> None:
    """It was claimed for a node, by an older release; or the log did not take it."""
    cluster.stored.using = {C}
    core = cluster.cores[1]
    core.is_away = True
    core.takes(slot_of(C))
    core.is_away = False
    core.claims.keep(T, C, _tried_again)
    await cluster.settle()
    assert cluster.log.rows() == {durable_key(T, C, core.gained_at(slot_of(C)))}


async def test_what_an_owner_left_when_it_crashed_is_deleted(cluster: Cluster) -> None:
    former, later = cluster.cores
    former.claim(C)
    await cluster.settle()
    former.unsubscribe(C)
    former.on_its_way.clear()
    later.takes(slot_of(C))
    await cluster.look()
    assert cluster.log.rows() == set()


async def test_an_owner_that_was_deposed_deletes_nothing_that_a_session_has_elsewhere(cluster: Cluster) -> None:
    former, later = cluster.cores
    former.claim(C)
    await cluster.settle()
    later.takes(slot_of(C))
    former.unsubscribe(C)  # which Redis refuses
    await cluster.look()
    assert len(cluster.log.rows()) == 1


async def test_what_a_deposed_owner_writes_late_takes_nothing_from_the_next_one(cluster: Cluster) -> None:
    former, later = cluster.cores
    former.claim(C)
    await cluster.settle()
    former.unsubscribe(C)
    late, former.on_its_way = former.on_its_way, []
    later.takes(slot_of(C))
    later.claim(C)
    await cluster.settle()
    assert later.answers == [(C, Reason.SUCCESS)]
    former.on_its_way = late
    await cluster.settle()
    assert cluster.log.rows() == {durable_key(T, C, later.gained_at(slot_of(C)))}


async def test_a_claim_that_a_deposed_owner_writes_late_is_deleted(cluster: Cluster) -> None:
    former, later = cluster.cores
    former.claim(SAME_SLOT)
    later.takes(slot_of(C))
    former.loses(slot_of(C))
    await cluster.settle()
    assert former.answers == [], "nobody hears of it"
    later.claim(C)
    assert later.answers == [(C, Reason.QUOTA_EXCEEDED)]
    await cluster.look()
    later.claim(C)
    await cluster.settle()
    assert later.answers[-1] == (C, Reason.SUCCESS)


async def test_what_is_on_its_way_is_no_orphan(cluster: Cluster) -> None:
    core = cluster.cores[0]
    core.claim(C)
    core.write()
    for _, kind, owner, raw, value in cluster.log.entries[0]:
        assert kind == PUT
        core.pending.claims.put((raw, owner), value, None)
    await core.claims.look()
    assert core.on_its_way == []


@pytest.mark.parametrize("looks", [False, True])
async def test_of_several_filters_none_is_given_back_before_all_are_decided(cluster: Cluster, looks: bool) -> None:
    """By the SUBSCRIBE of the client's former connection, which asked for the same, or because no session has it."""
    core, filters = cluster.cores[0], [b"$exclusive/t", b"$exclusive/u"]

    def given_back(_: dict[bytes, int]) -> None:
        for filter in (T, b"u"):
            core.claims.release(filter, C)

    def placed(refused: dict[bytes, int]) -> None:
        assert refused == {}
        core.using.add(C)

    if not looks:
        claim_all(core.pending, C, filters, core.claims.claim, given_back)
    claim_all(core.pending, C, filters, core.claims.claim, placed)
    core.write()
    await core.apply()
    if looks:
        await core.claims.look()
    await cluster.settle()
    epoch = core.gained_at(slot_of(C))
    assert cluster.log.rows() == {durable_key(T, C, epoch), durable_key(b"u", C, epoch)}
    core.using.clear()
    given_back({})
    await cluster.settle()
    assert cluster.log.rows() == set()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "unsubscribe", "write", "write", "apply", "apply", "apply", "take", "learn", "look"]),
        st.integers(0, 2),
        st.sampled_from([C, SAME_SLOT, OTHER]),
    ),
    max_size=80,
)


@settings(max_examples=300)
@given(STEPS)
def test_never_two_at_once_whoever_is_owner(steps: list[tuple[str, int, bytes]]) -> None:
    """What a client has is what Redis has of its session: a client is answered behind that alone."""

    async def play() -> None:
        cluster = Cluster(3)
        slots = sorted({slot_of(client_id) for client_id in (C, OTHER)})
        for slot in slots:
            cluster.cores[0].takes(slot)
        for step, number, client_id in steps:
            core, slot = cluster.cores[number], slot_of(client_id)
            is_owner = slot in core.gained  # or thinks so
            match step:
                case "claim" if is_owner:
                    core.claim(client_id)
                case "unsubscribe" if is_owner:
                    core.unsubscribe(client_id)
                case "write":
                    core.write()
                case "apply":
                    await core.apply()
                case "take" if not is_owner:
                    core.takes(slot)
                case "learn" if is_owner and cluster.stored.owners[slot] is not core:
                    core.loses(slot)
                case "look":
                    await core.claims.look()
            assert len(cluster.stored.using) <= 1
        for core in cluster.cores:
            for slot in [slot for slot in core.gained if cluster.stored.owners[slot] is not core]:
                core.loses(slot)
        await cluster.settle()
        await cluster.look()
        assert len(cluster.stored.using) <= 1
        assert {key[0].partition(b"\0")[2][:-8] for key in cluster.log.rows()} == cluster.stored.using

    asyncio.run(play())
