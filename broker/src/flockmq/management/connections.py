"""The connections of the management port. A new connection is always accepted, so that probes and scrapes get through.

Beyond MANAGEMENT_CONNECTIONS_MAX a new connection closes one of the address that has the most: the one that was
accepted, or answered, longest ago. So clients that never finish a request push out each other. A ClientHello costs its
sender nothing, and the server a signature: so MANAGEMENT_HANDSHAKES_TOGETHER_MAX begin in an iteration, addresses in
turn, and none whose client has gone meanwhile. The server also closes a connection
- if no complete request comes for MANAGEMENT_REQUEST_MAX_S,
- if the client doesn't read an answer for MANAGEMENT_ANSWER_MAX_S,
- if more than MANAGEMENT_UNWANTED_MAX_BYTES of an unread body come after the answer,
- if answers of more than MANAGEMENT_UNREAD_MAX_BYTES together may be unread, and its own is the oldest of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from flockmq.auth.addresses import network
from flockmq.bounds import (
    ACCEPTS_PER_TURN_MAX,
    LISTEN_BACKLOG_MAX,
    MANAGEMENT_ACCEPT_AGAIN_S,
    MANAGEMENT_ANSWER_MAX_S,
    MANAGEMENT_CONNECTIONS_MAX,
    MANAGEMENT_HANDSHAKES_TOGETHER_MAX,
    MANAGEMENT_REQUEST_MAX_S,
    MANAGEMENT_SMALL_ANSWER_MAX_BYTES,
    MANAGEMENT_UNREAD_MAX_BYTES,
    MANAGEMENT_UNWANTED_MAX_BYTES,
)
from flockmq.clock import SYSTEM
from flockmq.logs import Sparing
from flockmq.user_turns import TurnQueue

log: Final = logging.getLogger(__name__)


class ManagementConnections:
    """The open connections of one server."""

    def __init__(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._listening = listening
        self._tls = tls
        self._open: dict[web.RequestHandler, _Connection] = {}
        """In order of the time at which they were accepted or last answered."""
        self._of_address = Counter[bytes]()
        self._unbegun = TurnQueue[_Connection]()
        """By address. Ones that have ended may be among them."""
        self._is_beginning = False
        self._again: asyncio.TimerHandle | None = None
        self._sparing = Sparing(log, 1, SYSTEM.monotonic)

    @contextlib.contextmanager
    def accepting(self, make_handler: Callable[[], web.RequestHandler]) -> Iterator[None]:
        """Accept connections inside the block. `make_handler` makes the HTTP protocol of one connection."""
        self._listening.listen(LISTEN_BACKLOG_MAX)
        self._accept_from_now_on(make_handler)
        try:
            yield
        finally:
            self._accept_no_more()

    def close(self) -> None:
        for connection in list(self._open.values()):
            connection.end()

    @web.middleware
    async def noting(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A middleware that notes when a request came and when it was answered."""
        connection = self._open.get(request.protocol)
        if connection is None:
            return await handler(request)
        connection.has_asked()
        size_bytes = 0
        try:
            response = await handler(request)
            size_bytes = response.content_length or 0
            return response
        finally:
            connection.is_answered(size_bytes)
            if self._open.pop(request.protocol, None) is not None:
                self._open[request.protocol] = connection
                if size_bytes > MANAGEMENT_SMALL_ANSWER_MAX_BYTES:
                    self._bound_unread()

    def _accept_from_now_on(self, make_handler: Callable[[], web.RequestHandler]) -> None:
        asyncio.get_running_loop().add_reader(self._listening, self._accept, make_handler)

    def _accept_no_more(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        if self._again is not None:
            self._again.cancel()

    def _accept(self, make_handler: Callable[[], web.RequestHandler]) -> None:
        if len(self._open) + ACCEPTS_PER_TURN_MAX > MANAGEMENT_CONNECTIONS_MAX:
            self._end_those_gone()
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:
                self._sparing.warning("a connection to the management port couldn't be accepted: %s", error)
                self._accept_no_more()
                loop = asyncio.get_running_loop()
                self._again = loop.call_later(MANAGEMENT_ACCEPT_AGAIN_S, self._accept_from_now_on, make_handler)
                return
            if self._tls is not None and _gone([accepted]):
                accepted.close()
                continue
            accepted.setblocking(False)
            self._welcome(accepted, network(address[0]).encode(), make_handler())

    def _welcome(self, accepted: socket.socket, address: bytes, handler: web.RequestHandler) -> None:
        if len(self._open) >= MANAGEMENT_CONNECTIONS_MAX:
            self._make_room()
        connection = self._open[handler] = _Connection(handler, accepted, address, self._tls, self._forget)
        self._of_address[address] += 1
        if self._tls is None:
            connection.begin()
            return
        self._unbegun.append(address, connection)
        if not self._is_beginning:
            self._is_beginning = True
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _begin_some(self) -> None:
        begun = 0
        while self._unbegun and begun < MANAGEMENT_HANDSHAKES_TOGETHER_MAX:
            _, connection = self._unbegun.popleft()
            if not connection.is_unbegun():
                continue
            if _gone([connection.accepted]):
                connection.end()
                continue
            connection.begin()
            begun += 1
        self._is_beginning = bool(self._unbegun)
        if self._is_beginning:
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _end_those_gone(self) -> None:
        unbegun = {connection.accepted: connection for connection in self._open.values() if connection.is_unbegun()}
        for accepted in _gone(unbegun):
            unbegun[accepted].end()

    def _make_room(self) -> None:
        self._sparing.warning(
            "the management port has %d connections, and one more ends the oldest: let only those reach it who should",
            len(self._open),
        )
        most = max(self._of_address.values())
        oldest = next(one for one in self._open.values() if self._of_address[one.address] == most)
        self._forget(oldest.handler)
        oldest.end()

    def _forget(self, handler: web.RequestHandler) -> None:
        connection = self._open.pop(handler, None)
        if connection is None:
            return
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]

    def _bound_unread(self) -> None:
        """If the large answers that may be unread are too large together, end connections until they fit, but not the
        one that was answered last."""
        unread = [connection for connection in self._open.values() if connection.unread_bytes()]
        size_bytes = sum(connection.unread_bytes() for connection in unread)
        for connection in unread[:-1]:
            if size_bytes <= MANAGEMENT_UNREAD_MAX_BYTES:
                return
            self._sparing.warning("the management port has %d bytes of unread answers, and ends the oldest", size_bytes)
            size_bytes -= connection.unread_bytes()
            connection.end()


def _gone(accepted: Iterable[socket.socket]) -> list[socket.socket]:
    """Those of which no more comes than is here. Nobody who wants an answer by TLS does that before the handshake."""
    by_number = {one.fileno(): one for one in accepted}
    poll = select.poll()
    for number in by_number:
        poll.register(number, select.POLLRDHUP)
    return [by_number[number] for number, _ in poll.poll(0)]


class _Connection(asyncio.Protocol):
    """One accepted socket, including its TLS handshake. `handler` gets the bytes after that. Nothing is read before
    `begin`."""

    def __init__(
        self,
        handler: web.RequestHandler,
        accepted: socket.socket,
        address: bytes,
        tls: ssl.SSLContext | None,
        forget: Callable[[web.RequestHandler], None],
    ) -> None:
        self.handler = handler
        self.accepted = accepted
        self.address = address
        self._tls = tls
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._too_late = asyncio.get_running_loop().call_later(MANAGEMENT_REQUEST_MAX_S, self.end)
        self._unread: asyncio.TimerHandle | None = None
        self._unwanted_bytes: int | None = None
        """Bytes that came after the last answer; None before the first answer, and while a request is handled."""
        self._answer_bytes = 0
        self._answered_s = 0.0
        self._beginning: asyncio.Task[None] | None = None
        self._has_ended = False

    def is_unbegun(self) -> bool:
        return self._beginning is None and not self._has_ended

    def begin(self) -> None:
        self._beginning = asyncio.create_task(self._begin())

    async def _begin(self) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self, self.accepted, ssl=self._tls)
        except (OSError, asyncio.CancelledError):
            if self._transport is None:
                self.accepted.close()
                self._ended()

    def has_asked(self) -> None:
        self._too_late.cancel()
        self._unwanted_bytes = None
        self._answer_bytes = 0

    def is_answered(self, size_bytes: int) -> None:
        """An answer of this size is about to be written; 0 if it is one that is written in pieces."""
        self._unwanted_bytes = 0
        self._answer_bytes = size_bytes
        self._answered_s = asyncio.get_running_loop().time()

    def unread_bytes(self) -> int:
        """The size of the last answer if it is large, while the client may not have read it. With TLS nobody tells when
        it has: until its next request, or for as long as an answer may take."""
        if self._answer_bytes <= MANAGEMENT_SMALL_ANSWER_MAX_BYTES:
            return 0
        is_over = asyncio.get_running_loop().time() - self._answered_s > MANAGEMENT_ANSWER_MAX_S
        return 0 if is_over else self._answer_bytes

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        elif self._beginning is not None:
            self._beginning.cancel()
        else:
            self.accepted.close()
            self._ended()

    def _ended(self) -> None:
        self._has_ended = True
        self._too_late.cancel()
        self._is_read()
        self._forget(self.handler)

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._transport.set_write_buffer_limits(0)  # pause_writing is called as soon as the socket is full
        self.handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()
        self.handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._unwanted_bytes is not None:
            self._unwanted_bytes += len(data)
            if self._unwanted_bytes > MANAGEMENT_UNWANTED_MAX_BYTES:
                self.end()
                return
        self.handler.data_received(data)

    def eof_received(self) -> None:
        self.handler.eof_received()

    def pause_writing(self) -> None:
        self._unread = asyncio.get_running_loop().call_later(MANAGEMENT_ANSWER_MAX_S, self.end)
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self._is_read()
        self.handler.resume_writing()
