"""One SUBSCRIBE at the owner of its session, step by step: claimed, routed, durable, answered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from flockmq.bounds import QUOTA_SHARES
from flockmq.durable.client_requests import ClientRequests, DurableSubscribePort
from flockmq.durable.router import DurableRouter
from flockmq.mqtt.reason import Reason
from flockmq.quotas import UNLIMITED, Quotas
from flockmq.routing.router import Router
from flockmq.routing.sink import SinkHost
from flockmq.routing.slots import SlotPeers
from flockmq.routing.subscriber import Subscription
from flockmq.routing.targets import SlotDispatcher
from flockmq.session_rpc import messages
from flockmq.telemetry.counters import Counters
from unit.broker.durable.session_owner import SessionOwner, add_subscription

OTHER = b"a/#"
EXCLUSIVE = b"$exclusive/x"
NONCE = b"a nonce!"
NEW_ONLY = 1 << 4
NEVER = 2 << 4


class ClusterPort:
    """Each step waits until a test takes it."""

    def __init__(self) -> None:
        self.claims: list[tuple[list[bytes], Callable[[dict[bytes, int]], None]]] = []
        self.turns: list[bytes] = []
        self.released: list[bytes] = []
        self.routes: list[tuple[list[bytes], Callable[[int], None]]] = []
        self.seeing: list[Callable[[bool], None]] = []
        self.awaiting_retained: list[tuple[list[bytes], bool]] = []

    def claim(
        self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None], user: bytes
    ) -> None:
        self.claims.append((filters, done))
        self.turns.append(user)

    def release(self, client_id: bytes, filters: list[bytes]) -> None:
        self.released += filters

    def route_slot(self, slot: int, filters: list[bytes], done: Callable[[int], None], user: bytes) -> None:
        self.routes.append((filters, done))

    def unrouted_slot(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        raise AssertionError("nobody unsubscribes")

    def filters_loaded(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        raise AssertionError("nobody comes")

    def slot_gone(self, slot: int) -> None:
        raise AssertionError("no slot goes")

    def knows_subscribes(self) -> bool:
        return True

    def see_retained(self, then: Callable[[bool], None]) -> None:
        self.seeing.append(then)

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self.awaiting_retained.append(([subscription.filter for subscription in subscriptions], saw_all))


class Asked:
    def __init__(self) -> None:
        self.owner = SessionOwner()
        own = Router(SinkHost(Counters()), 1 << 20)
        self.router = DurableRouter(own, SlotPeers(SlotDispatcher()))
        self.session = self.owner.opened(version=5)
        self.cluster = ClusterPort()
        self.answers: list[list[int]] = []
        self.is_connected = True
        self.redis_is_short = False

    def subscribe(self, *wanted: tuple[bytes, int], nonce: bytes = b"") -> None:
        question = messages.SubscribeQuestion([messages.WantedSubscription(*one) for one in wanted], b"", nonce)
        manager = SimpleNamespace(router=self.router, settle=lambda slot, then: self.settle(then))
        requests = SimpleNamespace(
            host=self.cluster,
            manager=manager,
            store=SimpleNamespace(is_short=lambda slot: self.redis_is_short),
            session_of=lambda token: self.session if self.is_there() else None,
        )
        DurableSubscribePort(cast(ClientRequests, requests), self.session, 1, [], self.answer).subscribe(question)

    def routed(self) -> None:
        """The log has all routes, and this node all that is retained."""
        while self.cluster.routes:
            self.cluster.routes.pop(0)[1](Reason.SUCCESS)
        while self.cluster.seeing:
            self.cluster.seeing.pop(0)(True)
        self.owner.settle()

    def sent(self, filter: bytes) -> None:
        """All that is retained for it."""
        subscription = self.session.subscriptions.find(filter)
        assert subscription is not None
        self.session.retained_sent(subscription)

    def is_there(self) -> bool:
        return self.is_connected and not self.session.has_ended()

    def settle(self, then: Callable[[], None]) -> None:
        self.session.writer.barrier(lambda durable: then() if durable else None)

    def answer(self, answer: bytes) -> None:
        self.answers.append(messages.decode_reasons(answer))

    def filters(self) -> list[bytes]:
        return [subscription.filter for subscription in self.session.subscriptions.all()]


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_it_is_answered_when_it_is_routed_seen_and_durable(asked: Asked) -> None:
    asked.subscribe((OTHER, 1))
    ((filters, routed),) = asked.cluster.routes
    assert (filters, asked.filters(), asked.answers) == ([OTHER], [OTHER], [])
    routed(Reason.SUCCESS)
    asked.cluster.seeing[0](True)
    assert (asked.answers, asked.cluster.awaiting_retained) == ([], [])
    asked.owner.settle()
    assert asked.answers == [[1]]
    assert asked.cluster.awaiting_retained == [([OTHER], True)], "behind the answer"


def test_who_wants_nothing_that_is_retained_does_not_wait_for_it(asked: Asked) -> None:
    asked.subscribe((OTHER, 1 | NEVER))
    asked.cluster.routes[0][1](Reason.SUCCESS)
    asked.owner.settle()
    assert (asked.answers, asked.cluster.seeing, asked.cluster.awaiting_retained) == ([[1]], [], [])


def test_a_filter_that_was_there_gets_no_retained_messages_if_only_new_ones_do(asked: Asked) -> None:
    for seen in (1, 1):
        asked.subscribe((OTHER, 1 | NEW_ONLY))
        asked.cluster.routes.pop()[1](Reason.SUCCESS)
        assert len(asked.cluster.seeing) == seen
        asked.cluster.seeing[0](True)
        for subscription in asked.session.subscriptions.all():
            asked.session.retained_sent(subscription)


def test_a_filter_that_still_awaits_what_is_retained_gets_it_by_the_new_subscription(asked: Asked) -> None:
    for _ in range(2):
        asked.subscribe((OTHER, 1 | NEW_ONLY))
        asked.cluster.routes.pop()[1](Reason.SUCCESS)
    assert len(asked.cluster.seeing) == 2


@pytest.mark.parametrize("handling", [0, NEW_ONLY])
def test_a_SUBSCRIBE_that_is_asked_again_gets_no_retained_messages_again(asked: Asked, handling: int) -> None:
    for _ in range(2):
        asked.subscribe((OTHER, 2 | handling), nonce=NONCE)
        asked.routed()
        if not asked.session.record.awaits_retained(OTHER):
            break
        asked.sent(OTHER)
    assert asked.answers == [[2], [2]]
    assert asked.cluster.awaiting_retained == [([OTHER], True)]


def test_another_SUBSCRIBE_of_the_same_filter_gets_them_again(asked: Asked) -> None:
    for nonce in (NONCE, b"another!"):
        asked.subscribe((OTHER, 2), nonce=nonce)
        asked.routed()
        asked.sent(OTHER)
    assert asked.cluster.awaiting_retained == [([OTHER], True)] * 2


def test_while_they_are_sent_one_that_is_asked_again_goes_on_where_that_was(asked: Asked) -> None:
    asked.subscribe((OTHER, 2), nonce=NONCE)
    asked.routed()
    asked.session.record.begin_retained(OTHER, b"a/1", None)
    asked.subscribe((OTHER, 2), nonce=NONCE)
    asked.routed()
    assert asked.session.record.retained_up_to(OTHER) == b"a/1"
    assert asked.cluster.awaiting_retained == [([OTHER], True)] * 2
    asked.subscribe((OTHER, 2), nonce=b"another!")
    assert asked.session.record.retained_up_to(OTHER) == b"", "a new one gets all of them"


def test_when_they_were_sent_one_that_was_asked_again_amid_its_route_gets_none(asked: Asked) -> None:
    asked.subscribe((OTHER, 1), nonce=NONCE)
    asked.subscribe((OTHER, 1), nonce=NONCE)
    first, again = asked.cluster.routes
    asked.cluster.routes = [first]
    asked.routed()
    asked.sent(OTHER)
    asked.cluster.routes = [again]
    asked.routed()
    assert asked.answers == [[1], [1]]
    assert asked.cluster.awaiting_retained == [([OTHER], True)]


def test_one_that_is_asked_again_gets_them_for_what_was_refused_at_first(asked: Asked) -> None:
    asked.session.limits.max_subscriptions = 1
    asked.subscribe((OTHER, 1), (b"b", 1), nonce=NONCE)
    asked.routed()
    asked.sent(OTHER)
    asked.session.limits.max_subscriptions = 2
    asked.subscribe((OTHER, 1), (b"b", 1), nonce=NONCE)
    asked.routed()
    assert asked.answers == [[1, Reason.QUOTA_EXCEEDED], [1, 1]]
    assert asked.cluster.awaiting_retained == [([OTHER], True), ([b"b"], True)]


def test_while_redis_is_short_of_memory_only_what_the_session_has_already_is_granted(asked: Asked) -> None:
    """A former owner may have committed it, and could not answer any more."""
    add_subscription(asked.session, Subscription(asked.session, OTHER, 1))
    asked.redis_is_short = True
    asked.subscribe((OTHER, 1 | NEVER), (b"b", 1), (EXCLUSIVE, 1))
    assert asked.cluster.claims == []
    ((filters, routed),) = asked.cluster.routes
    assert filters == [OTHER]
    routed(Reason.SUCCESS)
    asked.owner.settle()
    assert asked.answers == [[1, Reason.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED]]
    assert asked.filters() == [OTHER]


def test_filters_that_the_log_did_not_take_are_out_again(asked: Asked) -> None:
    asked.subscribe((OTHER, 1), (b"b", 2), (b"$share/g/c", 4))
    asked.cluster.routes[0][1](Reason.QUOTA_EXCEEDED)
    ((one, two, three),) = asked.answers
    assert (one, two) == (Reason.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED)
    assert three >= 0x80, "no local is an error with a shared subscription"
    assert asked.filters() == []
    assert not asked.router.wanted


def test_a_filter_that_was_there_before_stays_when_the_log_does_not_take_it_again(asked: Asked) -> None:
    asked.subscribe((OTHER, 1 | NEVER))
    asked.cluster.routes.pop()[1](Reason.SUCCESS)
    asked.owner.settle()
    asked.subscribe((OTHER, 2 | NEVER), (b"new", 1 | NEVER))
    asked.cluster.routes.pop()[1](Reason.UNSPECIFIED_ERROR)
    assert asked.answers == [[1], [Reason.UNSPECIFIED_ERROR] * 2]
    assert asked.filters() == [OTHER]


def test_a_later_SUBSCRIBE_of_the_same_filter_stays_when_the_earlier_is_refused(asked: Asked) -> None:
    asked.subscribe((OTHER, 1))
    asked.subscribe((OTHER, 2))
    asked.cluster.routes[0][1](Reason.UNSPECIFIED_ERROR)
    assert asked.answers == [[Reason.UNSPECIFIED_ERROR]]
    assert asked.filters() == [OTHER]


@pytest.mark.parametrize("first", [Reason.SUCCESS, Reason.UNSPECIFIED_ERROR])
def test_a_filter_stays_if_one_of_two_SUBSCRIBEs_was_granted_and_goes_if_both_are_refused(
    asked: Asked, first: int
) -> None:
    """The second may be the same one, which was asked again."""
    asked.subscribe((OTHER, 1 | NEVER), nonce=NONCE)
    asked.subscribe((OTHER, 1 | NEVER), nonce=NONCE)
    asked.cluster.routes[0][1](first)
    asked.owner.settle()
    asked.cluster.routes[1][1](Reason.UNSPECIFIED_ERROR)
    assert asked.filters() == ([OTHER] if first == Reason.SUCCESS else [])
    assert asked.answers[1] == [Reason.UNSPECIFIED_ERROR]


def test_an_exclusive_filter_is_claimed_first(asked: Asked) -> None:
    asked.session.limits.exclusive_subscription = True
    asked.subscribe((EXCLUSIVE, 1), (OTHER, 1))
    ((filters, claimed),) = asked.cluster.claims
    assert (filters, asked.filters()) == ([EXCLUSIVE], [])
    assert asked.cluster.turns == [asked.session.takes_turns_as()]
    claimed({EXCLUSIVE: 0x97})
    assert [filters for filters, _ in asked.cluster.routes] == [[OTHER]]
    asked.cluster.routes[0][1](Reason.SUCCESS)
    asked.cluster.seeing[0](True)
    asked.owner.settle()
    assert asked.answers == [[0x97, 1]]
    assert asked.cluster.released == []


def test_a_claim_that_nobody_uses_is_released(asked: Asked) -> None:
    asked.session.limits.exclusive_subscription = True
    asked.subscribe((EXCLUSIVE, 1))
    asked.session.abandon()
    asked.cluster.claims[0][1]({})
    assert asked.cluster.released == [EXCLUSIVE]
    assert asked.cluster.routes == []


def test_a_claim_that_comes_when_the_session_runs_elsewhere_places_nothing_here(asked: Asked) -> None:
    asked.session.limits.exclusive_subscription = True
    asked.subscribe((EXCLUSIVE, 1), (b"$share/g/a", 1))
    asked.session.writer.is_closed = True
    asked.cluster.claims[0][1]({})
    assert (asked.filters(), asked.cluster.routes, asked.cluster.released) == ([], [], [EXCLUSIVE])


def test_a_claim_that_comes_when_its_connection_is_gone_is_released_when_what_a_later_one_asked_is_durable(
    asked: Asked,
) -> None:
    asked.session.limits.exclusive_subscription = True
    add_subscription(asked.session, Subscription(asked.session, EXCLUSIVE, 1))
    asked.owner.settle()
    asked.subscribe((EXCLUSIVE, 1), (OTHER, 1))
    asked.is_connected = False
    asked.session.remove_subscription(EXCLUSIVE)
    asked.cluster.claims[0][1]({})
    assert (asked.filters(), asked.cluster.routes, asked.cluster.released) == ([], [], [])
    asked.owner.settle()
    assert asked.cluster.released == [EXCLUSIVE]


def test_a_claim_whose_filter_the_log_did_not_take_is_released_when_it_is_durable_that_it_is_out_again(
    asked: Asked,
) -> None:
    asked.session.limits.exclusive_subscription = True
    asked.subscribe((EXCLUSIVE, 1), (OTHER, 1))
    asked.cluster.claims[0][1]({})
    asked.cluster.routes[0][1](Reason.QUOTA_EXCEEDED)
    assert (asked.filters(), asked.cluster.released) == ([], [])
    asked.owner.settle()
    assert asked.cluster.released == [EXCLUSIVE]


def test_a_claim_waits_until_what_was_unsubscribed_before_it_is_durable(asked: Asked) -> None:
    """What was claimed for that is released then."""
    asked.session.limits.exclusive_subscription = True
    add_subscription(asked.session, Subscription(asked.session, EXCLUSIVE, 1))
    asked.owner.settle()
    asked.session.remove_subscription(EXCLUSIVE)
    asked.settle(partial(asked.cluster.release, asked.session.client_id, [EXCLUSIVE]))
    asked.subscribe((EXCLUSIVE, 1))
    assert (asked.cluster.released, asked.cluster.claims) == ([], [])
    asked.owner.settle()
    assert asked.cluster.released == [EXCLUSIVE]
    assert [filters for filters, _ in asked.cluster.claims] == [[EXCLUSIVE]]


@pytest.mark.parametrize("is_still_free", [True, False])
def test_what_was_claimed_before_it_waited_for_room_is_claimed_again(asked: Asked, is_still_free: bool) -> None:
    """While a session doesn't use its claim, that may be deleted as one that nobody uses, and the filter another's."""
    quotas = Quotas(UNLIMITED._replace(subscriptions=2 * QUOTA_SHARES))
    quotas.must_report = lambda: True
    usage = quotas.of(b"eve")
    usage.subscribed(b"others/have/1")
    usage.subscribed(b"others/have/2")
    asked.session.set_usage(usage)
    asked.session.limits.exclusive_subscription = True
    asked.subscribe((EXCLUSIVE, 1))
    asked.cluster.claims.pop()[1]({})
    assert (asked.filters(), asked.cluster.claims, asked.cluster.released) == ([], [], [])
    quotas.largest()
    quotas.report_sent()
    ((filters, claimed),) = asked.cluster.claims
    assert (filters, asked.filters()) == ([EXCLUSIVE], [])
    claimed({} if is_still_free else {EXCLUSIVE: 0x97})
    asked.routed()
    assert asked.answers == [[1 if is_still_free else 0x97]]
    assert asked.filters() == [EXCLUSIVE][:is_still_free]
    assert len(asked.cluster.claims) == 1
    assert usage.subscriptions == 2 + is_still_free


def test_a_session_that_ended_meanwhile_is_not_answered(asked: Asked) -> None:
    asked.subscribe((OTHER, 1))
    asked.cluster.routes[0][1](Reason.SUCCESS)
    asked.cluster.seeing[0](True)
    asked.session.abandon()
    asked.owner.settle()
    assert (asked.answers, asked.cluster.awaiting_retained) == ([], [])
