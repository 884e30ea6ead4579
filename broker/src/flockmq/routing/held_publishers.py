"""Lines of clients that wait for newer tables: nothing of theirs at QoS ≥ 1 may be matched now. One per router.

What always holds: `bytes` is what all lines here have, within HELD_MAX_BYTES (`is_too_much`: whoever adds to it is cut
off); what clients left behind takes no more than half of that, the oldest is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.bounds import HELD_MAX_BYTES

if TYPE_CHECKING:
    from flockmq.protocol.publish_queue import PublishQueue


class HeldPublishers:
    """`lines` in the order in which they go on; those of clients that are gone are in `left`, too."""

    def __init__(self) -> None:
        self.lines: dict[PublishQueue, None] = {}
        self.left: dict[PublishQueue, None] = {}
        self.bytes: int = 0

    def put(self, line: PublishQueue) -> None:
        if not line.is_held:
            line.is_held = True
            self.lines[line] = None
            self.bytes += line.size_bytes()
            if not line.channel.can_answer():
                self.abandoned(line)

    def take_first(self) -> PublishQueue:
        """What it delivers may end others here: take one after the other."""
        line = next(iter(self.lines))
        self._let_go(line)
        return line

    def abandoned(self, line: PublishQueue) -> None:
        """The client of a line that waits is gone. What it sends again elsewhere must not come behind that."""
        if line.channel.repeats:
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

    def _let_go(self, line: PublishQueue) -> None:
        line.is_held = False
        self.bytes -= line.size_bytes()
        del self.lines[line]
        self.left.pop(line, None)
