"""How a session is given what is retained for its new subscriptions, and what is noted of that.

What a session that ends with its connection is owed ends with it. Of one that lasts it is noted, with each message of
QoS 1 and 2, up to which topic all was put; so its next home goes on from there, and gives nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.session.durable import DurableSession
from flockmq.session.publish import Publish
from flockmq.session.router import Router
from flockmq.session.session import Session
from flockmq.session.subscription import Subscription


class Giving:
    """To sessions that end with their connections."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def given(self, subscription: Subscription) -> bytes:
        """The last topic of which it has the message, or b""."""
        return b""

    def give(self, subscription: Subscription, topic: bytes, message: Publish, qos: int) -> None:
        """The message that is retained for the topic."""
        self._router.send(subscription.session, message, qos, True, subscription.identifiers)

    def gave_all(self, subscription: Subscription) -> None:
        """It isn't owed anything any more."""


class NotedGiving(Giving):
    """To sessions that run here and last. `may_note`: whether every node understands what is noted."""

    def __init__(self, router: Router, may_note: Callable[[], bool]) -> None:
        super().__init__(router)
        self._may_note = may_note

    def given(self, subscription: Subscription) -> bytes:
        return _durable(subscription.session).given_up_to(subscription.filter)

    def give(self, subscription: Subscription, topic: bytes, message: Publish, qos: int) -> None:
        session = _durable(subscription.session)
        if qos and self._may_note():
            session.giving(subscription.filter, topic)
        super().give(subscription, topic, message, qos)
        session.gave_one()

    def gave_all(self, subscription: Subscription) -> None:
        _durable(subscription.session).gave(subscription)


def _durable(session: Session) -> DurableSession:
    assert isinstance(session, DurableSession)
    return session
