"""Requests with one answer and streams with credit, in both directions of one link.

Invariants:

- Requests and streams of one side share one sequence of ids; no id is used twice.
- At most LINK_STREAM_CREDIT_ITEMS of a stream are in the reader's memory: the sender waits for credit.
- When the link ends, each pending request and stream raises LinkLost, and the handlers that serve the peer are
  cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, Protocol

from flockmq import bounds
from flockmq.membership import frames
from flockmq.membership.frames import FrameError
from flockmq.membership.handshake import Identity

log: Final = logging.getLogger(__name__)


class LinkLost(ConnectionError):
    """The link ended before the answer arrived. The request may or may not have been executed."""


class Refusal(Exception):
    """The peer answered with a failure. `code` is one word for the program."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestLink(Protocol):
    """What this module needs of a link."""

    peer: Identity
    up: bool

    @property
    def reason(self) -> str: ...
    def control(self, message: frames.Control) -> None: ...
    def send_data(self, frame: list[bytes], frame_bytes: int) -> None: ...


class LinkRequests:
    """The requests of one link. `serve(method, body)` and `serve_stream` answer the peer's. They may raise Refusal."""

    def __init__(
        self,
        link: RequestLink,
        serve: Callable[[str, bytes], Awaitable[bytes]],
        serve_stream: Callable[[str, bytes], AsyncGenerator[bytes, None]],
    ) -> None:
        self._link = link
        self._serve = serve
        self._serve_stream = serve_stream
        self._loop = asyncio.get_running_loop()
        self._last_id = 0
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._readers: dict[int, asyncio.Queue[bytes | Exception | None]] = {}
        """Items that arrived and weren't read yet; None ends the stream."""
        self._senders: dict[int, _StreamSender] = {}
        self._eligibility: dict[asyncio.Task[None], None] = {}

    # --- asking -----------------------------------------------------------------------------------------------------

    async def request(self, method: str, body: bytes) -> bytes:
        """Send a request and return the peer's answer. Raises LinkLost, or Refusal if the peer's handler failed."""
        link = self._link
        if not link.up or len(self._answers) >= bounds.LINK_REQUESTS_MAX:
            waiting = f"{len(self._answers)} requests wait on the link to {link.peer.incarnation}"
            raise LinkLost(link.reason or waiting)
        request_id = self._next_id()
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answers[request_id] = answer
        link.control(frames.Request(request_id, method, body))
        try:
            return await answer
        finally:
            self._answers.pop(request_id, None)

    async def stream(self, method: str, body: bytes) -> AsyncGenerator[bytes, None]:
        """The items of the peer's stream. Raises LinkLost, Refusal."""
        link = self._link
        if not link.up or len(self._readers) >= bounds.LINK_STREAMS_MAX:
            raise LinkLost(link.reason or f"{bounds.LINK_STREAMS_MAX} streams are open on the link")
        stream_id = self._next_id()
        items = self._readers[stream_id] = asyncio.Queue()
        link.control(frames.StreamOpen(stream_id, method, body, bounds.LINK_STREAM_CREDIT_ITEMS))
        complete = False
        try:
            while True:
                item = await items.get()
                if isinstance(item, Exception):
                    complete = True
                    raise item
                if item is None:
                    complete = True
                    return
                yield item
                link.control(frames.StreamCredit(stream_id, 1))
        finally:
            self._readers.pop(stream_id, None)
            if not complete and link.up:
                link.control(frames.StreamCancel(stream_id))

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # --- what comes on the link -------------------------------------------------------------------------------------

    def take_item(self, body: bytes) -> None:
        """Handle an ITEM frame. Raises FrameError."""
        stream_id, item = frames.parse_id(body)
        if (items := self._readers.get(stream_id)) is not None:
            if items.qsize() > bounds.LINK_STREAM_CREDIT_ITEMS:
                raise FrameError("more items of a stream than it had credit for")
            items.put_nowait(item)

    def take(self, message: frames.Control) -> None:
        """Handle a control message of requests or streams. Raises FrameError."""
        match message:
            case frames.Request(request_id, method, body):
                self._begin(self._answer(request_id, method, body))
            case frames.Reply(request_id, body):
                if (answer := self._answers.get(request_id)) is not None and not answer.done():
                    answer.set_result(body)
            case frames.Failure(request_id, code, text):
                if (answer := self._answers.get(request_id)) is not None and not answer.done():
                    answer.set_exception(Refusal(code, text))
            case frames.StreamOpen(stream_id, method, body, credit):
                if stream_id in self._senders:
                    raise FrameError(f"a second stream {stream_id}")
                sender = self._senders[stream_id] = _StreamSender(credit)
                self._begin(self._send_stream(stream_id, sender, method, body))
            case frames.StreamCredit(stream_id, items):
                if (open_sender := self._senders.get(stream_id)) is not None:
                    open_sender.grant(items)
            case frames.StreamEnd(stream_id, code, text):
                if (reader := self._readers.get(stream_id)) is not None:
                    reader.put_nowait(Refusal(code, text) if code else None)
            case frames.StreamCancel(stream_id):
                if (open_sender := self._senders.get(stream_id)) is not None and open_sender.task is not None:
                    open_sender.task.cancel()

    def link_lost(self, lost: LinkLost) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(lost)
        for items in self._readers.values():
            items.put_nowait(lost)
        for task in self._eligibility:
            task.cancel()

    # --- serving ----------------------------------------------------------------------------------------------------

    def _begin(self, work: Awaitable[None]) -> None:
        if len(self._eligibility) >= bounds.LINK_REQUESTS_MAX:
            raise FrameError(f"more than {bounds.LINK_REQUESTS_MAX} requests at once")
        task = asyncio.ensure_future(work)
        self._eligibility[task] = None
        task.add_done_callback(self._eligibility.pop)

    async def _answer(self, request_id: int, method: str, body: bytes) -> None:
        try:
            answer = await self._serve(method, body)
        except Refusal as refused:
            self._link.control(frames.Failure(request_id, refused.code, str(refused)))
        except Exception as error:
            log.exception("request %s of %s failed", method, self._link.peer.incarnation)
            self._link.control(frames.Failure(request_id, "failed", f"{type(error).__name__}: {error}"))
        else:
            self._link.control(frames.Reply(request_id, answer))

    async def _send_stream(self, stream_id: int, sender: _StreamSender, method: str, body: bytes) -> None:
        sender.task = asyncio.current_task()
        code, text = "", ""
        try:
            async with aclosing(self._serve_stream(method, body)) as items:
                async for item in items:
                    await sender.take_credit()
                    self._link.send_data([frames.id_header(frames.ITEM, stream_id, len(item)), item], len(item))
        except Refusal as refused:
            code, text = refused.code, str(refused)
        except Exception as error:
            log.exception("stream %s for %s failed", method, self._link.peer.incarnation)
            code, text = "failed", f"{type(error).__name__}: {error}"
        finally:
            del self._senders[stream_id]
        self._link.send_data([frames.control(frames.StreamEnd(stream_id, code, text))], 0)


class _StreamSender:
    """The reader's credit: how many items it has room for."""

    __slots__ = ("_credit", "_waiter", "task")

    def __init__(self, credit: int) -> None:
        self.task: asyncio.Task[None] | None = None
        self._credit = credit
        self._waiter = asyncio.Event()

    def grant(self, items: int) -> None:
        self._credit += items
        self._waiter.set()

    async def take_credit(self) -> None:
        while self._credit <= 0:
            self._waiter.clear()
            await self._waiter.wait()
        self._credit -= 1
