"""How a session is given what is retained for its new subscriptions, and what is noted of that.

What a session that ends with its connection is owed ends with it. Of one that lasts it is noted, with each message of
QoS 1 and 2, up to which topic all was put. So its next owner goes on from there, and gives nothing twice.
"""

from __future__ import annotations

from flockmq.mqtt.message import Publish
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription


class RetainedGiving:
    """To sessions that end with their connections."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def given(self, subscription: Subscription) -> bytes:
        """The last topic of which it has the message, or b""."""
        return b""

    def give(self, subscription: Subscription, topic: bytes, message: Publish, qos: int) -> None:
        """The message that is retained for the topic."""
        self._router.delivery.send(subscription.session, message, qos, True, subscription.identifiers)

    def gave_all(self, subscription: Subscription) -> None:
        """It isn't owed anything any more."""
