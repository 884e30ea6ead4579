"""Messages for sessions: taken once they are durable; those for slots that can't take them wait, in their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

import pytest

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.durable.session_fields import message_parts
from flockmq.mqtt.message import NO_EXPIRY, publication
from flockmq.mqtt.reason import Reason
from flockmq.routing.slots import SlotMessage, slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import (
    ID,
    REPLICANT,
    SENDER,
    SLOT,
    SOURCE,
    Owner,
    clients_of_slot,
    request,
    subscribed,
)
from unit.broker.protocol.harness import publish

OTHER = next(b"other-%d" % n for n in range(100) if slot_of(b"other-%d" % n) != SLOT)
BOTH = [SLOT, slot_of(OTHER)]


def slot_messages(*numbers: int, slots: list[int] = BOTH, expiry_s: int = 0) -> list[SlotMessage]:
    expiry = b"\x02" + expiry_s.to_bytes(4, "big") if expiry_s else b""
    version = 5 if expiry_s else 4
    packets = [publication(version, 1, False, b"a/b", b"%d" % n, expiry, expiry_s or NO_EXPIRY).packet for n in numbers]
    return [SlotMessage(SOURCE, n, b"", version, packet, slots) for n, packet in zip(numbers, packets, strict=True)]


async def two_sessions(redis: Redis, owner: Owner) -> Owner:
    """The next owner of both, which can't read the slot of the first."""
    await owner.own(slot_of(OTHER))
    subscribed(owner)
    owner.open(2, request(2), OTHER)
    owner.service.ask(
        OTHER, 2, (1, 0), messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""), lambda _: None
    )
    redis.slot(SLOT).read_error = "a key is a list"
    later = Owner(redis, "core-1@1", 2)
    await later.own(*BOTH)
    return later


async def mended(redis: Redis, owner: Owner) -> None:
    redis.slot(SLOT).read_error = ""
    owner.machine.forward(bounds.SLOT_SPOILT_RETRY_S)
    owner.service.tick()
    await owner.settle()
    owner.service.intake.advance()
    await owner.settle()


def waiting(redis: Redis, client_id: bytes) -> list[bytes]:
    """The payloads that are stored for it."""
    fields = redis.slot(slot_of(client_id)).sessions[client_id]
    return [value[-1:] for field, value in sorted(fields.items()) if field[:1] == b"q"]


async def test_what_is_for_a_slot_that_is_not_loaded_waits_for_it_and_the_rest_is_taken(
    redis: Redis, owner: Owner
) -> None:
    later = await two_sessions(redis, owner)
    taken = later.service.intake
    assert taken.is_loading(), "what doesn't say for which slots it is waits for all"
    assert not taken.is_changing()
    done: list[bool] = []
    waits = taken.take(slot_messages(1, 2), later.epoch, SENDER, done.append)
    assert (list(waits.slots), done) == ([SLOT], [])
    taken.take(slot_messages(3, slots=[slot_of(OTHER)]), later.epoch, SENDER, done.append)
    assert done == [True]
    assert waiting(redis, OTHER) == [b"1", b"2", b"3"]
    assert waiting(redis, ID) == []
    await mended(redis, later)
    assert done == [True, True]
    assert waiting(redis, ID) == [b"1", b"2"]
    taken.take(slot_messages(2, 4), later.epoch, SENDER, done.append)
    assert waiting(redis, ID) == [b"1", b"2", b"4"], "it knows the repeat"
    assert waiting(redis, OTHER) == [b"1", b"2", b"3", b"4"]


async def test_what_a_message_brings_stands_between_its_beginning_and_its_mark(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(owner)
    store, said = owner.service.intake._store, list[str]()
    for name in ("begin_message", "put", "mark"):
        monkeypatch.setattr(store, name, partial(noted, said, name, getattr(store, name)))
    owner.service.intake.take(slot_messages(1, 2, slots=[SLOT]), owner.epoch, SENDER, lambda _: None)
    assert [name for name, _ in groupby(said)] == ["begin_message", "put", "mark"] * 2


def noted(said: list[str], name: str, call: Callable[..., None], *given: object) -> None:
    said.append(name)
    call(*given)


async def test_what_is_held_grows_old(redis: Redis, owner: Owner) -> None:
    later = await two_sessions(redis, owner)
    later.service.intake.take(
        slot_messages(1, expiry_s=2) + slot_messages(2, expiry_s=60), later.epoch, SENDER, lambda _: None
    )
    await mended(redis, later)
    stored = sorted(item for item in redis.slot(SLOT).sessions[ID].items() if item[0][:1] == b"q")
    now_ms = later.machine.clock.wall_ms()
    left_s = [(message_parts(value)[3] - now_ms) / 1000 for _, value in stored]
    assert left_s == [0, 60 - bounds.SLOT_SPOILT_RETRY_S]


async def test_what_is_held_for_a_slot_that_goes_is_not_accepted(redis: Redis, owner: Owner) -> None:
    later = await two_sessions(redis, owner)
    done: list[bool] = []
    later.service.intake.take(slot_messages(1), later.epoch, SENDER, done.append)
    later.service.disown(SLOT)
    assert done == [False]
    assert not later.service.intake.is_holding


async def test_what_a_node_that_was_purged_sent_is_not_given_out_of_what_is_held(redis: Redis, owner: Owner) -> None:
    """Its marks may be gone, and it may come back and repeat it."""
    later = await two_sessions(redis, owner)
    later.service.intake.take(slot_messages(1), later.epoch, SENDER, lambda _: None)
    later.nodes = [REPLICANT]
    await mended(redis, later)
    assert waiting(redis, ID) == []


async def test_what_is_for_a_slot_of_which_too_much_waits_is_held_until_there_is_room(
    redis: Redis, owner: Owner
) -> None:
    subscribed(owner)
    owner.disk.full = True
    done: list[bool] = []
    owner.service.intake.take(slot_messages(1), owner.epoch, SENDER, done.append)
    owner.service.intake.advance()
    assert (done, waiting(redis, ID)) == ([], [])
    owner.disk.full = False
    owner.service.intake.advance()
    assert (done, waiting(redis, ID)) == ([True], [b"1"])


async def test_of_a_Redis_that_is_short_of_memory_nothing_new_begins_and_what_is_there_goes_on(owner: Owner) -> None:
    subscribed(owner)
    owner.disk.short = True
    other = clients_of_slot(1)[0]
    assert owner.service.open(Attach(other, REPLICANT, 3, request(3), ignore)) == messages.FULL
    [answer] = owner.subscribe(1, b"b/#")
    assert messages.decode_reasons(answer) == [Reason.QUOTA_EXCEEDED]
    done = owner.take(1)
    await owner.settle()
    assert (done, owner.payloads()) == ([True], [b"1"]), "what is under way is taken"


@pytest.mark.parametrize(("version", "kept"), [(4, [b"1"]), (5, [b"1", b"2"])])
async def test_of_a_Redis_that_is_short_nothing_waits_that_its_publisher_could_not_be_told_of(
    owner: Owner, version: int, kept: list[bytes]
) -> None:
    subscribed(owner)
    owner.service.leave(ID, 1, -1, False)
    owner.take(1)
    owner.disk.short = True
    slot_message = SlotMessage(SOURCE, 2, b"", version, publication(version, 1, False, b"a/b", b"2", b"").packet)
    done: list[bool] = []
    owner.service.intake.take([slot_message], owner.epoch, SENDER, done.append)
    await owner.settle()
    assert done == [True]
    assert owner.router.counters.dropped_queue_full == 2 - len(kept)
    owner.open(2, request(2))
    owner.take(3)
    await owner.settle()
    assert owner.payloads() == [*kept, b"3"], "who is there gets all"


async def test_a_message_is_accepted_and_sent_when_it_is_durable(owner: Owner) -> None:
    subscribed(owner)
    owner.disk.holds = True
    done = owner.take(1, 2)
    await owner.settle()
    assert (done, owner.payloads()) == ([], [])
    await owner.commit()
    assert (done, owner.payloads()) == ([True], [b"1", b"2"])


async def test_what_became_durable_waits_for_no_other_turn(owner: Owner) -> None:
    subscribed(owner)
    owner.disk.holds = True
    owner.take(1)
    await owner.settle()
    owner.disk.commit()
    assert len(owner.delivered) == 1


async def test_messages_are_for_slots_that_were_gained_by_their_epoch(owner: Owner) -> None:
    """A sender with older tables sends its message to the slot's owner that it knows too, or again."""
    subscribed(owner)
    assert owner.take(1, epoch=0) == [True]
    assert owner.take(1) == [True]
    await owner.settle()
    assert owner.payloads() == [b"1"], "not even marked the first time"


async def test_no_messages_are_taken_while_too_much_waits_for_Redis(owner: Owner) -> None:
    """They wait at their senders, which have bounds of their own."""
    assert not owner.service.intake.is_loading()
    owner.disk.full = True
    assert owner.service.intake.is_loading()


async def test_messages_that_can_not_be_read_are_let_go(owner: Owner) -> None:
    subscribed(owner)
    done: list[bool] = []
    good = publish(4, "a/b", "2", qos=1, packet_id=9)
    slot_messages = [SlotMessage(SOURCE, 1, b"", 4, b"\x32\x02\x00\x09"), SlotMessage(SOURCE, 2, b"", 4, good)]
    owner.service.intake.take(slot_messages, owner.epoch, SENDER, done.append)
    await owner.settle()
    assert done == [True]
    assert owner.payloads() == [b"2"]


async def test_a_session_that_can_not_take_a_message_keeps_it_from_no_other(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(owner)
    other = clients_of_slot(1)[0]
    owner.open(2, request(2), other)
    owner.service.ask(
        other, 2, (1, 0), messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""), lambda _: None
    )
    owner.packets()
    puts = owner.disk.put

    def fails_for_one(slot: int, client_id: bytes, *fields: bytes) -> None:
        if client_id == ID:
            raise RuntimeError(fields)
        puts(slot, client_id, *fields)

    monkeypatch.setattr(owner.disk, "put", fails_for_one)
    assert owner.take(1, 2) == [True]
    await owner.settle()
    owner.flush_soon()
    assert [chunk.count(b"a/b") for _, token, chunk in owner.delivered if token == 2] == [2]


async def test_QoS_0_goes_to_who_is_there(owner: Owner) -> None:
    subscribed(owner)
    run = publish(4, "a/b", "now") + publish(4, "b/c", "elsewhere")
    owner.service.intake.take_runs([SlotMessage(b"", 0, b"", 4, run)])
    assert owner.packets() == [publish(4, "a/b", "now")]
