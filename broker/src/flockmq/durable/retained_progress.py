"""Sends retained messages to new subscriptions of durable sessions. Stores the last topic sent, so that the next owner
continues there.
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.durable.session import DurableSession
from flockmq.mqtt.message import Publish
from flockmq.publishing.retained_feed import RetainedGiving
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscriber, Subscription


class RetainedProgress(RetainedGiving):
    """For durable sessions on this core. `may_note`: True if all nodes understand the stored progress."""

    def __init__(self, router: Router, may_note: Callable[[], bool]) -> None:
        super().__init__(router)
        self._may_note = may_note

    def last_topic(self, subscription: Subscription) -> bytes:
        return _durable(subscription.session).record.retained_up_to(subscription.filter)

    def send(self, subscription: Subscription, topic: bytes, message: Publish, qos: int) -> None:
        session = _durable(subscription.session)
        if qos and self._may_note():
            session.record.begin_retained(subscription.filter, topic, session.usage)
        super().send(subscription, topic, message, qos)
        session.record.end_retained()

    def finished(self, subscription: Subscription) -> None:
        _durable(subscription.session).retained_sent(subscription)


def _durable(session: Subscriber) -> DurableSession:
    assert isinstance(session, DurableSession)
    return session
