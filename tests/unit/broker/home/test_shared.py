"""Members of shared subscriptions whose sessions last: what they got is acknowledged once it is durable."""

from __future__ import annotations

import pytest

from flockmq.home import wire
from flockmq.home.registry import slot_of
from flockmq.session.publish import publication
from flockmq.session.shared import wrap
from unit.broker.home.redis import Redis
from unit.broker.home.rooms import ID, SLOT, Home, another, opening

GROUP = b"$share/g/a/#"
ELSEWHERE = next(b"%d" % number for number in range(100) if slot_of(b"%d" % number) != SLOT)


def join(home: Home, token: int, client_id: bytes = ID, qos: int = 1) -> None:
    home.open(token, opening(token), client_id)
    home.residents.ask(client_id, token, (1, 0), wire.Subscribe([wire.Wanted(GROUP, qos)], b""), lambda _: None)
    home.packets()


def dispatch(home: Home, payload: bytes, qos: int = 1) -> list[bool]:
    """Whether it is accepted, once it is."""
    accepted: list[bool] = []
    shared = home.router.shared
    group = shared.group(GROUP)
    assert group is not None
    message = publication(4, qos, False, b"a/b", payload, b"")
    asked = shared.dispatch(group, message, None, lambda: accepted.append(True))
    return accepted if asked else [True]


@pytest.mark.parametrize("member_qos", [1, 2])
async def test_a_message_is_accepted_once_its_member_has_it_for_good(home: Home, member_qos: int) -> None:
    join(home, 1, qos=member_qos)
    home.disk.holds = True
    accepted = dispatch(home, b"1")
    await home.settle()
    assert accepted == []
    await home.commit()
    assert accepted == [True]


async def test_QoS_0_waits_for_nothing(home: Home) -> None:
    join(home, 1)
    home.disk.holds = True
    assert dispatch(home, b"1", qos=0) == [True]


async def test_a_member_of_QoS_0_is_not_waited_for(home: Home) -> None:
    join(home, 1, qos=0)
    home.disk.holds = True
    assert dispatch(home, b"1") == [True]


async def test_what_another_node_dealt_out_is_accepted_once_it_is_durable(home: Home) -> None:
    join(home, 1)
    home.disk.holds = True
    accepted: list[bool] = []
    packets = [publication(4, 1, False, b"a/b", b"%d" % number, b"").packet for number in range(2)]
    chunk = b"".join(wrap(GROUP, 0, 0, packet) for packet in packets)
    assert home.router.shared.take(4, chunk, lambda: accepted.append(True)) == 2
    await home.settle()
    assert accepted == []
    await home.commit()
    assert accepted == [True, True]
    assert home.payloads() == [b"0", b"1"]


async def test_what_never_becomes_durable_here_goes_to_another_member(redis: Redis, home: Home) -> None:
    await home.own(slot_of(ELSEWHERE))
    join(home, 1)
    join(home, 2, ELSEWHERE)
    await another(redis)
    home.disk.holds = True
    accepted = [dispatch(home, b"%d" % number) for number in range(2)]
    await home.commit()
    await home.commit()
    assert accepted == [[True], [True]]
    assert sorted(home.payloads()) == [b"0", b"1"]
    assert home.router.shared.count(GROUP) == (1, 0)
