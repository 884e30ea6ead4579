"""One end of a tunnel: a connection to a node that can't be dialled, relayed by a core that is linked to both.

It is the transport of an ordinary `Link`, which does the rest end to end: handshake, order, numbers, acceptance.
Invariants:

- At most TUNNEL_WINDOW_BYTES are on their way in one direction: the far end gives credit for what it has read. So
  neither the core nor the links hold more, and back-pressure reaches the sender.
- Bytes arrive in order, or the tunnel and its link end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flockmq import bounds
from flockmq.membership import frames

if TYPE_CHECKING:
    from flockmq.membership.link import Link

Chunk = bytes | bytearray | memoryview


class Tunnel(asyncio.Transport):
    """`carrier` is the link to the core; at the far end it is the core's link there. `on_end` is called once."""

    def __init__(self, carrier: Link, tunnel_id: int, role: str, on_end: Callable[[], None]) -> None:
        super().__init__()
        self._role = role
        """The far end's role, as told by the core; "" until then."""
        self._carrier = carrier
        self._id = tunnel_id
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.Protocol | None = None
        self._credit = bounds.TUNNEL_WINDOW_BYTES
        self._uncredited = 0
        """Bytes that were read and for which the far end has no credit yet."""
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._high = 64 * 1024
        self._paused = False
        self._closing = False
        self._ended = False

    # --- from the carrier -------------------------------------------------------------------------------------------

    def received(self, chunk: bytes) -> None:
        if self._closing or self._protocol is None:
            return
        self._protocol.data_received(chunk)
        self._uncredited += len(chunk)
        if self._uncredited >= bounds.TUNNEL_WINDOW_BYTES // 4 and not self._closing:
            self._carrier.control(frames.TunnelCredit(self._id, self._uncredited))
            self._uncredited = 0

    def granted(self, size_bytes: int, role: str) -> None:
        self._role = self._role or role
        self._credit += size_bytes
        self._send()

    def ended(self, reason: str) -> None:
        """The far end closed the tunnel, or a link on the way was lost."""
        self._end(ConnectionError(reason) if reason else None)

    # --- as a transport ---------------------------------------------------------------------------------------------

    def start(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def write(self, data: Chunk) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Chunk]) -> None:
        if self._closing:
            return
        for data in list_of_data:
            if data:
                self._waiting.append(bytes(data))
                self._waiting_bytes += len(data)
        self._send()
        if self._waiting_bytes > self._high and not self._paused and self._protocol is not None:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Close it after all queued bytes are sent."""
        self._closing = True
        if not self._waiting:
            self._send_close()

    def abort(self) -> None:
        self._closing = True
        self._send_close()

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "role":
            return self._role or default
        return self._carrier.peer.incarnation if name == "through" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is not None:
            self._high = high

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    # --- inside -----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        while self._waiting and self._credit > 0 and not self._ended:
            chunks = self._cut(min(self._credit, bounds.TUNNEL_FRAME_BYTES))
            size = sum(map(len, chunks))
            self._credit -= size
            self._waiting_bytes -= size
            self._carrier.send_tunnelled([frames.id_header(frames.TUNNEL, self._id, size), *chunks], size)
        if self._closing:
            if not self._waiting:
                self._send_close()
        elif self._paused and self._waiting_bytes <= self._high // 4 and self._protocol is not None:
            self._paused = False
            self._protocol.resume_writing()

    def _cut(self, most_bytes: int) -> list[bytes]:
        """The next bytes, by reference if a chunk fits."""
        waiting, chunks = self._waiting, []
        while waiting and most_bytes > 0:
            chunk = waiting.popleft()
            if len(chunk) > most_bytes:
                waiting.appendleft(chunk[most_bytes:])
                chunk = chunk[:most_bytes]
            chunks.append(chunk)
            most_bytes -= len(chunk)
        return chunks

    def _send_close(self) -> None:
        if not self._ended:
            self._carrier.send_tunnelled([frames.control(frames.TunnelClose(self._id, ""))], 0)
            self._end(None)

    def _end(self, error: ConnectionError | None) -> None:
        if self._ended:
            return
        self._ended = self._closing = True
        self._waiting.clear()
        self._waiting_bytes = 0
        self._on_end()
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error)
