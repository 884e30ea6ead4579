"""The state that MQTT calls a session, of a client that is connected here: subscriptions, and both directions.

What always holds: a QoS 2 packet id of the client is remembered from PUBLISH to PUBREL.

    client → server     QoS 2   PUBLISH → awaiting_rel → PUBREL → forgotten
    server → client     as in `send_window`
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.routing.sink import Sink
from flockmq.session.client_session import DONE, UNKNOWN, ClientSession, SubscribeChange, UnsubscribeChange
from flockmq.session.limits import Limits
from flockmq.session.send_window import SendWindow


@mypyc_attr(acyclic=True)
class LocalSession(SendWindow, ClientSession):
    """One client's session. `expiry_s`: for how long the client wants it to outlive the connection; then its owner has
    another in its place.
    """

    __slots__ = ("awaiting_rel", "expiry_s")

    def __init__(
        self, sink: Sink, client_id: bytes, limits: Limits, window: int, max_packet_bytes: int = 0, expiry_s: int = 0
    ) -> None:
        super().__init__(sink, client_id, limits, window, max_packet_bytes)
        self.expiry_s = expiry_s
        self.awaiting_rel: dict[int, float] | None = None

    # Subscriptions.

    def subscribe(self, change: SubscribeChange) -> None:
        change.subscribe_here()

    def unsubscribe(self, change: UnsubscribeChange) -> None:
        change.unsubscribe_here()

    def is_remote(self) -> bool:
        return False

    def send_again(self) -> None:
        """It began with its connection."""

    def erase(self) -> None:
        """It ended: whoever still refers to it keeps no messages."""
        self.subscriptions.clear()
        self.inflight = self.kept = self.queue = self.awaiting_rel = None
        self.queue_bytes = 0

    # From the client.

    def pubrel(self, packet_id: int) -> int:
        return DONE if self.release(packet_id) else UNKNOWN
