"""Queues of clients whose QoS 1 and 2 messages wait because this node's routing tables may be stale. One per router.

Invariants: `bytes` is the sum of all queues here, at most HELD_MAX_BYTES: a client that exceeds it is disconnected
(`is_too_much`). Messages of disconnected clients use at most half of that; the oldest of them are dropped.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import HELD_MAX_BYTES


@mypyc_attr(acyclic=True)
class HeldLine:
    """The published messages of one client that weren't acknowledged yet, in order. `is_held`: the queue waits here."""

    __slots__ = ("is_held",)

    def __init__(self) -> None:
        self.is_held: bool = False

    def size_bytes(self) -> int:
        raise NotImplementedError(type(self).__name__)

    def is_left(self) -> bool:
        """True if the client has disconnected."""
        raise NotImplementedError(type(self).__name__)

    def is_repeated(self) -> bool:
        """True if the client has disconnected, and will send the messages again when it reconnects."""
        raise NotImplementedError(type(self).__name__)

    def is_logged(self) -> bool:
        """True if the log has some of the messages."""
        raise NotImplementedError(type(self).__name__)

    def advance(self) -> None:
        """Publish what may be published."""
        raise NotImplementedError(type(self).__name__)

    def give_up(self) -> None:
        """Drop all messages of the queue."""
        raise NotImplementedError(type(self).__name__)


class HeldPublishers:
    """`lines`: the queues, in the order in which they continue. `left`: those of disconnected clients among them."""

    def __init__(self) -> None:
        self.lines: dict[HeldLine, None] = {}
        self.left: dict[HeldLine, None] = {}
        self.bytes: int = 0

    def put(self, line: HeldLine) -> None:
        if not line.is_held:
            line.is_held = True
            self.lines[line] = None
            self.bytes += line.size_bytes()
            if line.is_left():
                self.abandoned(line)

    def take_first(self) -> HeldLine:
        """Remove and return the first queue. Take one at a time: delivering its messages may end other clients here."""
        line = next(iter(self.lines))
        self._let_go(line)
        return line

    def abandoned(self, line: HeldLine) -> None:
        """The client of a waiting queue has disconnected. If it will send the messages again through another node, drop
        them, because they must not be published after the resent ones.
        """
        if line.is_repeated():
            self._let_go(line)
            line.give_up()
        else:
            self.left[line] = None
            self.make_room()

    def make_room(self) -> None:
        """While more than half of the limit is used, drop queues of disconnected clients, oldest first. Messages that
        are in the log are kept: new subscribers get them as retained messages, so existing ones must get them too.
        """
        while self.left and self.is_much():
            line = next(iter(self.left))
            del self.left[line]
            if not line.is_logged():
                self._let_go(line)
                line.give_up()

    def is_much(self) -> bool:
        return self.bytes * 2 > HELD_MAX_BYTES

    def is_too_much(self) -> bool:
        return self.bytes > HELD_MAX_BYTES

    def _let_go(self, line: HeldLine) -> None:
        line.is_held = False
        self.bytes -= line.size_bytes()
        del self.lines[line]
        self.left.pop(line, None)
