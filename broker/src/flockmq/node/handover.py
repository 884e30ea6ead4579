"""A lasting session moves to the node that its client came back to, by way of the client id's home.

    old node                          home                 new node
       ◀── kick (to, not clean) ────────┤  ◀─── attach ──────────┤
       ├── the session, in pieces ──────┼──────────────────────▶ │  kept until
       ├── detach ────────────────────▶ ├── admitted ──────────▶ │  routes by its filters, then CONNACK
       ◀────────────────────────────────┼───────────── taken ────┤
       ├── what came in the meantime ───┼──────────────────────▶ │

What always holds: from the kick on one of the two nodes, or both, queue what is published for the session; what both
got while routes changed may come twice, nothing is left out. A session that was given away is never used again here.
One that came with a gap, too late, or without its routes is not used either: its client starts anew, and hears so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from flockmq.bounds import (
    HANDOVER_PIECE_BYTES,
    HANDOVER_TAIL_WAIT_S,
    HANDOVER_WAIT_S,
    HANDOVERS_MAX_BYTES,
    TAKEN_WAIT_S,
)
from flockmq.node.packed import pack, pack_entries, take_queue, unpack, unpack_entries
from flockmq.routing.matcher import ShapeLimitError
from flockmq.session.limits import Limits
from flockmq.session.publish import Stored, in_version, packet_of
from flockmq.session.router import Router
from flockmq.session.session import REFUSED, Session
from flockmq.session.sessions import Sessions

log: Final = logging.getLogger(__name__)

PIECE: Final = 0
LAST_PIECE: Final = 1
TAKEN: Final = 2
TAIL: Final = 3

_Said = tuple[int, int, bytes]
"""(PIECE | LAST_PIECE | TAKEN | TAIL, where a piece begins, body)"""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Said).decode


class Homes(Protocol):
    def relay(self, to: str, client_id: bytes, said: bytes) -> bool: ...
    def detach(self, client_id: bytes, token: int) -> None: ...


RouteAll = Callable[[bytes, list[bytes], Callable[[int], None]], None]
"""Have the cluster route a client id's filters to this node, then say the reason code."""


class _Arriving:
    """A session on its way to this node."""

    __slots__ = ("came_from", "complete", "parts", "since_s", "size_bytes")

    def __init__(self, came_from: str, since_s: float) -> None:
        self.came_from = came_from
        self.since_s = since_s
        self.parts: list[bytes] = []
        self.size_bytes = 0
        self.complete = False


class Handovers:
    """`route` has filters of a session that came routed to this node; `flush` has what was put written."""

    def __init__(
        self,
        homes: Homes,
        sessions: Sessions,
        router: Router,
        limits: Limits,
        route: RouteAll,
        flush: Callable[[], None],
    ) -> None:
        self._homes = homes
        self._sessions = sessions
        self._router = router
        self._limits = limits
        self._route = route
        self._flush = flush
        self._given: dict[bytes, Session] = {}
        self._taken: dict[bytes, asyncio.Event] = {}
        self._arriving: dict[bytes, _Arriving] = {}
        self._arriving_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Sessions on their way, in both directions."""
        return len(self._given) + len(self._arriving)

    # The old node.

    def give(self, session: Session, token: int, to: str) -> None:
        """Hand a session that is away to the node that its client is at, then detach."""
        client_id = session.client_id
        self._sessions.release(session)
        self._given[client_id] = session
        self._taken[client_id] = asyncio.Event()
        task = asyncio.ensure_future(self._give(session, token, to))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give(self, session: Session, token: int, to: str) -> None:
        client_id = session.client_id
        taken = self._taken[client_id]
        try:
            raw = pack(session, time.monotonic())
            take_queue(session)
            await self._say_pieces(to, client_id, raw)
            self._homes.detach(client_id, token)
            async with asyncio.timeout(TAKEN_WAIT_S):
                await taken.wait()
            await asyncio.sleep(HANDOVER_TAIL_WAIT_S)  # until nobody publishes by a table without the new routes
            await self._give_tail(session, to)
        except TimeoutError:
            log.warning("%s did not take over the session of %r", to, client_id)
        finally:
            if self._given.get(client_id) is session:
                del self._given[client_id], self._taken[client_id]
            take_queue(session)
            session.kept = None
            self._sessions.end(session)
            self._flush()

    async def _say_pieces(self, to: str, client_id: bytes, raw: bytes) -> None:
        for at in range(0, len(raw), HANDOVER_PIECE_BYTES):
            piece = raw[at : at + HANDOVER_PIECE_BYTES]
            kind = LAST_PIECE if at + len(piece) == len(raw) else PIECE
            await self._say(to, client_id, _encode((kind, at, piece)))

    async def _give_tail(self, session: Session, to: str) -> None:
        tail = take_queue(session)
        while tail:
            entries = [tail.popleft()]
            size = len(pack_entries(entries, 0.0))
            while tail and size < HANDOVER_PIECE_BYTES:
                entries.append(tail.popleft())
                size += 64
            version = bytes((session.sink.protocol_version,))
            body = version + pack_entries(entries, time.monotonic())
            await self._say(to, session.client_id, _encode((TAIL, 0, body)))

    async def _say(self, to: str, client_id: bytes, said: bytes) -> None:
        """Raises TimeoutError when the home stays out of reach."""
        deadline_s = time.monotonic() + HANDOVER_WAIT_S
        while not self._homes.relay(to, client_id, said):
            if time.monotonic() > deadline_s:
                raise TimeoutError
            await asyncio.sleep(0.05)
        await asyncio.sleep(0)

    # The new node.

    def take(self, client_id: bytes, token: int, clean: bool, then: Callable[[], None]) -> None:
        """Put what came of this client's session in place, if anything did, and go on; forget it if the client starts
        clean, or if the node that gave it has given up by now.
        """
        arriving = self._arriving.get(client_id)
        self._forget(client_id)
        now_s = time.monotonic()
        if arriving is None or not arriving.complete or clean or now_s - arriving.since_s > TAKEN_WAIT_S:
            then()
            return
        session = unpack(b"".join(arriving.parts), self._router.away4, self._router.away5, self._limits, now_s)
        try:
            self._sessions.adopt(session, token, now_s)
        except ShapeLimitError as error:
            log.warning("the session of %r can't be taken over: %s", client_id, error)
            then()
            return
        filters = [subscription.filter for subscription in session.all_subscriptions()]
        self._route(client_id, filters, partial(self._routed, session, arriving.came_from, then))

    def _routed(self, session: Session, came_from: str, then: Callable[[], None], reason: int) -> None:
        """A session that the cluster doesn't route to this node would miss messages: it ends instead."""
        client_id = session.client_id
        if reason < 0x80:
            self._homes.relay(came_from, client_id, _encode((TAKEN, 0, b"")))
        elif self._sessions.by_id.get(client_id) is session:
            log.warning("the session of %r ends: its routes could not be written (0x%02X)", client_id, reason)
            self._sessions.end(session)
        then()
        self._flush()

    def heard(self, came_from: str, client_id: bytes, said: bytes) -> None:
        """What another node says of a session."""
        kind, at, body = _decode(said)
        if kind == TAKEN:
            taken = self._taken.get(client_id)
            if taken is not None:
                taken.set()
        elif kind == TAIL:
            self._tail(client_id, body)
        else:
            self._piece(came_from, client_id, at, body, kind == LAST_PIECE)

    def _piece(self, came_from: str, client_id: bytes, at: int, body: bytes, last: bool) -> None:
        now_s = time.monotonic()
        if at == 0:
            self._forget(client_id)
            self._arriving[client_id] = _Arriving(came_from, now_s)
        arriving = self._arriving.get(client_id)
        if arriving is None or arriving.came_from != came_from or arriving.size_bytes != at:
            self._forget(client_id)  # a piece was lost on its way
            return
        if self._arriving_bytes + len(body) > HANDOVERS_MAX_BYTES:
            for other in [key for key, one in self._arriving.items() if now_s - one.since_s > TAKEN_WAIT_S]:
                self._forget(other)
        if self._arriving_bytes + len(body) > HANDOVERS_MAX_BYTES:
            log.error("no room for the session of %r: %d bytes of others arrive", client_id, self._arriving_bytes)
            self._forget(client_id)
            return
        arriving.parts.append(body)
        arriving.size_bytes += len(body)
        self._arriving_bytes += len(body)
        arriving.complete = last

    def _forget(self, client_id: bytes) -> None:
        arriving = self._arriving.pop(client_id, None)
        if arriving is not None:
            self._arriving_bytes -= arriving.size_bytes

    def _tail(self, client_id: bytes, body: bytes) -> None:
        """For a session that is here, or has moved on and is about to have its own tail sent behind it."""
        session = self._sessions.by_id.get(client_id) or self._given.get(client_id)
        if session is None:
            return
        version = body[0]
        for entry in unpack_entries(body[1:], version, time.monotonic()):
            wanted = session.sink.protocol_version
            self._deliver(session, entry if wanted == version else in_version(entry, version, wanted))
        self._flush()

    def _deliver(self, session: Session, entry: Stored | bytes) -> None:
        """As `Router.acknowledged_send`: a client without room is cut off rather than left with a gap."""
        sent = session.deliver(entry)
        if sent == REFUSED and packet_of(entry)[0] & 6 and not session.is_away():
            session.sink.overflow()
            if session.is_away():
                sent = session.deliver(entry)
        if sent >= REFUSED:
            self._router.counters.dropped_queue_full += 1
