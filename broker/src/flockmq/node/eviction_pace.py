"""The rate at which a draining node sends its clients to other nodes. No I/O: the caller passes the time.

Invariants: all clients have been sent away when the time is over. Until then the rate is the node's share of the
cluster's rate, less while clients wait long for CONNACK at another node, or higher if the remaining time requires it.
At first none are sent, until other nodes know that this one drains.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from flockmq.bounds import CONNECT_WAIT_MAX_S, EVICTION_BEGINS_S, EVICTION_JOINED_MAX_S, EVICTION_TICK_S
from flockmq.management.view import Member

_BEGINS_PART: Final = 0.25
"""The part of a short drain timeout for which no clients are sent."""
_SLOWER: Final = 0.5
_FASTER: Final = 1.25
_LEAST: Final = 1 / 32
"""Factors of the rate: when clients wait too long elsewhere, when they don't, and its smallest."""


class Draining(NamedTuple):
    """The configuration of draining."""

    timeout_s: float = 60.0
    rate: float = 500.0
    """Clients per second, for all draining nodes together."""


class EvictionPace:
    """The pace of one evacuation that begins at `begun_s`."""

    def __init__(self, settings: Draining, begun_s: float) -> None:
        timeout_s = settings.timeout_s
        self._rate = settings.rate
        self._asked_s = begun_s + min(EVICTION_BEGINS_S, timeout_s * _BEGINS_PART)
        self._ends_s = begun_s + timeout_s
        self._backlog = 0.0
        self._factor = 1.0

    @property
    def rate(self) -> float:
        """Clients per second that the other nodes can take, for all draining nodes together."""
        return self._rate * self._factor

    def heard(self, connect_wait_s: float) -> None:
        """The others were asked again: for so long a client waits for CONNACK at one of them."""
        if connect_wait_s > CONNECT_WAIT_MAX_S:
            self._factor = max(self._factor * _SLOWER, _LEAST)
        else:
            self._factor = min(self._factor * _FASTER, 1.0)

    def is_over(self, now_s: float) -> bool:
        return now_s >= self._ends_s

    def due(self, now_s: float, left: int, share: float) -> int:
        """How many of the `left` clients to send away now. `share` is this node's part of the rate, at most 1."""
        time_left_s = self._ends_s - now_s - EVICTION_TICK_S
        if time_left_s <= 0:
            return left
        if now_s < self._asked_s:
            return 0
        rate = max(self.rate * share, left / time_left_s)
        self._backlog += rate * min(now_s - self._asked_s, EVICTION_JOINED_MAX_S)
        self._asked_s = now_s
        number = min(int(self._backlog), left)
        self._backlog -= number
        return number


class Others(NamedTuple):
    """What a draining node must know about the other nodes."""

    accept: bool
    """Whether another node accepts clients."""
    share: float
    """This node's part of the rate."""
    connect_wait_s: float = 0.0
    """For how long a client waits for CONNACK now, at the slowest of those that accept clients."""


def others(members: Iterable[Member], me: str) -> Others:
    """Summarize the members. `me` is this node's incarnation."""
    known = [member for member in members if member.incarnation != me and member.heard]
    draining = sum(member.draining and member.connections > 0 for member in known)
    accepting = [member for member in known if accepts(member)]
    slowest_ms = max((member.connect_wait_ms for member in accepting), default=0)
    return Others(bool(accepting), 1 / (1 + draining), slowest_ms / 1000)


def accepts(member: Member) -> bool:
    """Whether it takes clients now."""
    takes = member.role != "core" if member.takes_clients is None else member.takes_clients
    return takes and member.ready and not member.draining
