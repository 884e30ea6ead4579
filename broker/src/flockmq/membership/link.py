"""One connection between two nodes: first the handshake, then frames in both directions.

Notifications, requests (`link_requests`), tunnels and messages share it. A link handles only its own frames; all others
go to the handler that its node registered for their kind (`LinkHandlers`). Invariants:

- A link tells the peer this node's current incarnation: if that changes during the handshake, the link doesn't come up.
- Nothing is trusted before the peer proved the cluster key. Until then it costs at most LINK_GREETING_MAX_BYTES per
  frame and LINK_HANDSHAKE_MAX_S.
- The link always reads. Control frames overtake data: each has a queue here, and at most LINK_TRANSPORT_HIGH_BYTES are
  in the transport, where nothing can be overtaken.
- All frames queued in one event-loop iteration are one write. Frames are passed by reference: messages are not copied.
- A Goodbye is the last frame that a node sends. It then reads on and ignores what arrives, until the peer closes the
  connection after it has read everything. If this end closed it while the peer still sends, TCP could drop what the
  peer hasn't read.
- When a link ends, `LinkOwner.link_down` is called once, after all pending requests and streams have failed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Protocol, cast

import msgspec

from flockmq import bounds
from flockmq.membership import frames
from flockmq.membership.frames import FrameError, FrameReader
from flockmq.membership.handshake import (
    HandshakeDialer,
    HandshakeError,
    HandshakeListener,
    Identity,
    check_role,
    refusal,
)
from flockmq.membership.link_certificates import roles_in
from flockmq.membership.link_requests import LinkLost, LinkRequests, Refusal
from flockmq.pem_files import reason

log: Final = logging.getLogger(__name__)

PEER_CLOSED: Final = "the peer closed it"
"""The peer closed it without a reason."""


class LinkHandlers:
    """The handlers of a node's links, by kind. Each part of a node registers its own before the first link is up. They
    are called while the link reads. Handlers of frames and control messages may raise FrameError."""

    def __init__(self) -> None:
        self.frames: dict[int, Callable[[Link, bytes], None]] = {}
        """By kind of frame. The handler gets the body."""
        self.controls: dict[type[frames.Control], Callable[[Link, Any], None]] = {}
        """By class of control message."""
        self.notes: dict[str, Callable[[str, bytes], None]] = {}
        """By method. The handler gets the sender's incarnation and the body. It may raise MsgspecError or
        UnicodeDecodeError."""
        self.requests: dict[str, Callable[[Identity, bytes], Awaitable[bytes]]] = {}
        """By method. May raise Refusal."""
        self.streams: dict[str, Callable[[bytes], AsyncGenerator[bytes, None]]] = {}
        """By method. May raise Refusal."""


class LinkOwner(Protocol):
    """The node that a link belongs to."""

    incarnation: str
    handlers: LinkHandlers

    def link_up(self, link: Link) -> None: ...
    def link_down(self, link: Link, reason: str) -> None: ...
    def link_goodbye(self, link: Link) -> None: ...


class Link(asyncio.Protocol):
    """Created by `dial` or by a listener. When `LinkOwner.link_up` is called, the peer is authenticated and `peer` is
    set."""

    def __init__(
        self, owner: LinkOwner, handshake: HandshakeDialer | HandshakeListener, on_handshake: Callable[[Link], None]
    ) -> None:
        self.peer = Identity("", "")
        self.speaks = 0
        """The highest cluster version that the peer speaks."""
        self.address = "?"
        self.through = ""
        """The core that relays this link; "" for a direct connection."""
        self.heard_at = 0.0
        self.answered_at = 0.0
        """When the peer last acknowledged a heartbeat."""
        self._asked = 0
        """Heartbeats sent."""
        self._answers = 0
        """Heartbeats that the peer acknowledged."""
        self._doubted = 0
        """From how many on what arrives is surely sent lately."""
        self.up_at = 0.0
        self.used_at = 0.0
        """When the last message arrived on it."""
        self.resumed = False
        """The peer sent what it had accepted, so numbered messages may be sent."""
        self.data_bytes = 0
        self.control_bytes = 0
        self.tunnelled_bytes = 0
        """Bytes of tunnels in the queue."""
        self.sent_bytes = 0
        self.received_bytes = 0
        self.on_room: Callable[[], None] | None = None
        """Called when data was written and fewer than PEER_DRAINED_BYTES are queued."""
        self.closed: asyncio.Future[str]
        """Gets the reason, a sentence, when the link has ended; never an exception."""
        self.dialled = isinstance(handshake, HandshakeDialer)
        self.up = False
        self._owner = owner
        self._handlers = owner.handlers
        self._handshake = handshake
        self._on_handshake = on_handshake
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()
        self._reader = FrameReader(bounds.LINK_GREETING_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._pumping = False
        self._control: list[bytes] = []
        self._data: deque[tuple[int, list[bytes]]] = deque()
        self._tunnelled: deque[tuple[int, list[bytes]]] = deque()
        self._requests = LinkRequests(self, self._serve, self._serve_stream)
        self._deadline: asyncio.TimerHandle | None = None
        self._why = ""
        self._leaving = False

    @property
    def reason(self) -> str:
        """Why it ended, a sentence; empty while it is alive."""
        return self._why

    @property
    def is_open(self) -> bool:
        """True while the link accepts frames: it is up, and neither end is closing it."""
        return self.up and not self._why

    # --- asking and telling -----------------------------------------------------------------------------------------

    def note(self, method: str, body: bytes) -> None:
        """Send a notification, without an answer. It is lost if the link is lost."""
        self._send_control(frames.control(frames.Note(method, body)))

    def control(self, message: frames.Control) -> None:
        self._send_control(frames.control(message))

    def send(self, encoded: bytes) -> None:
        """Send a control frame that was encoded once for many links."""
        self._send_control(encoded)

    async def request(self, method: str, body: bytes) -> bytes:
        """Send a request and return the peer's answer. Raises LinkLost, or Refusal if the peer's handler failed."""
        return await self._requests.request(method, body)

    def stream(self, method: str, body: bytes) -> AsyncGenerator[bytes, None]:
        """The items of the peer's stream, at most LINK_STREAM_CREDIT_ITEMS in memory. Raises LinkLost, Refusal."""
        return self._requests.stream(method, body)

    def send_data(self, frame: list[bytes], frame_bytes: int) -> None:
        """Queue one frame of messages: its header and its chunks, by reference."""
        if not self.is_open:
            return
        self._data.append((frame_bytes, frame))
        self.data_bytes += frame_bytes
        self._schedule()

    def send_tunnelled(self, frame: list[bytes], frame_bytes: int) -> None:
        """Queue one frame of a tunnel. These frames alternate with frames of messages."""
        if not self.is_open:
            return
        self._tunnelled.append((frame_bytes, frame))
        self.tunnelled_bytes += frame_bytes
        self._schedule()

    def close(self, reason: str) -> None:
        """End the link, once. `reason` is a sentence for the log."""
        if not self._why:
            self._why = reason
        if self._transport is not None:
            self._transport.abort()

    def leave(self) -> None:
        """End the link for good: after all queued frames send Goodbye. Then the peer closes it."""
        self._why = self._why or "this node leaves"
        if self._transport is not None and not self._transport.is_closing():
            self._leaving = True
            self._paused = False
            self._pump(all_of_it=True)
            self._transport.write(frames.control(frames.Goodbye()))

    # --- writing ----------------------------------------------------------------------------------------------------

    def _send_control(self, encoded: bytes) -> None:
        if not self.is_open:
            return
        self._control.append(encoded)
        self.control_bytes += len(encoded)
        if self.control_bytes > bounds.LINK_CONTROL_MAX_BYTES:
            self.close(f"it left {self.control_bytes} bytes of control frames unread")
        self._schedule()

    def _schedule(self) -> None:
        if not self._pumping and not self._paused:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self, all_of_it: bool = False) -> None:
        self._pumping = False
        transport = self._transport
        while transport is not None and not transport.is_closing() and not self._paused:
            batch = self._control
            self._control, self.control_bytes = [], 0
            room = bounds.LINK_TRANSPORT_HIGH_BYTES
            while (self._data or self._tunnelled) and (room > 0 or all_of_it):
                if self._data:
                    frame_bytes, frame = self._data.popleft()
                    batch.extend(frame)
                    room -= frame_bytes
                    self.data_bytes -= frame_bytes
                if self._tunnelled:
                    frame_bytes, frame = self._tunnelled.popleft()
                    batch.extend(frame)
                    room -= frame_bytes
                    self.tunnelled_bytes -= frame_bytes
            if not batch:
                return
            self.sent_bytes += sum(map(len, batch))
            transport.writelines(batch)
            if room < bounds.LINK_TRANSPORT_HIGH_BYTES and self.on_room and self.data_bytes < bounds.PEER_DRAINED_BYTES:
                self.on_room()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pump()

    # --- reading ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """With TLS this is called after its handshake."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        transport.set_write_buffer_limits(high=bounds.LINK_TRANSPORT_HIGH_BYTES)
        peername = transport.get_extra_info("peername")
        self.through = transport.get_extra_info("through") or ""
        self.address = f"{peername[0]}:{peername[1]}" if peername else f"through {self.through}"
        self._deadline = self._loop.call_later(
            bounds.LINK_HANDSHAKE_MAX_S, self.close, f"no handshake within {bounds.LINK_HANDSHAKE_MAX_S} s"
        )
        if isinstance(self._handshake, HandshakeDialer):
            transport.write(self._handshake.hello())

    def beat(self, encoded: bytes) -> None:
        """Send a heartbeat."""
        self._asked += 1
        self.send(encoded)

    def doubt(self) -> None:
        """What arrives may have waited since long ago, until the peer acknowledges the next heartbeat."""
        self._doubted = self._asked + 1

    @property
    def is_current(self) -> bool:
        """What arrives now was sent lately."""
        return self._answers >= self._doubted

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        self.received_bytes += len(data)
        try:
            for kind, body in self._reader.feed(data):
                if self._leaving:
                    self._await_goodbye(kind, body)
                elif self._why:
                    return
                elif self.up:
                    self._receive(kind, body)
                else:
                    self._greet(kind, body)
        except HandshakeError as error:
            self._refuse(str(error))
        except FrameError as error:
            self._refuse(f"it sent {error}") if not self.up else self.close(f"it sent {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._why or (because(exc) if exc else PEER_CLOSED)
        self._why = reason
        if self._deadline is not None:
            self._deadline.cancel()
        was_up, self.up = self.up, False
        self._transport = None
        self._data.clear()
        self._tunnelled.clear()
        self._control.clear()
        self.data_bytes = self.tunnelled_bytes = self.control_bytes = 0
        self._requests.link_lost(LinkLost(f"link to {self.peer.incarnation or self.address}: {reason}"))
        if not self.closed.done():
            self.closed.set_result(reason)
        if was_up:
            self._owner.link_down(self, reason)
        else:
            self._on_handshake(self)

    def _refuse(self, reason: str) -> None:
        if not self._why and self._transport is not None:
            self._why = reason
            if not isinstance(self._handshake, HandshakeDialer) or not self._handshake.itself:
                self._transport.write(refusal(reason))
            self._transport.close()

    def _greet(self, kind: int, body: bytes) -> None:
        if kind != frames.GREETING:
            raise HandshakeError("it doesn't speak the cluster protocol")
        answer = self._handshake.receive(body)
        if self._handshake.me.incarnation != self._owner.incarnation:
            raise HandshakeError(f"this node goes on as {self._owner.incarnation}")
        assert self._transport is not None
        if self._handshake.peer is not None:
            check_role(self._handshake.peer, self._roles_shown())
        if answer:
            self._transport.write(answer)
        if self._handshake.peer is not None:
            self.peer, self.speaks = self._handshake.peer, self._handshake.newest
            self._reader.max_body_bytes = bounds.LINK_FRAME_MAX_BYTES
            if self._deadline is not None:
                self._deadline.cancel()
            self.up = True
            self.up_at = self.answered_at = self.heard_at
            self._on_handshake(self)
            self._owner.link_up(self)

    def _roles_shown(self) -> frozenset[str]:
        """The peer's roles known from its certificate or from the relaying core; empty: unknown."""
        assert self._transport is not None
        if self.through:
            role = self._transport.get_extra_info("role")
            return frozenset((role,) if role else ())
        return roles_in(self._transport.get_extra_info("peercert"))

    def _await_goodbye(self, kind: int, body: bytes) -> None:
        """If both ends leave, neither processes the other's frames, so there is nothing to wait for."""
        if kind == frames.CONTROL and isinstance(frames.parse_control(body), frames.Goodbye):
            self.close("it leaves the cluster")

    def _receive(self, kind: int, body: bytes) -> None:
        if (handler := self._handlers.frames.get(kind)) is not None:
            handler(self, body)
        elif kind == frames.CONTROL:
            self._receive_control(frames.parse_control(body))
        elif kind == frames.ITEM:
            self._requests.take_item(body)
        else:
            raise FrameError(f"a frame of kind {kind}")

    def _receive_control(self, message: frames.Control) -> None:
        if (handler := self._handlers.controls.get(type(message))) is not None:
            handler(self, message)
            return
        match message:
            case frames.Note(method, body):
                self._receive_note(method, body)
            case frames.HeartbeatAck():
                self.answered_at = self.heard_at
                self._answers += 1
            case frames.Goodbye():
                self._owner.link_goodbye(self)
                self.close("it leaves the cluster")
            case _:
                self._requests.take(message)

    def _receive_note(self, method: str, body: bytes) -> None:
        handler = self._handlers.notes.get(method)
        if handler is None:
            log.warning("%s sent a note %r that this version doesn't know", self.peer.incarnation, method)
            return
        try:
            handler(self.peer.incarnation, body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.close(f"its note {method} isn't well-formed: {error}")

    async def _serve(self, method: str, body: bytes) -> bytes:
        handler = self._handlers.requests.get(method)
        if handler is None:
            raise Refusal("unavailable", f"{self._owner.incarnation} doesn't serve {method}")
        return await handler(self.peer, body)

    def _serve_stream(self, method: str, body: bytes) -> AsyncGenerator[bytes, None]:
        handler = self._handlers.streams.get(method)
        if handler is None:
            raise Refusal("unavailable", f"{self._owner.incarnation} doesn't serve {method}")
        return handler(body)


def because(error: BaseException) -> str:
    """A connection's error, in a few words for the log."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {reason(error)}"
    return str(error) or type(error).__name__
