"""What Redis lost while slots moved: a known limit (ARCHITECTURE.md).

The former owner of a slot has let its sessions go, and the next one reads them when Redis has lost them. Then nobody
has them any more, who would write them anew. Where Redis comes back with older data they are as they were then: what
began since is gone, and what their clients have answered since is in flight again.

What always holds: slots moved between two looks at which a core has another number of them. Nothing else bounds how
late a core is back: on a busy machine its slots went to it 3.6 s after it was started. A core that is back at once, as
simulated ones are, may have them again at the next look: so they may have moved unseen for a while behind a fault of a
core. Of which client ids they are isn't seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from judges.faults import Fault, is_of_cores
from judges.life import Came
from judges.verdict import FOREVER
from load.history import NodeSeen, RedisLost

LOAD_MAX_S: Final = 1.0
"""A core has read by then the slots that went to it, while Redis answers."""
UNSEEN_MAX_S: Final = 3.0
"""How long behind a fault of a core slots may go and come back, and be read, between two looks."""
ANSWERED_MAX_S: Final = 1.0
"""A client that is there has answered by then what came, and Redis has that."""
COPIED_MAX_S: Final = 0.25
"""How long it may take until what Redis comes back with is copied."""


class MovedLoss(NamedTuple):
    """What Redis lost `at` that time. What it had at `had_at` it has again, and nothing else; -FOREVER: nothing."""

    had_at: float
    at: float

    def may_lack(self, began_at: float) -> bool:
        """A session that began then."""
        return self.had_at <= began_at <= self.at

    def may_bring_again(self, before: Came, again: Came) -> bool:
        """What a session had in flight in the older data, and its client answered since."""
        if before.life is not again.life or not before.life.lasts:
            return False
        if before.sent.first_sent_at > self.had_at + COPIED_MAX_S or again.delivered.at < self.at:
            return False
        came_at = before.delivered.at
        answers_at_once = before.life.was_there(came_at, came_at + ANSWERED_MAX_S)
        answered_by = came_at + ANSWERED_MAX_S if answers_at_once else FOREVER
        return came_at <= self.at and answered_by >= self.had_at


def moved_losses(
    faults: Iterable[Fault], losses: Sequence[RedisLost], seen: Iterable[NodeSeen]
) -> tuple[MovedLoss, ...]:
    """Those amid which slots moved. While Redis is away none do, and behind a loss none leave their owners."""
    faults = sorted(faults)
    moves = [*_moves_seen(seen), *((f.began, f.ended + UNSEEN_MAX_S) for f in faults if is_of_cores(f))]
    return tuple(
        MovedLoss(fault.began if _is_older(fault) else -FOREVER, lost.at)
        for fault in faults
        for lost in losses
        if _loses_data(fault)
        and fault.began <= lost.at <= fault.ended
        and any(since <= fault.ended and until >= lost.at for since, until in moves)
    )


def _loses_data(fault: Fault) -> bool:
    return fault.kind.startswith("empty") or _is_older(fault)


def _is_older(fault: Fault) -> bool:
    return fault.kind.startswith("older")


class _Look(NamedTuple):
    at: float
    slots: dict[str, int]


def _moves_seen(seen: Iterable[NodeSeen]) -> Iterator[tuple[float, float]]:
    """From the look before slots moved until they are read, which began at the look behind that at the latest."""
    for before, after in pairwise(look for look in _looks(seen) if any(look.slots.values())):
        if any(before.slots[node] != after.slots[node] for node in before.slots.keys() & after.slots.keys()):
            yield before.at, after.at + LOAD_MAX_S


def _looks(seen: Iterable[NodeSeen]) -> Iterator[_Look]:
    """A look sees each node once. One at which no node has slots knows nothing of them: no core could say."""
    look: dict[str, int] = {}
    at = -FOREVER
    for each in seen:
        if each.node in look:
            yield _Look(at, look)
            look = {}
        look[each.node] = each.slots
        at = each.at
    if look:
        yield _Look(at, look)
