"""Sessions at their homes over one Redis: what is said when, what another home finds, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import pytest

from flockmq import bounds
from flockmq.home import wire
from flockmq.home.registry import slot_of
from flockmq.home.residents import Residents
from flockmq.session.counters import Counters
from flockmq.session.homed import HomedRouter
from flockmq.session.letter import Letter
from flockmq.session.limits import Limits
from flockmq.session.opening import Will
from flockmq.session.origin import node_source
from flockmq.session.publish import Publish, publication
from flockmq.session.router import Router
from flockmq.session.session import Session
from flockmq.session.settling import PUBACK, SETTLED, pair
from flockmq.session.sink import Sink
from flockmq.session.subscription import Subscription
from unit.broker.home.redis import Disk, Redis
from unit.broker.session.harness import publish, split

ID = b"client"
SLOT = slot_of(ID)
EDGE = "edge-0@1"
SENDER = "edge-1@1"
SOURCE = node_source(SENDER)


def opening(nonce: int = 1, *, clean: bool = False, expiry_s: int = 60, will: Will | None = None) -> wire.Opening:
    row = None if will is None else wire.WillRow(will.delay_s, will.message.version, will.message.packet)
    return wire.Opening(4, clean, expiry_s, 32, 0, "default", nonce.to_bytes(8, "big"), row)


class Home:
    """Residents with the node and the network around them: `host`, `homes` and `store` in one."""

    def __init__(self, redis: Redis, incarnation: str, epoch: int) -> None:
        self.incarnation = incarnation
        self.epoch = epoch
        self.turn: list[Sink] = []
        router = Router(Counters(), 1 << 20)
        self.router = HomedRouter(router)
        self.disk = Disk(redis)
        self.residents = Residents(self, self, self.disk, self.router)
        self.delivered: list[tuple[str, int, bytes]] = []
        self.overflown: list[tuple[str, bytes, int]] = []
        self.published: list[Publish] = []
        self.linked = True
        self.routed: list[tuple[int, bytes]] = []
        self.came: list[tuple[int, bytes, list[bytes]]] = []
        self.changes = 0

    # What a host is.

    def slots_epoch(self) -> int:
        return self.epoch

    def members(self) -> Collection[str]:
        return [EDGE, SENDER]

    def limits(self, zone: str) -> Limits:
        return Limits()

    def publish(self, message: Publish) -> None:
        self.published.append(message)

    def session_ended(self, session: Session) -> None: ...

    def changed(self) -> None:
        self.changes += 1

    def flush_soon(self) -> None:
        while self.router.turn:
            sink = self.router.turn.pop(0)
            sink.dirty = False
            sink.flush()

    def soon(self, call: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_soon(call)

    def claim(self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        done({})

    def release(self, filters: list[bytes]) -> None: ...

    def route_slot(self, slot: int, filters: list[bytes], done: Callable[[int], None]) -> None:
        self.routed += [(slot, filter) for filter in filters]
        done(0)

    def unrouted_slot(self, slot: int, filters: list[bytes]) -> None:
        self.routed = [row for row in self.routed if row not in [(slot, filter) for filter in filters]]

    def came_with(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        self.came.append((slot, client_id, filters))

    def slot_gone(self, slot: int) -> None: ...

    def see_retained(self, then: Callable[[bool], None]) -> None:
        then(True)

    def owe(self, subscriptions: list[Subscription], saw_all: bool) -> None: ...

    # What homes are.

    def deliver(self, incarnation: str, token: int, packets: bytes) -> None:
        self.delivered.append((incarnation, token, packets))

    def overflow(self, incarnation: str, client_id: bytes, token: int) -> None:
        self.overflown.append((incarnation, client_id, token))

    def loaded(self, slot: int) -> None: ...

    def is_linked(self, incarnation: str) -> bool:
        return self.linked

    # What tests do.

    async def own(self, *slots: int) -> None:
        for slot in slots:
            self.residents.own(slot)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
            self.flush_soon()

    async def commit(self) -> None:
        self.disk.commit()
        await self.settle()

    def open(self, token: int, asked: wire.Opening | None) -> list[int]:
        """The flags that are answered, when they are."""
        answers: list[int] = []
        self.residents.open(ID, EDGE, token, asked, answers.append)
        return answers

    def ask(self, token: int, question: wire.Question) -> list[bytes]:
        answers: list[bytes] = []
        self.residents.ask(ID, token, question, answers.append)
        return answers

    def subscribe(self, token: int, filter: bytes = b"a/#", qos: int = 1) -> list[bytes]:
        return self.ask(token, wire.Subscribe([wire.Wanted(filter, qos)], b""))

    def take(self, *numbers: int, epoch: int | None = None) -> list[bool]:
        """Letters with these numbers, whose payload they are; what the sender hears."""
        done: list[bool] = []
        letters = [Letter(SOURCE, n, b"", 4, publish(4, "a/b", str(n), qos=1, packet_id=9)) for n in numbers]
        self.residents.take(letters, self.epoch if epoch is None else epoch, SENDER, done.append)
        return done

    def packets(self) -> list[bytes]:
        """For the client."""
        self.flush_soon()
        taken = [packet for _, _, chunk in self.delivered for packet in split(chunk) if packet[0] != SETTLED]
        self.delivered.clear()
        return taken

    def payloads(self) -> list[bytes]:
        return [packet[9:] for packet in self.packets()]


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
async def home(redis: Redis) -> Home:
    made = Home(redis, "core-0@1", 1)
    await made.own(SLOT)
    return made


async def another(redis: Redis) -> Home:
    """The next home of the slot."""
    made = Home(redis, "core-1@1", 2)
    await made.own(SLOT)
    return made


def subscribed(home: Home, token: int = 1) -> None:
    home.open(token, opening(token))
    home.subscribe(token)
    home.packets()


# Nothing before it is durable.


async def test_an_attach_is_answered_when_its_session_is_durable(home: Home) -> None:
    home.disk.holds = True
    answers = home.open(1, opening())
    await home.settle()
    assert answers == []
    await home.commit()
    assert answers == [wire.LASTS]


async def test_a_SUBSCRIBE_is_answered_when_it_is_routed_and_durable(home: Home) -> None:
    home.open(1, opening())
    home.disk.holds = True
    answers = home.subscribe(1)
    await home.settle()
    assert answers == []
    assert home.routed == [(SLOT, b"a/#")]
    await home.commit()
    assert [wire.decode_reasons(answer) for answer in answers] == [[1]]


async def test_a_letter_is_accepted_and_sent_when_it_is_durable(home: Home) -> None:
    subscribed(home)
    home.disk.holds = True
    done = home.take(1, 2)
    await home.settle()
    assert (done, home.payloads()) == ([], [])
    await home.commit()
    assert (done, home.payloads()) == ([True], [b"1", b"2"])


async def test_what_became_durable_waits_for_no_other_turn(home: Home) -> None:
    subscribed(home)
    home.disk.holds = True
    home.take(1)
    await home.settle()
    home.disk.commit()
    assert len(home.delivered) == 1


async def test_what_a_client_acknowledged_is_settled_when_it_is_durable(home: Home) -> None:
    subscribed(home)
    home.take(1)
    await home.settle()
    home.packets()
    home.disk.holds = True
    home.residents.report("other@1", 1, pair(PUBACK, 1))
    home.residents.report(EDGE, 2, pair(PUBACK, 1))
    await home.commit()
    assert home.delivered == [], "neither has the connection"
    home.residents.report(EDGE, 1, pair(PUBACK, 1))
    await home.settle()
    assert home.delivered == []
    await home.commit()
    assert [chunk[0] for _, _, chunk in home.delivered] == [SETTLED]


async def test_a_QoS_2_message_gets_its_origin_when_that_is_durable_and_the_same_again(home: Home) -> None:
    home.open(1, opening())
    home.disk.holds = True
    first = home.ask(1, wire.Receive(7))
    await home.settle()
    assert first == []
    await home.commit()
    again, other = home.ask(1, wire.Receive(7)), home.ask(1, wire.Receive(8))
    await home.commit()
    assert first == again != other
    assert len(wire.decode_origin(first[0])) == 16


async def test_who_has_no_session_here_is_told_to_ask_again(home: Home) -> None:
    assert home.ask(1, wire.Receive(7)) == [b""]


async def test_a_route_goes_when_it_is_durable_that_nobody_wants_it(home: Home) -> None:
    subscribed(home)
    home.disk.holds = True
    answers = home.ask(1, wire.Unsubscribe([b"a/#", b"never"]))
    assert (answers, home.routed) == ([], [(SLOT, b"a/#")])
    await home.commit()
    assert [wire.decode_reasons(answer) for answer in answers] == [[0, 0x11]]
    assert home.routed == []


# Session present.


async def test_session_present_is_told_to_who_comes_back(home: Home) -> None:
    assert home.open(1, opening(1)) == [wire.LASTS]
    home.residents.leave(ID, 1, -1, False)
    assert home.open(2, opening(2)) == [wire.LASTS | wire.PRESENT]
    home.residents.leave(ID, 2, -1, False)
    assert home.open(3, opening(3, clean=True)) == [wire.LASTS]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_CONNECT_that_asks_again_is_told_the_same(home: Home, clean: bool) -> None:
    """Its answer was lost; clean start ended what was there before, not what it began itself."""
    assert home.open(1, opening(1, clean=clean)) == [wire.LASTS]
    home.subscribe(1)
    home.residents.leave(ID, 1, -1, False)
    assert home.open(2, opening(1, clean=clean)) == [wire.LASTS]
    assert home.residents.sessions.by_id[ID].subscription(b"a/#") is not None


async def test_a_CONNECT_that_asks_again_for_what_was_there_is_told_so_again(home: Home) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    for token in (2, 3):
        assert home.open(token, opening(9)) == [wire.LASTS | wire.PRESENT]
        home.residents.leave(ID, token, -1, False)


async def test_a_CONNECT_that_asks_again_after_a_crash_is_told_the_same(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, clean=True))
    later = await another(redis)
    assert later.open(2, opening(1, clean=True)) == [wire.LASTS]
    assert later.open(3, opening(2)) == [wire.LASTS | wire.PRESENT]


async def test_a_session_that_ends_with_its_connection_ends_what_is_here(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.disk.holds = True
    answers = home.open(2, None)
    assert answers == []
    await home.commit()
    assert answers == [0]
    assert redis.slot(SLOT).sessions == {}
    assert home.routed == []


async def test_who_looks_for_a_session_that_is_not_there_and_wants_none_has_its_own(home: Home) -> None:
    assert home.open(1, opening(expiry_s=0)) == [0]
    assert len(home.residents) == 0


# From home to home.


async def test_the_next_home_has_all_of_it_under_the_same_packet_ids(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(1, 2, 3)
    await home.settle()
    sent = home.packets()
    home.residents.report(EDGE, 1, pair(PUBACK, 2))
    later = await another(redis)
    assert later.came == [(SLOT, ID, [b"a/#"])]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    again = later.packets()
    assert [packet[7:] for packet in again] == [sent[0][7:], sent[2][7:]]
    assert [packet[5:7] for packet in again] == [sent[0][5:7], sent[2][5:7]]
    assert all(packet[0] & 8 for packet in again), "duplicates, as far as anybody knows"


async def test_what_comes_again_to_the_next_home_is_a_repeat(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(1, 2)
    later = await another(redis)
    assert later.take(1, 2, 3) == [True]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3"]


async def test_a_fenced_slot_takes_nothing(redis: Redis, home: Home) -> None:
    subscribed(home)
    await another(redis)
    home.disk.holds = True
    done = home.take(1)
    await home.commit()
    assert done == [False]
    assert home.payloads() == []
    assert home.residents.is_loading(), "it takes nothing for any slot until its table says whose the slot is"
    home.residents.disown(SLOT)
    assert home.residents.is_loading(), "its loss isn't in the view"
    await home.settle()
    assert not home.residents.is_loading()
    assert len(home.residents) == 0


async def test_a_slot_that_another_took_first_is_not_loaded(redis: Redis) -> None:
    await another(redis)
    earlier = Home(redis, "core-0@1", 1)
    await earlier.own(SLOT)
    assert not earlier.residents.has_loaded(SLOT)
    assert earlier.residents.is_loading()


async def test_slots_wait_for_Redis(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MIN_S", 0.0)
    redis.is_away = True
    home = Home(redis, "core-0@1", 1)
    await home.own(SLOT)
    assert not home.residents.has_loaded(SLOT)
    redis.is_away = False
    await home.settle()
    assert home.residents.has_loaded(SLOT)


async def test_letters_are_for_slots_that_were_gained_by_their_epoch(home: Home) -> None:
    """A sender with older tables sends its letter to the slot's home that it knows too, or again."""
    subscribed(home)
    assert home.take(1, epoch=0) == [True]
    assert home.take(1) == [True]
    await home.settle()
    assert home.payloads() == [b"1"], "not even marked the first time"


async def test_no_letters_are_taken_while_too_much_waits_for_Redis(home: Home) -> None:
    """They wait at their senders, which have bounds of their own."""
    assert not home.residents.is_loading()
    home.disk.full = True
    assert home.residents.is_loading()


async def test_the_view_rises_with_each_slot_that_comes_or_goes(home: Home) -> None:
    assert home.residents.view() == 1
    home.epoch = 5
    home.residents.own(SLOT + 1)
    assert (home.residents.epoch(), home.residents.is_loading()) == (1, True)
    home.residents.disown(SLOT + 1)
    await home.settle()
    assert (home.residents.view(), home.residents.epoch(), home.residents.is_loading()) == (5, 5, False)


async def test_marks_of_nodes_that_are_gone_are_forgotten_in_time(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    subscribed(home)
    home.take(1)
    assert redis.slot(SLOT).marks
    home.residents.node_gone(SENDER)
    home.residents.tick()
    assert not redis.slot(SLOT).marks


async def test_what_a_purged_node_repeats_is_known_to_a_home_that_took_the_slot_meanwhile(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(home)
    home.take(1)
    later = Home(redis, "core-1@1", 2)
    monkeypatch.setattr(later, "members", lambda: [EDGE])
    await later.own(SLOT)
    assert later.take(1) == [True]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    assert later.payloads() == [b"1"]
    assert redis.slot(SLOT).marks
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    later.residents.node_gone(SENDER)
    later.residents.tick()
    assert not redis.slot(SLOT).marks


async def test_a_session_that_can_not_be_read_is_left_where_it_is_and_the_others_come(redis: Redis, home: Home) -> None:
    home.open(1, opening())
    data = redis.slot(SLOT)
    broken = {b"m": data.sessions[ID][b"m"], b"q" + bytes(8): b"", b"s": b""}
    data.sessions = {b"broken": broken, **data.sessions}
    later = await another(redis)
    assert later.residents.has_loaded(SLOT)
    assert list(later.residents.sessions.by_id) == [ID]
    assert data.sessions[b"broken"] == broken


# Redis lost its data.


async def test_what_Redis_lost_is_written_again(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(1, 2)
    await home.settle()
    home.packets()
    home.disk.holds = True
    redis.slots.clear()
    done = home.take(3)
    await home.commit()
    await home.commit()
    assert done == [True]
    home.disk.holds = False
    later = await another(redis)
    assert later.take(3) == [True]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3"]


async def test_a_session_that_Redis_has_again_and_that_ended_here_goes(redis: Redis, home: Home) -> None:
    """A failover to a replica that was behind."""
    subscribed(home)
    before = redis.slot(SLOT).sessions.copy()
    home.residents.leave(ID, 1, 0, False)
    home.residents.tick()
    assert redis.slot(SLOT).sessions == {}
    redis.slots.clear()
    redis.slot(SLOT).sessions.update(before)
    home.disk.on_lost(SLOT)
    await home.settle()
    assert redis.slot(SLOT).sessions == {}


# Connections that are gone.


def will() -> Will:
    return Will(publication(4, 1, False, b"w", b"gone", b""), 0)


async def test_the_will_of_a_connection_that_went_with_its_node_is_published(home: Home) -> None:
    home.open(1, opening(will=will()))
    home.residents.node_gone("other@1")
    home.residents.tick()
    assert home.published == []
    home.residents.node_gone(EDGE)
    home.residents.tick()
    assert [message.topic for message in home.published] == [b"w"]
    assert len(home.published[0].origin) == 16


async def test_a_will_of_who_left_in_order_is_not_published(home: Home) -> None:
    home.open(1, opening(will=will()))
    home.residents.leave(ID, 1, -1, False)
    home.residents.tick()
    assert home.published == []


async def test_a_client_that_did_not_come_back_after_a_crash_left_then(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_RETURN_S", -1.0)
    home.open(1, opening(will=will()))
    later = await another(redis)
    later.residents.tick()
    assert [message.topic for message in later.published] == [b"w"]
    again = Home(redis, "core-2@1", 3)
    await again.own(SLOT)
    again.residents.tick()
    assert again.published == [], "once"


async def test_a_client_that_left_in_order_while_its_slot_moved_left_so(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_RETURN_S", -1.0)
    home.open(1, opening(will=will()))
    later = await another(redis)
    later.residents.leave(ID, 1, 5, False)
    later.residents.tick()
    later.residents.tick()
    assert later.published == []
    assert later.residents.sessions.away[ID].session.expiry_s == 5
    assert later.router.counters.sessions_away == 1


async def test_a_session_expires_when_its_time_is_up_also_after_a_crash(redis: Redis, home: Home) -> None:
    home.open(1, opening(expiry_s=60))
    home.residents.leave(ID, 1, 0, False)
    home.residents.tick()
    assert len(home.residents) == 0
    assert redis.slot(SLOT).sessions == {}
    later = await another(redis)
    assert len(later.residents) == 0


async def test_a_connection_that_takes_no_more_is_cut_off_and_its_session_stays(home: Home) -> None:
    subscribed(home)
    limit = Limits().max_mqueue_len + Limits().max_inflight
    for first in range(1, 2 * limit, 100):
        home.take(*range(first, first + 100))
    await home.settle()
    assert home.overflown == [(EDGE, ID, 1)]
    assert home.residents.close(ID), "away"
    assert not home.residents.close(ID)


async def test_what_was_lost_on_its_way_to_a_front_goes_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HOME_BEHIND_S", 0.0)
    subscribed(home)
    home.linked = False
    home.residents.cut(EDGE)
    home.take(1)
    await home.settle()
    assert home.packets() == [], "nothing goes there before all of it does"
    home.linked = True
    await home.settle()
    assert home.payloads() == [b"1"]


async def test_a_link_that_is_found_lost_after_its_front_had_said_so_holds_nothing_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_BEHIND_S", 0.0)
    subscribed(home)
    assert home.residents.resume(ID, EDGE, 1, opening(), b"")
    home.residents.cut(EDGE)
    home.take(1)
    await home.settle()
    assert home.payloads() == [b"1"]


async def test_letters_that_can_not_be_read_are_let_go(home: Home) -> None:
    subscribed(home)
    done: list[bool] = []
    good = publish(4, "a/b", "2", qos=1, packet_id=9)
    letters = [Letter(SOURCE, 1, b"", 4, b"\x32\x02\x00\x09"), Letter(SOURCE, 2, b"", 4, good)]
    home.residents.take(letters, home.epoch, SENDER, done.append)
    await home.settle()
    assert done == [True]
    assert home.payloads() == [b"2"]


async def test_QoS_0_goes_to_who_is_there(home: Home) -> None:
    subscribed(home)
    run = publish(4, "a/b", "now") + publish(4, "b/c", "elsewhere")
    home.residents.take_runs([Letter(b"", 0, b"", 4, run)])
    assert home.packets() == [publish(4, "a/b", "now")]
