"""What is retained comes once to a durable session, though its owner dies amid it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flockmq.clock import SYSTEM
from flockmq.durable.retained_progress import RetainedProgress
from flockmq.durable.session import DurableSession
from flockmq.publishing.retained_feed import RetainedFeed, RetainedSender
from flockmq.rlog.schema import RetainedMessage
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription
from unit.broker.durable.session_owner import Disk, SessionOwner, add_subscription, to_proxy

TOPICS = [b"a/%d" % number for number in range(9)]
PATIENCE_S = 5


class Told(RetainedProgress):
    def __init__(self, router: Router, may_note: Callable[[], bool]) -> None:
        super().__init__(router, may_note)
        self.all_given = asyncio.Event()

    def finished(self, subscription: Subscription) -> None:
        super().finished(subscription)
        self.all_given.set()


def subscribed(session: DurableSession, qos: int) -> Subscription:
    subscription = Subscription(session, b"a/#", qos)
    add_subscription(session, subscription)
    session.await_retained(subscription)
    return subscription


async def given(owner: SessionOwner, subscription: Subscription, *, may_note: bool = True) -> None:
    """All that it awaits is put for it."""
    retained = RetainedFeed()
    for topic in TOPICS:
        retained.put(topic, RetainedMessage(b"x", 2, b"", 4), None)

    async def caught_up() -> bool:
        return True

    giving = Told(owner.router, lambda: may_note)
    RetainedSender(retained, giving, caught_up, lambda: None, SYSTEM).start([subscription], True)
    async with asyncio.timeout(PATIENCE_S):
        await giving.all_given.wait()


def topics_on(disk: Disk) -> list[bytes]:
    """Of the messages that the next owner finds, in their order."""
    packets = [value for field, value in sorted(disk.fields().items()) if field[:1] == b"q"]
    return [packet[-6:-3] for packet in packets]


@pytest.mark.parametrize("put", range(len(TOPICS) + 1))
async def test_the_next_owner_goes_on_where_the_former_one_was(put: int) -> None:
    owner = SessionOwner()
    session = owner.opened()
    subscription = subscribed(session, 2)
    owner.settle()
    await given(owner, subscription)
    ops = [op for op in owner.disk.waiting if not callable(op)]
    messages = [op for op in ops if any(field[:1] == b"q" for field in op[1])]
    owner.disk.waiting = [op for op in ops if b"m" in op[1]] + messages[:put]
    owner.disk.commit()
    assert topics_on(owner.disk) == TOPICS[:put]

    later = SessionOwner(owner.disk)
    restored = later.restored()
    again = restored.subscriptions.find(b"a/#")
    assert again is not None
    assert restored.record.awaits_retained(b"a/#")
    restored.resume(later.fresh())
    await given(later, again)
    later.settle()
    assert topics_on(owner.disk) == TOPICS
    assert not later.restored().record.awaits_retained(b"a/#")


async def test_a_session_that_got_all_that_is_retained_costs_the_garbage_collector_nothing_for_it() -> None:
    owner = SessionOwner()
    session = owner.opened()
    subscription = subscribed(session, 2)
    await given(owner, subscription)
    owner.settle()
    assert session.record.pending_retained is None
    session.record.await_retained(subscription)
    session.record.drop_subscription(subscription.filter)
    assert session.record.pending_retained is None


@pytest.mark.parametrize(("qos", "may_note"), [(0, True), (2, False)])
async def test_nothing_is_noted_of_what_is_not_durable_or_where_a_node_would_not_understand_it(
    qos: int, may_note: bool
) -> None:
    owner = SessionOwner()
    subscription = subscribed(owner.opened(), qos)
    await given(owner, subscription, may_note=may_note)
    ops = [op for op in owner.disk.waiting if not callable(op)]
    assert not any(field[:1] == b"o" for op in ops for field in op[1])


async def test_a_client_that_is_away_gets_the_rest_when_it_is_back() -> None:
    owner = SessionOwner()
    session = owner.opened()
    subscription = subscribed(session, 0)
    session.leave(owner.router.away4)
    giving = asyncio.ensure_future(given(owner, subscription))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not session.messages.queue
    session.resume(owner.fresh())
    owner.settle()
    session.send_again()
    await giving
    assert len(to_proxy(session).packets()) == len(TOPICS)
