"""Letters for slots that can't take them are held, in their order; others are taken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

import pytest

from flockmq import bounds
from flockmq.durable.session_fields import message_parts
from flockmq.mqtt.message import NO_EXPIRY, publication
from flockmq.routing.slots import SlotMessage, slot_of
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import EDGE, ID, SENDER, SLOT, SOURCE, Home, opening, subscribed

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
