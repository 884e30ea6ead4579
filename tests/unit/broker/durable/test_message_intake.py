"""Messages for sessions: taken once they are durable; those for slots that can't take them wait, in their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

import pytest

from flockmq import bounds
from flockmq.durable.session_fields import message_parts
from flockmq.mqtt.message import NO_EXPIRY, publication
from flockmq.mqtt.reason import Reason
from flockmq.routing.slots import SlotMessage, slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import (
    EDGE,
    ID,
    SENDER,
    SLOT,
    SOURCE,
    Home,
    opening,
    roommates,
    subscribed,
)
from unit.broker.protocol.harness import publish

OTHER = next(b"other-%d" % n for n in range(100) if slot_of(b"other-%d" % n) != SLOT)
BOTH = [SLOT, slot_of(OTHER)]


def letters(*numbers: int, slots: list[int] = BOTH, expiry_s: int = 0) -> list[SlotMessage]:
    expiry = b"\x02" + expiry_s.to_bytes(4, "big") if expiry_s else b""
    version = 5 if expiry_s else 4
    packets = [publication(version, 1, False, b"a/b", b"%d" % n, expiry, expiry_s or NO_EXPIRY).packet for n in numbers]
    return [SlotMessage(SOURCE, n, b"", version, packet, slots) for n, packet in zip(numbers, packets, strict=True)]


async def two_sessions(redis: Redis, home: Home) -> Home:
    """The next home of both, which can't read the slot of the first."""
    await home.own(slot_of(OTHER))
    subscribed(home)
    home.open(2, opening(2), OTHER)
    home.residents.ask(
        OTHER, 2, (1, 0), messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""), lambda _: None
    )
    redis.slot(SLOT).read_error = "a key is a list"
    later = Home(redis, "core-1@1", 2)
    await later.own(*BOTH)
    return later


async def mended(redis: Redis, home: Home) -> None:
    redis.slot(SLOT).read_error = ""
    home.machine.forward(bounds.SLOT_SPOILT_RETRY_S)
    home.residents.tick()
    await home.settle()
    home.residents.intake.advance()
    await home.settle()


def waiting(redis: Redis, client_id: bytes) -> list[bytes]:
    """The payloads that are stored for it."""
    fields = redis.slot(slot_of(client_id)).sessions[client_id]
    return [value[-1:] for field, value in sorted(fields.items()) if field[:1] == b"q"]


async def test_what_is_for_a_slot_that_is_not_loaded_waits_for_it_and_the_rest_is_taken(
    redis: Redis, home: Home
) -> None:
    later = await two_sessions(redis, home)
    taken = later.residents.intake
    assert taken.is_loading(), "what doesn't say for which slots it is waits for all"
    assert not taken.is_changing()
    done: list[bool] = []
    waits = taken.take(letters(1, 2), later.epoch, SENDER, done.append)
    assert (list(waits.slots), done) == ([SLOT], [])
    taken.take(letters(3, slots=[slot_of(OTHER)]), later.epoch, SENDER, done.append)
    assert done == [True]
    assert waiting(redis, OTHER) == [b"1", b"2", b"3"]
    assert waiting(redis, ID) == []
    await mended(redis, later)
    assert done == [True, True]
    assert waiting(redis, ID) == [b"1", b"2"]
    taken.take(letters(2, 4), later.epoch, SENDER, done.append)
    assert waiting(redis, ID) == [b"1", b"2", b"4"], "it knows the repeat"
    assert waiting(redis, OTHER) == [b"1", b"2", b"3", b"4"]


async def test_what_a_letter_brings_stands_between_its_beginning_and_its_mark(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(home)
    store, said = home.residents.intake._store, list[str]()
    for name in ("begin_message", "put", "mark"):
        monkeypatch.setattr(store, name, partial(noted, said, name, getattr(store, name)))
    home.residents.intake.take(letters(1, 2, slots=[SLOT]), home.epoch, SENDER, lambda _: None)
    assert [name for name, _ in groupby(said)] == ["begin_message", "put", "mark"] * 2


def noted(said: list[str], name: str, call: Callable[..., None], *given: object) -> None:
    said.append(name)
    call(*given)


async def test_what_is_held_grows_old(redis: Redis, home: Home) -> None:
    later = await two_sessions(redis, home)
    later.residents.intake.take(letters(1, expiry_s=2) + letters(2, expiry_s=60), later.epoch, SENDER, lambda _: None)
    await mended(redis, later)
    stored = sorted(item for item in redis.slot(SLOT).sessions[ID].items() if item[0][:1] == b"q")
    now_ms = later.machine.clock.wall_ms()
    left_s = [(message_parts(value)[3] - now_ms) / 1000 for _, value in stored]
    assert left_s == [0, 60 - bounds.SLOT_SPOILT_RETRY_S]


async def test_what_is_held_for_a_slot_that_goes_is_not_accepted(redis: Redis, home: Home) -> None:
    later = await two_sessions(redis, home)
    done: list[bool] = []
    later.residents.intake.take(letters(1), later.epoch, SENDER, done.append)
    later.residents.disown(SLOT)
    assert done == [False]
    assert not later.residents.intake.is_holding


async def test_what_a_node_that_was_purged_sent_is_not_given_out_of_what_is_held(redis: Redis, home: Home) -> None:
    """Its marks may be gone, and it may come back and repeat it."""
    later = await two_sessions(redis, home)
    later.residents.intake.take(letters(1), later.epoch, SENDER, lambda _: None)
    later.nodes = [EDGE]
    await mended(redis, later)
    assert waiting(redis, ID) == []


async def test_what_is_for_a_slot_of_which_too_much_waits_is_held_until_there_is_room(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.disk.full = True
    done: list[bool] = []
    home.residents.intake.take(letters(1), home.epoch, SENDER, done.append)
    home.residents.intake.advance()
    assert (done, waiting(redis, ID)) == ([], [])
    home.disk.full = False
    home.residents.intake.advance()
    assert (done, waiting(redis, ID)) == ([True], [b"1"])


def ignore(_: object) -> None:
    """What is answered."""


async def test_of_a_Redis_that_is_short_of_memory_nothing_new_begins_and_what_is_there_goes_on(home: Home) -> None:
    subscribed(home)
    home.disk.short = True
    other = roommates(1)[0]
    assert home.residents.open(Attach(other, EDGE, 3, opening(3), ignore)) == messages.FULL
    [answer] = home.subscribe(1, b"b/#")
    assert messages.decode_reasons(answer) == [Reason.QUOTA_EXCEEDED]
    done = home.take(1)
    await home.settle()
    assert (done, home.payloads()) == ([True], [b"1"]), "what is under way is taken"


@pytest.mark.parametrize(("version", "kept"), [(4, [b"1"]), (5, [b"1", b"2"])])
async def test_of_a_Redis_that_is_short_nothing_waits_that_its_publisher_could_not_be_told_of(
    home: Home, version: int, kept: list[bytes]
) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.take(1)
    home.disk.short = True
    letter = SlotMessage(SOURCE, 2, b"", version, publication(version, 1, False, b"a/b", b"2", b"").packet)
    done: list[bool] = []
    home.residents.intake.take([letter], home.epoch, SENDER, done.append)
    await home.settle()
    assert done == [True]
    assert home.router.counters.dropped_queue_full == 2 - len(kept)
    home.open(2, opening(2))
    home.take(3)
    await home.settle()
    assert home.payloads() == [*kept, b"3"], "who is there gets all"


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


async def test_letters_are_for_slots_that_were_gained_by_their_epoch(home: Home) -> None:
    """A sender with older tables sends its letter to the slot's home that it knows too, or again."""
    subscribed(home)
    assert home.take(1, epoch=0) == [True]
    assert home.take(1) == [True]
    await home.settle()
    assert home.payloads() == [b"1"], "not even marked the first time"


async def test_no_letters_are_taken_while_too_much_waits_for_Redis(home: Home) -> None:
    """They wait at their senders, which have bounds of their own."""
    assert not home.residents.intake.is_loading()
    home.disk.full = True
    assert home.residents.intake.is_loading()


async def test_letters_that_can_not_be_read_are_let_go(home: Home) -> None:
    subscribed(home)
    done: list[bool] = []
    good = publish(4, "a/b", "2", qos=1, packet_id=9)
    letters = [SlotMessage(SOURCE, 1, b"", 4, b"\x32\x02\x00\x09"), SlotMessage(SOURCE, 2, b"", 4, good)]
    home.residents.intake.take(letters, home.epoch, SENDER, done.append)
    await home.settle()
    assert done == [True]
    assert home.payloads() == [b"2"]


async def test_a_session_that_can_not_take_a_letter_keeps_it_from_no_other(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(home)
    other = roommates(1)[0]
    home.open(2, opening(2), other)
    home.residents.ask(
        other, 2, (1, 0), messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""), lambda _: None
    )
    home.packets()
    puts = home.disk.put

    def fails_for_one(slot: int, client_id: bytes, field: bytes, value: bytes) -> None:
        if client_id == ID:
            raise RuntimeError(field)
        puts(slot, client_id, field, value)

    monkeypatch.setattr(home.disk, "put", fails_for_one)
    assert home.take(1, 2) == [True]
    await home.settle()
    home.flush_soon()
    assert [chunk.count(b"a/b") for _, token, chunk in home.delivered if token == 2] == [2]


async def test_QoS_0_goes_to_who_is_there(home: Home) -> None:
    subscribed(home)
    run = publish(4, "a/b", "now") + publish(4, "b/c", "elsewhere")
    home.residents.intake.take_runs([SlotMessage(b"", 0, b"", 4, run)])
    assert home.packets() == [publish(4, "a/b", "now")]
