"""The way of a session that runs here to its session proxy, at the node of its connection.

What always holds: a session proxy whose link was cut gets nothing more before it gets all of it again.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from flockmq.routing.back_pressure import StallClock
from flockmq.routing.router import Router
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING, Sink
from flockmq.session.acknowledgement_codec import settled


class ProxyNode:
    """A node with session proxies: the tokens of their connections. `cuts` counts how often what was sent may have been
    lost.
    """

    __slots__ = ("cuts", "incarnation", "tokens")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.tokens: dict[int, None] = {}
        self.cuts = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class ProxySink(Sink):
    """A session's way to its session proxy, which gets what was put once a turn (`RemoteSession.arrived`).

    What is put comes in its order, or all that follows is lost, and `send_again` mends that. It is AWAY while a client
    that came back may be sent nothing: QoS 0 waits then, too. Its pace is told by what it acknowledges: FLOWING,
    CONGESTED and LAGGING as in back_pressure.py, but it is never cut off for its pace alone.

    `on_overflow` makes the session leave at once; `on_flow` hears of changes from FLOWING, to LAGGING, or back:
    publishers are to pause while it is CONGESTED. `cuts`: those of the node after which all of it went again.
    `is_told`: the node was told that its connection is admitted; `former_expiry_s`: what the session's was before that,
    -1 for none.
    """

    __slots__ = (
        "client_id", "cuts", "deliver", "former_expiry_s", "heard", "is_told", "node", "on_flow",
        "on_overflow", "router", "stall", "token", "waiting",
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
        self.heard = 0
        """The number of the last question of its connection."""
        self.waiting: list[Callable[[], None]] | None = None
        """What is asked behind a SUBSCRIBE, while that isn't placed."""
        self.client_id = client_id
        self.token = token
        self.is_told = False
        self.former_expiry_s = -1

    def overflow(self) -> None:
        self.on_overflow(self)

    def flush(self) -> None:
        if self.out:
            packets = b"".join(self.out)
            self.out.clear()
            self.out_bytes = 0
            if self.cuts == self.node.cuts:
                self.deliver(self.node.incarnation, self.token, packets)

    def congest(self) -> None:
        if self.flow == FLOWING:
            self.flow = CONGESTED
            self.stall = StallClock(self.router.now_s)
            self.on_flow(self)

    def progressed(self, is_congested: bool) -> None:
        """The client acknowledged something."""
        if self.stall is not None:
            self.stall.progress_s = self.router.now_s
        if self.flow in (CONGESTED, LAGGING) and not is_congested:
            self.flow = FLOWING
            self.on_flow(self)

    def judge(self, is_held_up: bool) -> None:
        """Called now and then while it is CONGESTED. `is_held_up`: it isn't the client that has to go on."""
        now_s = self.router.now_s
        if is_held_up:
            self.stall = StallClock(now_s)
        elif self.stall is not None and self.stall.has_run_out(now_s):
            self.flow = LAGGING
            self.router.counters.slow_readers += 1
            self.on_flow(self)

    def now_s(self) -> float:
        return self.router.now_s

    def unsendable(self, packet_bytes: int) -> None:
        counters = self.router.counters
        if packet_bytes:
            counters.dropped_too_large += 1
        else:
            counters.dropped_expired += 1

    def settled(self, kind: int, packet_id: int) -> None:
        """What the session proxy reported is committed."""
        self.put(settled(kind, packet_id))
