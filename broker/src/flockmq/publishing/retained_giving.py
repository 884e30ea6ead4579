"""How retained messages are sent to a session's new subscriptions, and what is stored about that.

For a clean session nothing is stored. For a durable session (durable/retained_progress.py) the last topic sent is
stored with each message of QoS 1 and 2. So its next owner continues there, and sends nothing twice.
"""

from __future__ import annotations

from flockmq.mqtt.message import Publish
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription


class RetainedGiving:
    """Sends them to clean sessions."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def last_topic(self, subscription: Subscription) -> bytes:
        """The last topic that it got, or b""."""
        return b""

    def send(self, subscription: Subscription, topic: bytes, message: Publish, qos: int) -> None:
        """Send the message retained at the topic."""
        self._router.delivery.send(subscription.session, message, qos, True, subscription.identifiers)

    def finished(self, subscription: Subscription) -> None:
        """All retained messages were sent."""
