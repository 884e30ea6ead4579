"""How much of the cluster's load a node has, and each of its clients; and which clients go. No I/O.

Load is counted in clients. A node has a share of the cluster's connections, of its durable sessions, and of its
messages in and out. The weighted mean of these shares, times all connections, is the node's load. So where all clients
are alike a node's load is the number of its clients, and a client of much traffic counts for several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from flockmq.management.rebalance_rows import AskedRebalance

MESSAGES_BUSY_PER_S: Final = 100.0
"""While there are fewer messages per second for each node, they count for less: shares of little keep no node busy."""
ROUNDING: Final = 1e-6
"""The load, in clients, that sums of shares may be off."""


class Weights(NamedTuple):
    """How much each share counts, relative to the others."""

    connections: float = 2.0
    sessions: float = 1.0
    messages: float = 1.0

    def asked(self, asked: AskedRebalance) -> Weights:
        """The weights that `asked` has, and these where it has none."""
        said = asked.connections_weight, asked.sessions_weight, asked.messages_weight
        return Weights(*(own if other is None else other for own, other in zip(self, said, strict=True)))


class Figures(NamedTuple):
    """What one client has, one node, or all nodes together."""

    connections: int
    sessions: int = 0
    """Connections whose session is durable."""
    messages_per_s: float = 0.0
    """From clients and to clients."""


def total_of(figures: Sequence[Figures]) -> Figures:
    return Figures(
        sum(each.connections for each in figures),
        sum(each.sessions for each in figures),
        sum(each.messages_per_s for each in figures),
    )


def most_of(one: Figures, other: Figures) -> Figures:
    """The larger of each."""
    return Figures(
        max(one.connections, other.connections),
        max(one.sessions, other.sessions),
        max(one.messages_per_s, other.messages_per_s),
    )


class LoadScale(NamedTuple):
    """The load, in clients, of one connection, of one durable session, and of one message per second."""

    connection: float = 1.0
    session: float = 0.0
    message: float = 0.0

    @property
    def is_even(self) -> bool:
        """Whether all clients have the same load."""
        return not self.session and not self.message

    def load(self, figures: Figures) -> float:
        return (
            figures.connections * self.connection
            + figures.sessions * self.session
            + figures.messages_per_s * self.message
        )


def scale_of(weights: Weights, total: Figures, nodes: int) -> LoadScale:
    """`total`: of the `nodes` that take clients. What nobody has counts for nothing."""
    messages = weights.messages * min(1.0, total.messages_per_s / (nodes * MESSAGES_BUSY_PER_S))
    counts = (
        weights.connections if total.connections else 0.0,
        weights.sessions if total.sessions else 0.0,
        messages,
    )
    if not (whole := sum(counts)):
        return LoadScale()
    connection, session, message = (
        total.connections * count / whole / amount if count else 0.0
        for count, amount in zip(counts, total, strict=True)
    )
    return LoadScale(connection, session, message)


def chosen(loads: Sequence[float], excess: float) -> list[int]:
    """The positions of the clients that go, so that together they have no more than `excess`. `loads`: the oldest
    client first.

    The largest loads that fit go first, so few clients have to; of about the same load the oldest. A client whose load
    is beyond the excess stays: it would only make another node the one that has too much.
    """
    left, found = excess + ROUNDING, list[int]()
    for position in sorted(range(len(loads)), key=lambda position: -_size(loads[position])):
        if 0.0 < loads[position] <= left:
            left -= loads[position]
            found.append(position)
    return found


def _size(load: float) -> float:
    """Equal for loads that differ by little: a power of four."""
    return round(math.log2(load) / 2) if load > 0.0 else -math.inf
