"""Lines of clients that wait for newer tables: nothing of theirs at QoS ≥ 1 may be matched by these. One per router.

What always holds: `bytes` is the sum of all lines here, within HELD_MAX_BYTES: who adds more is cut off
(`is_too_much`). What clients left behind takes no more than half of that; the oldest of it is given up.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import HELD_MAX_BYTES


@mypyc_attr(acyclic=True)
class HeldLine:
    """What one client published and nobody was told of yet, in its order. `is_held`: it waits here."""

    __slots__ = ("is_held",)

    def __init__(self) -> None:
        self.is_held: bool = False

    def size_bytes(self) -> int:
        raise NotImplementedError(type(self).__name__)

    def is_left(self) -> bool:
        """Its client is gone."""
        raise NotImplementedError(type(self).__name__)

    def is_repeated(self) -> bool:
        """Its client is gone, and sends it again when it is back."""
        raise NotImplementedError(type(self).__name__)

    def is_logged(self) -> bool:
        """The log has a part of it."""
        raise NotImplementedError(type(self).__name__)

    def advance(self) -> None:
        """Publish what may be."""
        raise NotImplementedError(type(self).__name__)

    def give_up(self) -> None:
        """Publish nothing more of it."""
        raise NotImplementedError(type(self).__name__)


class HeldPublishers:
    """`lines` in the order in which they go on; those of clients that are gone are in `left`, too."""

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
        """What it delivers may end others here: take one after the other."""
        line = next(iter(self.lines))
        self._let_go(line)
        return line

    def abandoned(self, line: HeldLine) -> None:
        """The client of a line that waits is gone. What it sends again elsewhere must not come behind that."""
        if line.is_repeated():
            self._let_go(line)
            line.give_up()
        else:
            self.left[line] = None
            self.make_room()

    def make_room(self) -> None:
        """Give up what clients left behind, the oldest first, while more waits than half of what may. What the log has
        isn't: whoever subscribes gets it as retained, so whoever has subscribed is to get it, too."""
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
