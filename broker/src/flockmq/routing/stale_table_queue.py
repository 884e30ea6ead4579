"""Queues of clients whose QoS 1 and 2 messages wait because this node's routing tables may be stale. One per router.

Invariants: `bytes` is the sum of all queues here, at most HELD_MAX_BYTES: a client that exceeds it is disconnected
(`is_over_limit`). Messages of disconnected clients use at most half of that; the oldest of them are dropped.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import HELD_MAX_BYTES


@mypyc_attr(acyclic=True)
class HoldableQueue:
    """The published messages of one client that weren't acknowledged yet, in order. `is_held`: the queue waits here;
    at first it doesn't.
    """

    __slots__ = ("is_held",)

    is_held: bool

    def size_bytes(self) -> int:
        raise NotImplementedError(type(self).__name__)

    def is_abandoned(self) -> bool:
        """True if the client has disconnected."""
        raise NotImplementedError(type(self).__name__)

    def is_repeated(self) -> bool:
        """True if the client has disconnected, and will send the messages again when it reconnects."""
        raise NotImplementedError(type(self).__name__)

    def is_in_log(self) -> bool:
        """True if the log has some of the messages."""
        raise NotImplementedError(type(self).__name__)

    def advance(self) -> None:
        """Publish what may be published."""
        raise NotImplementedError(type(self).__name__)

    def give_up(self) -> None:
        """Drop all messages of the queue."""
        raise NotImplementedError(type(self).__name__)


class StaleTableQueue:
    """`queues`: the queues, in the order in which they continue. `left`: those of disconnected clients among them."""

    def __init__(self) -> None:
        self.queues: dict[HoldableQueue, None] = {}
        self.left: dict[HoldableQueue, None] = {}
        self.bytes: int = 0

    def put(self, queue: HoldableQueue) -> None:
        if not queue.is_held:
            queue.is_held = True
            self.queues[queue] = None
            self.bytes += queue.size_bytes()
            if queue.is_abandoned():
                self.abandoned(queue)

    def take_first(self) -> HoldableQueue:
        """Remove and return the first queue. Take one at a time: delivering its messages may end other clients here."""
        queue = next(iter(self.queues))
        self._let_go(queue)
        return queue

    def abandoned(self, queue: HoldableQueue) -> None:
        """The client of a waiting queue has disconnected. If it will send the messages again through another node, drop
        them, because they must not be published after the resent ones.
        """
        if queue.is_repeated():
            self._let_go(queue)
            queue.give_up()
        else:
            self.left[queue] = None
            self.make_room()

    def make_room(self) -> None:
        """While more than half of the limit is used, drop queues of disconnected clients, oldest first. Messages that
        are in the log are kept: new subscribers get them as retained messages, so existing ones must get them too.
        """
        while self.left and self.is_half_full():
            queue = next(iter(self.left))
            del self.left[queue]
            if not queue.is_in_log():
                self._let_go(queue)
                queue.give_up()

    def is_half_full(self) -> bool:
        return self.bytes * 2 > HELD_MAX_BYTES

    def is_over_limit(self) -> bool:
        return self.bytes > HELD_MAX_BYTES

    def _let_go(self, queue: HoldableQueue) -> None:
        queue.is_held = False
        self.bytes -= queue.size_bytes()
        del self.queues[queue]
        self.left.pop(queue, None)
