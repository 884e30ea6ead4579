"""The sink of a durable session: sends packets to its session proxy, at the node of the connection.

Invariant: after its link was lost, a session proxy gets nothing new until everything unacknowledged was sent again.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from flockmq.routing.back_pressure import StallClock
from flockmq.routing.router import Router
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING, NOTHING, Sink, count_unsendable


class ProxyNode:
    """A node with session proxies; `tokens`: their connections. `cuts`: how many times packets to it may have been
    lost.
    """

    __slots__ = ("cuts", "incarnation", "tokens")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.tokens: dict[int, None] = {}
        self.cuts = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class ProxySink(Sink):
    """Sends what was put to the session proxy once in each event-loop iteration (`RemoteSession.arrived`).

    The proxy gets packets in order. If some are lost, all later ones are dropped, and `send_again` repairs that. `flow`
    is AWAY while a reconnected client may be sent nothing; QoS 0 messages wait then, too. Otherwise it is FLOWING,
    CONGESTED or LAGGING as in back_pressure.py, judged by the client's acknowledgements. A client is never disconnected
    for its pace alone.

    `on_overflow` must end the connection at once. `on_flow` is called when `flow` changes between FLOWING, CONGESTED
    and LAGGING; publishers pause while it is CONGESTED. `cuts`: the value of the node's `cuts` when everything was last
    sent again. `is_admitted`: its node was told that its connection was admitted. `is_confirmed`: the node told that it
    admitted it. `former_expiry_s`: the session expiry before the connection; -1: there was no session.
    """

    __slots__ = (
        "client_id", "cuts", "deliver", "former_expiry_s", "is_admitted", "is_confirmed", "last_request", "node",
        "on_flow", "on_overflow", "router", "stall", "token", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        router: Router,
        version: int,
        deliver: Callable[[str, int, bytes], None],
        on_overflow: Callable[[ProxySink], None],
        on_flow: Callable[[ProxySink], None],
        node: ProxyNode,
        client_id: bytes,
        token: int,
    ) -> None:
        super().__init__(router.turn, version)
        self.router = router
        self.stall: StallClock | None = None
        self.deliver = deliver
        self.on_overflow = on_overflow
        self.on_flow = on_flow
        self.node = node
        self.cuts = node.cuts
        self.last_request = 0
        """Number of the last request of the connection that was processed."""
        self.waiting: list[Callable[[], None]] | None = None
        """Requests that wait while a SUBSCRIBE isn't placed yet; None: no SUBSCRIBE is pending."""
        self.client_id = client_id
        self.token = token
        self.is_admitted = False
        self.is_confirmed = False
        self.former_expiry_s = -1

    def overflow(self) -> None:
        self.on_overflow(self)

    def flush(self) -> None:
        if self.out:
            packets = b"".join(self.out)
            self.out = NOTHING
            self.out_bytes = 0
            if self.cuts == self.node.cuts:
                self.deliver(self.node.incarnation, self.token, packets)

    def start_again(self) -> None:
        """Everything is sent again next. What was put since packets were lost would come before it, so it is
        dropped.
        """
        if self.cuts != self.node.cuts:
            self.cuts = self.node.cuts
            self.out = NOTHING
            self.out_bytes = 0

    def congest(self) -> None:
        if self.flow == FLOWING:
            self.flow = CONGESTED
            self.stall = StallClock(self.router.host.now_s)
            self.on_flow(self)

    def progressed(self, is_congested: bool) -> None:
        """The client acknowledged something."""
        if self.stall is not None:
            self.stall.progress_s = self.router.host.now_s
        if self.flow in (CONGESTED, LAGGING) and not is_congested:
            self.flow = FLOWING
            self.on_flow(self)

    def check_progress(self, is_held_up: bool) -> None:
        """Check for progress; called regularly while CONGESTED. `is_held_up`: the client has to wait for the owner."""
        now_s = self.router.host.now_s
        if is_held_up:
            self.stall = StallClock(now_s)
        elif self.stall is not None and self.stall.has_run_out(now_s):
            self.flow = LAGGING
            self.router.counters.slow_readers += 1
            self.on_flow(self)

    def now_s(self) -> float:
        return self.router.host.now_s

    def unsendable(self, packet_bytes: int) -> None:
        count_unsendable(self.router.counters, packet_bytes)

    def dropped(self, count: int) -> None:
        self.router.counters.dropped_queue_full += count
