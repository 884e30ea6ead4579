"""The state that MQTT calls a session, of a client that is connected here: subscriptions, and both directions.

What always holds: a QoS 2 packet id of the client is remembered from PUBLISH to PUBREL.

    client → server     QoS 2   PUBLISH → awaiting_rel → PUBREL → forgotten
    server → client     as in `send_window`
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.mqtt.message import Will, in_version
from flockmq.routing.sink import Sink
from flockmq.session.client_session import DONE, UNKNOWN, ClientSession, SubscribeChange, UnsubscribeChange
from flockmq.session.limits import Limits
from flockmq.session.send_window import SendWindow


@mypyc_attr(acyclic=True)
class LocalSession(SendWindow, ClientSession):
    """One client's session."""

    __slots__ = ("awaiting_rel",)

    def __init__(
        self, sink: Sink, client_id: bytes, limits: Limits, window: int, max_packet_bytes: int = 0, expiry_s: int = 0
    ) -> None:
        super().__init__(sink, client_id, limits, window, max_packet_bytes, expiry_s)
        self.awaiting_rel: dict[int, float] | None = None

    # Subscriptions.

    def subscribe(self, change: SubscribeChange) -> None:
        change.subscribe_here()

    def unsubscribe(self, change: UnsubscribeChange) -> None:
        change.unsubscribe_here()

    def is_remote(self) -> bool:
        return False

    # Its life.

    def opened(self) -> None:
        """From now on it is what its client id has."""

    def erase(self) -> None:
        """It ended: whoever still refers to it keeps no messages."""
        self.abandon()

    def abandon(self) -> None:
        """It goes on elsewhere: nothing of it is kept here."""
        self.subscriptions.clear()
        self.inflight = self.kept = self.queue = self.awaiting_rel = None
        self.queue_bytes = 0

    # Away and back.

    def leave(self, away: Sink, will: Will | None = None) -> None:
        """The connection is gone, the session lasts: from now on everything waits; so does `will`, if there is one."""
        self.sink = away
        self.window = 0
        self.max_packet_bytes = 0
        self.aliases = None
        self._unsent = None
        if self.inflight is None:
            self.inflight = {}

    def will_published(self) -> None:
        """The will that `leave` named waits no more."""

    def resume(self, fresh: LocalSession) -> None:
        """Take over what a connection brings along, which made `fresh`."""
        was, version = self.sink.protocol_version, fresh.sink.protocol_version
        if was != version:
            if self.queue is not None:
                self.replace_queue([in_version(entry, was, version) for entry in self.queue])
            if self.kept is not None:
                self.kept = {packet_id: in_version(entry, was, version) for packet_id, entry in self.kept.items()}
        self.expiry_s = fresh.expiry_s
        self.aliases = fresh.aliases
        self.attach(fresh.sink, fresh.limits, fresh.window, fresh.max_packet_bytes)

    def attach(self, sink: Sink, limits: Limits, window: int, max_packet_bytes: int) -> None:
        """A connection has this session now; `send_again` when its CONNACK was put."""
        self.sink = sink
        self.limits = limits
        self.window = window
        self.max_packet_bytes = max_packet_bytes

    # From the client.

    def pubrel(self, packet_id: int) -> int:
        return DONE if self.release(packet_id) else UNKNOWN
