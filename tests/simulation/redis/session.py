"""A client's connection to a simulated server, as the server sees it: pipelines, answered whole and in their order.

XREAD and WAIT may hold up their session; the server goes on with the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from redis.exceptions import RedisError

from flockmq.redis.connection import Argument, Reply

if TYPE_CHECKING:
    from simulation.redis.server import Handle, Server

Answers: TypeAlias = "list[Reply | RedisError]"
Answer: TypeAlias = "Callable[[Answers], None]"


class Pending:
    """In place of a reply: it comes later."""


PENDING: Final = Pending()


class Wait(NamedTuple):
    """What a session waits for. `retry` is called whenever one of `keys` grew, or, without keys, when a replica
    acknowledged; `give_up` when the time is over."""

    keys: tuple[bytes, ...]
    retry: Callable[[], Reply | Pending]
    give_up: Callable[[], Reply]


class _Pipeline(NamedTuple):
    commands: Iterator[Sequence[Argument]]
    replies: Answers
    answer: Answer


class Session:
    """`written_to`: the place in the server's history of what this session wrote last. `on_lost` is called when the
    server ends the session."""

    def __init__(self, server: Server) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.is_open = True
        self.is_ending = False
        self.written_to = 0
        self.wait: Wait | None = None
        self._server = server
        self._running: _Pipeline | None = None
        self._timer: Handle | None = None
        self._later: deque[_Pipeline] = deque()

    def execute(self, commands: Sequence[Sequence[Argument]], answer: Answer) -> None:
        """All of it in a go. `answer` is called once, when all replies are there; never after `close`, or when the
        server ended the session."""
        if self.is_open:
            self._server.post(self._begin, _Pipeline(iter(commands), [], answer))

    def close(self) -> None:
        """What came before is executed all the same, but for what waits behind a blocked command."""
        self.is_open = False
        self._stop_waiting()
        self._server.sessions.pop(self, None)

    def lose(self) -> None:
        """The server's end of it."""
        was_open, self.is_open = self.is_open, False
        self.is_ending = True
        self._server.sessions.pop(self, None)
        self._stop_waiting()
        self._later.clear()
        if was_open and self.on_lost is not None:
            self.on_lost()

    def block(self, wait: Wait, timeout_ms: int) -> None:
        """The command that is running has no reply yet. 0: for as long as it takes."""
        self.wait = wait
        if timeout_ms:
            self._timer = self._server.timers.call_later(timeout_ms / 1000, self._server.post, self._give_up, wait)

    def unblock(self, reply: Reply | RedisError) -> None:
        """The command that was blocked is answered; those behind it go on."""
        assert self._running is not None
        self._running.replies.append(reply)
        self._stop_waiting()
        self._server.post(self._go_on)

    def end(self, error: RedisError) -> None:
        """The server answers the blocked command with an error, and hangs up."""
        self.unblock(error)
        self.is_ending = True
        self._server.hang_up(self)

    def _begin(self, pipeline: _Pipeline) -> None:
        if self._running is None:
            self._running = pipeline
            self._go_on()
        else:
            self._later.append(pipeline)

    def _go_on(self) -> None:
        while self._running is not None:
            commands, replies, answer = self._running
            for command in commands:
                if self.is_ending:
                    return
                args = [
                    each if type(each) is bytes else each.encode() if type(each) is str else _encoded(each)
                    for each in command
                ]
                reply = self._server.dispatcher.execute(self, args)
                if isinstance(reply, Pending):
                    return
                replies.append(reply)
            self._server.answer(self, answer, replies)
            self._running = self._later.popleft() if self._later else None

    def _give_up(self, wait: Wait) -> None:
        if self.wait is wait:
            self.unblock(wait.give_up())

    def _stop_waiting(self) -> None:
        if self.wait is not None:
            self._server.dispatcher.unblocked(self, self.wait)
        if self._timer is not None:
            self._timer.cancel()
        self.wait = self._timer = None


def _encoded(argument: Argument) -> bytes:
    if isinstance(argument, str):
        return argument.encode()
    return argument if isinstance(argument, bytes) else b"%d" % argument
