"""How fast a node that drains sends its clients to the others. Pure: the time is passed in.

What always holds: all are away when the time is over. Before that no more than the node's share of the cluster's rate
are sent away, unless the time that is left asks for more; and none in the beginning, while others learn of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from flockmq.bounds import EVICTION_BEGINS_S, EVICTION_JOINED_MAX_S, EVICTION_TICK_S
from flockmq.management.view import Member

_BEGINS_PART: Final = 0.25
"""Of a short time."""


class Draining(NamedTuple):
    """What is configured of it."""

    timeout_s: float = 60.0
    rate: float = 500.0
    """Clients a second, of all nodes that drain together."""


class EvictionPace:
    """From `begun_s` on."""

    def __init__(self, settings: Draining, begun_s: float) -> None:
        timeout_s = settings.timeout_s
        self._rate = settings.rate
        self._asked_s = begun_s + min(EVICTION_BEGINS_S, timeout_s * _BEGINS_PART)
        self._ends_s = begun_s + timeout_s
        self._owed = 0.0

    def is_over(self, now_s: float) -> bool:
        return now_s >= self._ends_s

    def due(self, now_s: float, left: int, share: float) -> int:
        """How many of `left` clients are to be sent away now. `share`: this node's part of the rate, up to 1."""
        time_left_s = self._ends_s - now_s - EVICTION_TICK_S
        if time_left_s <= 0:
            return left
        if now_s < self._asked_s:
            return 0
        rate = max(self._rate * share, left / time_left_s)
        self._owed += rate * min(now_s - self._asked_s, EVICTION_JOINED_MAX_S)
        self._asked_s = now_s
        number = min(int(self._owed), left)
        self._owed -= number
        return number


class Others(NamedTuple):
    """What a node that drains must know of the cluster."""

    accept: bool
    """Another node takes clients."""
    share: float
    """This node's part of the rate."""


def others(members: Iterable[Member], me: str) -> Others:
    """`me`: this node's incarnation."""
    known = [member for member in members if member.incarnation != me and member.heard]
    draining = sum(member.draining and member.connections > 0 for member in known)
    return Others(any(_accepts(member) for member in known), 1 / (1 + draining))


def _accepts(member: Member) -> bool:
    takes = member.role != "core" if member.takes_clients is None else member.takes_clients
    return takes and member.ready and not member.draining
