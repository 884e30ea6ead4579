"""A clean session at the node of its connection: subscriptions, and messages in both directions.

Invariant: a QoS 2 packet id of the client is remembered from PUBLISH to PUBREL.

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
    """`expiry_s`: the session expiry that the client asked for. If it isn't 0, an owner runs a durable
    session instead.
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
        """A clean session has nothing to send again."""

    def erase(self) -> None:
        """The session has ended: free its messages, even if something still refers to it."""
        self.subscriptions.clear()
        self.inflight = self.kept = self.queue = self.awaiting_rel = None
        self.queue_bytes = 0

    # From the client.

    def pubrel(self, packet_id: int) -> int:
        return DONE if self.release(packet_id) else UNKNOWN
