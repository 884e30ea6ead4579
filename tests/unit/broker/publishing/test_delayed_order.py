"""A client's delayed messages keep their order, whatever keeps one of them from being sent."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from flockmq.publishing import delayed
from unit.broker.publishing.delayed_log import ANNES, JOS, Log, leave, rest


async def test_of_one_millisecond_the_first_taken_goes_first(log: Log) -> None:
    """The log has them in any order, and the clock may stand still or go back."""
    for number in range(50):
        log.now_s -= number % 2 / 1_000_000
        await log.hosts[1].take("$delayed/1000000100/t", str(number))
    log.now_s = 1_000_000_100
    log.tick(0)
    assert [await log.hosts[0].next() for _ in range(50)] == [str(number) for number in range(50)]


async def test_behind_what_cannot_be_sent_its_clients_next_ones_wait_and_no_others(log: Log) -> None:
    leader = log.hosts[0]
    leader.unwilling = {b"1"}
    for payload, authorization in (("1", JOS), ("2", JOS), ("other", ANNES)):
        await leave(leader, payload, authorization)
    log.tick(1)
    assert await leader.next() == "other"
    await leader.refused.wait()
    await leave(leader, "3", JOS)
    log.tick(1)
    await rest()
    assert leader.published.empty()
    leader.unwilling.clear()
    assert [await leader.next() for _ in range(3)] == ["1", "2", "3"]


async def test_behind_what_the_log_has_to_retain_first_its_clients_next_ones_wait(log: Log) -> None:
    leader = log.hosts[0]
    leader.may_retain = False
    for payload, retain in (("1", True), ("2", False), ("3", True)):
        await leave(leader, payload, JOS, retain=retain)
    log.tick(1)
    await leader.refused.wait()
    await rest()
    assert leader.published.empty()
    leader.may_retain = True
    leader.retained.clear()
    assert [await leader.next() for _ in range(3)] == ["1", "2", "3"]
    assert leader.retained == [b"1", b"3"]


async def test_what_was_retained_before_an_earlier_one_could_be_is_retained_again_behind_it(log: Log) -> None:
    leader = log.hosts[0]
    leader.unretained = {b"1"}
    for payload in ("1", "2"):
        await leave(leader, payload, JOS, retain=True)
    log.tick(1)
    await leader.refused.wait()
    leader.unretained.clear()
    assert [await leader.next() for _ in range(2)] == ["1", "2"]
    assert leader.retained[-2:] == [b"1", b"2"]


async def test_behind_one_that_may_not_be_published_any_more_its_clients_next_ones_keep_their_order(log: Log) -> None:
    leader = log.hosts[0]
    leader.unwilling = {b"1"}
    await leave(leader, "1", JOS)
    await leave(leader, "2", JOS)
    log.tick(1)
    await leader.refused.wait()
    log.dropped.append(JOS)
    leader.unwilling.clear()
    await leave(leader, "3", ANNES)
    log.tick(1)
    assert await leader.next() == "3"
    await rest()
    assert (log.rows, leader.published.empty()) == ({}, True)


async def test_one_users_messages_that_are_not_accepted_hold_no_other_users_up(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "DELAYED_UNDER_WAY_OF_USER_MAX", 2)
    monkeypatch.setattr(delayed, "DELAYED_UNDER_WAY_MAX", 4)
    leader = log.hosts[0]
    leader.unaccepted = {b"stuck %d" % number: asyncio.Event() for number in range(4)}
    for number in range(4):
        await leave(leader, f"stuck {number}", msgspec.structs.replace(ANNES, client_id=b"anne %d" % number))
    for number in range(3):
        await leave(leader, f"jo's {number}", JOS)
    log.tick(1)
    assert [await leader.next() for _ in range(5)] == ["stuck 0", "stuck 1", "jo's 0", "jo's 1", "jo's 2"]
    await rest()
    assert leader.published.empty()
    for accepted in leader.unaccepted.values():
        accepted.set()
    assert [await leader.next() for _ in range(2)] == ["stuck 2", "stuck 3"]
