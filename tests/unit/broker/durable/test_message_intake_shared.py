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
from unit.broker.durable.rooms import EDGE, ID, SENDER, SLOT, SOURCE, Home, another, opening, roommates

GROUP = b"$share/g/a/#"
OTHER = SLOT + 1
_PLAIN = 2


def join(home: Home, token: int, client_id: bytes = ID, qos: int = 1) -> None:
    home.open(token, opening(token), client_id)
    home.residents.ask(
        client_id,
        token,
        (1, 0),
        messages.SubscribeQuestion([messages.WantedSubscription(GROUP, qos)], b""),
        lambda _: None,
    )
    home.packets()


def item(payload: bytes, qos: int = 1, number: int = 0, slot: int = SLOT) -> bytes:
    packet = publication(4, qos, False, b"a/b", payload, b"").packet
    return slot.to_bytes(2, "big") + wrap(GROUP, number, 0 if qos else _PLAIN, packet)


def take(home: Home, *numbers: int, epoch: int | None = None) -> list[bool]:
    """Letters with these numbers, whose payload they are, dealt out in turn; what the sender hears."""
    done: list[bool] = []
    letters = [SlotMessage(SOURCE, n, b"", 4 | SHARED, item(b"%d" % n, number=n)) for n in numbers]
    home.residents.intake.take(letters, home.epoch if epoch is None else epoch, SENDER, done.append)
    return done


@pytest.mark.parametrize("member_qos", [0, 1, 2])
async def test_what_is_dealt_out_is_accepted_once_it_is_durable(home: Home, member_qos: int) -> None:
    join(home, 1, qos=member_qos)
    home.disk.holds = True
    done = take(home, 1, 2)
    await home.settle()
    assert done == []
    await home.commit()
    assert done == [True]
    assert len(home.packets()) == 2


async def test_each_member_of_the_slot_has_its_number(home: Home) -> None:
    members = roommates(3)
    for token, client_id in enumerate(members, start=1):
        join(home, token, client_id)
    take(home, 3, 4, 5, 6)
    home.flush_soon()
    assert sorted(len(packets) for _, _, packets in home.delivered) == [10, 10, 20]


async def test_what_comes_again_is_a_repeat_for_the_next_home_as_well(redis: Redis, home: Home) -> None:
    join(home, 1)
    take(home, 1)
    take(home, 1)
    assert home.payloads() == [b"1"]
    home.residents.report(EDGE, 1, pair(PUBACK, 1))
    later = await another(redis)
    assert take(later, 1, 2) == [True]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    assert later.payloads() == [b"2"]


async def test_what_a_fenced_home_took_is_not_accepted_and_goes_to_the_next(redis: Redis, home: Home) -> None:
    join(home, 1)
    later = await another(redis)
    home.disk.holds = True
    done = take(home, 1)
    await home.commit()
    assert (done, home.payloads()) == ([False], [])
    assert later.router.count(SLOT, GROUP) == (0, 1)
    assert take(later, 1) == [True]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    assert later.router.count(SLOT, GROUP) == (1, 0)
    assert later.payloads() == [b"1"]


async def test_what_was_sent_before_the_slot_came_is_not_taken_for_it(home: Home) -> None:
    join(home, 1)
    assert take(home, 1, epoch=home.epoch - 1) == [True]
    assert home.payloads() == []
    take(home, 1)
    assert home.payloads() == [b"1"]


async def test_runs_of_qos_0_reach_the_member(home: Home) -> None:
    join(home, 1, qos=0)
    home.residents.intake.take_runs([SlotMessage(b"", 0, b"", 4 | SHARED, item(b"1", 0) + item(b"2", 0)[2:])])
    assert [packet[-1:] for packet in home.packets()] == [b"1", b"2"]


async def test_where_no_member_is_left_it_goes_on_to_another_slot_so_often(home: Home) -> None:
    missing: list[tuple[int, bytes]] = []
    home.router.on_missing = lambda *where: missing.append(where)
    shared = home.router.shared
    others = MembersElsewhere(GROUP)
    others.nodes = {f"#{SLOT}": (1, 0), f"#{OTHER}": (1, 0)}
    index = FilterIndex()
    index.add(b"a/#", others)
    shared.replace_remote(index, {GROUP: others})
    shared.find_peer = lambda owner: home.slot_peers.peer(int(owner[1:]))
    assert take(home, 1) == [True]
    ((slot, chunk),) = home.courier.shared
    assert (slot, missing) == (OTHER, [(SLOT, GROUP)])
    to_slot, items = addressed(chunk)
    assert to_slot == OTHER
    again = [(passed.filter, passed.run[-1:]) for passed in unwrap(items)]
    assert again == [(GROUP, b"1")]
    hops = 0
    while home.courier.shared:
        hops += 1
        ((_, chunk),) = home.courier.shared
        home.courier.shared.clear()
        letter = SlotMessage(SOURCE, 1 + hops, b"", 4 | SHARED, SLOT.to_bytes(2, "big") + addressed(chunk)[1])
        home.residents.intake.take([letter], home.epoch, SENDER, lambda _: None)
    assert hops == SHARED_HOPS_MAX
    assert home.router.counters.dropped_no_member == 1


async def test_what_no_node_of_ours_sends_is_refused_and_the_rest_is_taken(home: Home) -> None:
    join(home, 1)
    letters = [
        SlotMessage(SOURCE, n, b"", 4 | SHARED, chunk) for n, chunk in enumerate((b"", b"\0", item(b"3")), start=1)
    ]
    letters[1].packet = item(b"2")[:-3]
    home.residents.intake.take(letters, home.epoch, SENDER, lambda _: None)
    assert home.payloads() == [b"3"]


async def test_members_are_counted_as_they_come_and_go(home: Home) -> None:
    counted: list[tuple[int, int]] = []
    home.router.on_count = lambda slot, filter: counted.append(home.router.count(slot, filter))
    join(home, 1)
    home.residents.leave(ID, 1, 60, False)
    home.open(2, opening(2))
    home.ask(2, messages.UnsubscribeQuestion([GROUP], b"1"))
    assert [counts for at, counts in enumerate(counted) if at == 0 or counts != counted[at - 1]] == [
        (1, 0), (0, 1), (1, 0), (0, 0),
    ]  # fmt: skip
    assert home.router.members() == 0
