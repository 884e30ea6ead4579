"""Which sessions here have a connection (by its token), and at which nodes.

Invariant: when packets to a session proxy may have been lost, it gets nothing new before everything is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from flockmq import bounds
from flockmq.bounds import CONGESTED_KEPT_S
from flockmq.durable.ports import HostPort
from flockmq.durable.proxy_sink import ProxyNode, ProxySink
from flockmq.durable.session import DurableSession
from flockmq.durable.slot_manager import SlotManager
from flockmq.routing.sink import CONGESTED
from flockmq.routing.slots import slot_of
from flockmq.session_rpc.ports import ProxyPort
from flockmq.time_slices import TimeSlices


class ConnectedSessions:
    """The connected sessions of one core."""

    def __init__(self, host: HostPort, proxies: ProxyPort, manager: SlotManager, slices: TimeSlices) -> None:
        self.congestion = SlotCongestion(self._session_at, proxies.congested)
        # Tests shorten it; in compiled code a constant couldn't be changed.
        self.behind_s: float = bounds.RESEND_DELAY_S
        self._host = host
        self._proxies = proxies
        self._manager = manager
        self._slices = slices
        self._sessions: dict[int, DurableSession] = {}
        """By token."""
        self._nodes: dict[str, ProxyNode] = {}
        """Nodes with session proxies for sessions here."""
        self._cut: set[str] = set()
        """Nodes to which everything will be sent again soon."""

    def sink(
        self, version: int, incarnation: str, client_id: bytes, token: int, on_overflow: Callable[[ProxySink], None]
    ) -> ProxySink:
        """A sink that sends to the session proxy of a connection."""
        node = self._nodes.setdefault(incarnation, ProxyNode(incarnation))
        router, deliver, on_flow = self._manager.router, self._proxies.deliver, self.congestion.flow_changed
        return ProxySink(router, version, deliver, on_overflow, on_flow, node, client_id, token)

    def attach(self, session: DurableSession, token: int) -> ProxySink:
        """The connection with this token has the session."""
        sink = session.sink
        assert isinstance(sink, ProxySink)
        self._sessions[token] = session
        sink.node.tokens[token] = None
        return sink

    def detach(self, session: DurableSession) -> None:
        sink = session.sink
        if isinstance(sink, ProxySink):
            self._sessions.pop(sink.token, None)
            sink.node.tokens.pop(sink.token, None)
            self.congestion.gone(sink)

    def of(self, token: int) -> DurableSession | None:
        """The session of a connection."""
        return self._sessions.get(token)

    def running(self, token: int) -> DurableSession | None:
        """The session of a connection, while it runs here."""
        session = self._sessions.get(token)
        return session if session is not None and self._manager.holds(session) else None

    def report(self, incarnation: str, token: int, pairs: bytes) -> None:
        """The client's node reports what the client acknowledged, or that it was admitted."""
        session = self.running(token)
        if session is None or not isinstance(session.sink, ProxySink) or session.sink.node.incarnation != incarnation:
            return
        session.sink.is_confirmed = True
        if pairs:
            self._manager.now()
            session.reported(pairs)
            self._manager.request_barriers()
            self._host.flush_soon()

    def _session_at(self, sink: ProxySink) -> DurableSession | None:
        session = self._sessions.get(sink.token)
        return session if session is not None and session.sink is sink else None

    def cut(self, incarnation: str) -> None:
        """The link to a node broke, so packets may be lost: send nothing new there before everything was sent again.

        Session proxies register again when they notice a broken link. But they may notice it before this core does;
        then this core has sent everything again over the link that was already broken. So it sends everything once
        more.
        """
        node = self._nodes.get(incarnation)
        if node is not None:
            node.cuts += 1
            self._send_again_later(incarnation)

    def _send_again_later(self, incarnation: str) -> None:
        if incarnation not in self._cut:
            self._cut.add(incarnation)
            asyncio.get_running_loop().call_later(self.behind_s, self._send_again_to, incarnation)

    def _send_again_to(self, incarnation: str) -> None:
        self._cut.discard(incarnation)
        node = self._nodes.get(incarnation)
        if node is None or not node.tokens:
            return
        if self._proxies.is_linked(incarnation):
            sessions = [session for token in node.tokens if (session := self._sessions.get(token)) is not None]
            self._slices.add(partial(self._send_again, session) for session in sessions)
        else:
            self._send_again_later(incarnation)

    def _send_again(self, session: DurableSession) -> None:
        sink = session.sink
        if not isinstance(sink, ProxySink) or not sink.is_admitted:
            return  # It gets everything when it is admitted.
        if sink.cuts != sink.node.cuts and self._manager.holds(session):
            self._manager.now()
            sink.start_again()
            session.send_again()
            self._host.flush_soon()

    def node_gone(self, incarnation: str, leave: Callable[[bytes, int], None]) -> None:
        """A node was purged: call `leave` with client id and token for each of its sessions."""
        node = self._nodes.pop(incarnation, None)
        if node is not None:
            self._slices.add(self._leave_all(node, leave))

    def _leave_all(self, node: ProxyNode, leave: Callable[[bytes, int], None]) -> Iterator[Callable[[], None]]:
        while node.tokens:
            token, _ = node.tokens.popitem()
            if (session := self._sessions.get(token)) is not None:
                yield partial(leave, session.client_id, token)


class SlotCongestion:
    """Sessions with too many waiting messages, slot by slot: nodes pause publishers to such a slot. One per core.

    Invariant: `say` is called when the first session of a slot becomes congested and when the last one recovers, and
    regularly between, because nodes forget a report after CONGESTED_KEPT_S. A session without progress, or with too
    little for too long, pauses nobody until it has drained (`ProxySink.check_progress`). `session_of` returns the
    session of a sink that is still in use.
    """

    def __init__(
        self, session_of: Callable[[ProxySink], DurableSession | None], say: Callable[[int, bool], None]
    ) -> None:
        self._session_of = session_of
        self._say = say
        self._slots: dict[int, dict[ProxySink, None]] = {}
        self._said_s = 0.0

    def __len__(self) -> int:
        """Number of sessions whose publishers are paused."""
        return sum(map(len, self._slots.values()))

    def flow_changed(self, sink: ProxySink) -> None:
        if sink.flow == CONGESTED:
            slot = slot_of(sink.client_id)
            congested = self._slots.setdefault(slot, {})
            congested[sink] = None
            if len(congested) == 1:
                self._say(slot, True)
        else:
            self.gone(sink)

    def gone(self, sink: ProxySink) -> None:
        """The sink flows, lags, or is no longer in use."""
        slot = slot_of(sink.client_id)
        congested = self._slots.get(slot)
        if congested is not None and sink in congested:
            del congested[sink]
            if not congested:
                del self._slots[slot]
                self._say(slot, False)

    def tick(self, now_s: float) -> None:
        for sink in [sink for congested in self._slots.values() for sink in congested]:
            session = self._session_of(sink)
            if session is None:
                self.gone(sink)
            else:
                sink.check_progress(session.outgoing.is_held_up())
        if now_s - self._said_s >= CONGESTED_KEPT_S / 4:
            self._said_s = now_s
            for slot in self._slots:
                self._say(slot, True)
