"""Members of shared subscriptions whose sessions last: they get what is dealt out to their slot, once and for good."""

from __future__ import annotations

import pytest

from flockmq.bounds import SHARED_HOPS_MAX
from flockmq.mqtt.message import publication
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.group import MembersElsewhere
from flockmq.routing.shared_frames import SHARED, unwrap, wrap
from flockmq.routing.slots import SlotMessage, addressed
from flockmq.session.remote_session import PUBACK, pair
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SENDER, SLOT, SOURCE, Owner, another, clients_of_slot, request

GROUP = b"$share/g/a/#"
OTHER = SLOT + 1
_PLAIN = 2


def join(owner: Owner, token: int, client_id: bytes = ID, qos: int = 1) -> None:
    owner.open(token, request(token), client_id)
    owner.service.ask(
        client_id,
        token,
        (1, 0),
        messages.SubscribeQuestion([messages.WantedSubscription(GROUP, qos)], b""),
        lambda _: None,
    )
    owner.packets()


def item(payload: bytes, qos: int = 1, number: int = 0, slot: int = SLOT) -> bytes:
    packet = publication(4, qos, False, b"a/b", payload, b"").packet
    return slot.to_bytes(2, "big") + wrap(GROUP, number, 0 if qos else _PLAIN, packet)


def take(owner: Owner, *numbers: int, epoch: int | None = None) -> list[bool]:
    """Messages with these numbers, whose payload they are, dealt out in turn; what the sender hears."""
    done: list[bool] = []
    slot_messages = [SlotMessage(SOURCE, n, b"", 4 | SHARED, item(b"%d" % n, number=n)) for n in numbers]
    owner.service.intake.take(slot_messages, owner.epoch if epoch is None else epoch, SENDER, done.append)
    return done


@pytest.mark.parametrize("member_qos", [0, 1, 2])
async def test_what_is_dealt_out_is_accepted_once_it_is_durable(owner: Owner, member_qos: int) -> None:
    join(owner, 1, qos=member_qos)
    owner.disk.holds = True
    done = take(owner, 1, 2)
    await owner.settle()
    assert done == []
    await owner.commit()
    assert done == [True]
    assert len(owner.packets()) == 2


async def test_each_member_of_the_slot_has_its_number(owner: Owner) -> None:
    members = clients_of_slot(3)
    for token, client_id in enumerate(members, start=1):
        join(owner, token, client_id)
    take(owner, 3, 4, 5, 6)
    owner.flush_soon()
    assert sorted(len(packets) for _, _, packets in owner.delivered) == [10, 10, 20]


async def test_what_comes_again_is_a_repeat_for_the_next_owner_as_well(redis: Redis, owner: Owner) -> None:
    join(owner, 1)
    take(owner, 1)
    take(owner, 1)
    assert owner.payloads() == [b"1"]
    owner.service.report(REPLICANT, 1, pair(PUBACK, 1))
    later = await another(redis)
    assert take(later, 1, 2) == [True]
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    await later.settle()
    assert later.payloads() == [b"2"]


async def test_what_a_fenced_owner_took_is_not_accepted_and_goes_to_the_next(redis: Redis, owner: Owner) -> None:
    join(owner, 1)
    later = await another(redis)
    owner.disk.holds = True
    done = take(owner, 1)
    await owner.commit()
    assert (done, owner.payloads()) == ([False], [])
    assert later.router.count(SLOT, GROUP) == (0, 1)
    assert take(later, 1) == [True]
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    await later.settle()
    assert later.router.count(SLOT, GROUP) == (1, 0)
    assert later.payloads() == [b"1"]


async def test_what_was_sent_before_the_slot_came_is_not_taken_for_it(owner: Owner) -> None:
    join(owner, 1)
    assert take(owner, 1, epoch=owner.epoch - 1) == [True]
    assert owner.payloads() == []
    take(owner, 1)
    assert owner.payloads() == [b"1"]


async def test_runs_of_qos_0_reach_the_member(owner: Owner) -> None:
    join(owner, 1, qos=0)
    owner.service.intake.take_runs([SlotMessage(b"", 0, b"", 4 | SHARED, item(b"1", 0) + item(b"2", 0)[2:])])
    assert [packet[-1:] for packet in owner.packets()] == [b"1", b"2"]


async def test_where_no_member_is_left_it_goes_on_to_another_slot_so_often(owner: Owner) -> None:
    missing: list[tuple[int, bytes]] = []
    owner.router.on_missing = lambda *where: missing.append(where)
    shared = owner.router.shared
    others = MembersElsewhere(GROUP)
    others.nodes = {f"#{SLOT}": (1, 0), f"#{OTHER}": (1, 0)}
    index = FilterIndex()
    index.add(b"a/#", others)
    shared.replace_remote(index, {GROUP: others})
    shared.find_peer = lambda slot: owner.slot_peers.peer(int(slot[1:]))
    assert take(owner, 1) == [True]
    ((slot, chunk),) = owner.dispatcher.shared
    assert (slot, missing) == (OTHER, [(SLOT, GROUP)])
    to_slot, items = addressed(chunk)
    assert to_slot == OTHER
    again = [(passed.filter, passed.run[-1:]) for passed in unwrap(items)]
    assert again == [(GROUP, b"1")]
    hops = 0
    while owner.dispatcher.shared:
        hops += 1
        ((_, chunk),) = owner.dispatcher.shared
        owner.dispatcher.shared.clear()
        slot_message = SlotMessage(SOURCE, 1 + hops, b"", 4 | SHARED, SLOT.to_bytes(2, "big") + addressed(chunk)[1])
        owner.service.intake.take([slot_message], owner.epoch, SENDER, lambda _: None)
    assert hops == SHARED_HOPS_MAX
    assert owner.router.counters.dropped_no_member == 1


async def test_what_no_node_of_ours_sends_is_refused_and_the_rest_is_taken(owner: Owner) -> None:
    join(owner, 1)
    slot_messages = [
        SlotMessage(SOURCE, n, b"", 4 | SHARED, chunk) for n, chunk in enumerate((b"", b"\0", item(b"3")), start=1)
    ]
    slot_messages[1].packet = item(b"2")[:-3]
    owner.service.intake.take(slot_messages, owner.epoch, SENDER, lambda _: None)
    assert owner.payloads() == [b"3"]


async def test_members_are_counted_as_they_come_and_go(owner: Owner) -> None:
    counted: list[tuple[int, int]] = []
    owner.router.on_count = lambda slot, filter, user: counted.append(owner.router.count(slot, filter))
    join(owner, 1)
    owner.service.leave(ID, 1, 60, False)
    owner.open(2, request(2))
    owner.ask(2, messages.UnsubscribeQuestion([GROUP], b"1"))
    assert [counts for at, counts in enumerate(counted) if at == 0 or counts != counted[at - 1]] == [
        (1, 0), (0, 1), (1, 0), (0, 0),
    ]  # fmt: skip
    assert owner.router.members() == 0
