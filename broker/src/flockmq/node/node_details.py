"""What a node tells of itself when an operator asks: heartbeats don't have it, because nobody needs it otherwise."""

from __future__ import annotations

import msgspec

from flockmq.management.rebalance_rows import AskedProgress
from flockmq.node.client_balance import Balancing
from flockmq.node.node_load import Weights


class NodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One node's answer. Later releases may add fields with defaults."""

    cores: int
    """Its `cluster.cores`."""
    eviction_rate: float
    """Its `cluster.eviction_rate`: clients per second, for all nodes together."""
    balancing: Balancing
    """Its thresholds below `cluster.rebalance`."""
    rebalances: bool
    """Whether `cluster.rebalance.enabled` is set."""
    left: int = 0
    """How many clients it is still to send away because it has more than its share."""
    rate: float = 0.0
    """Clients per second that it may send away now."""
    evicted: int = 0
    """How many clients it has sent away since it started."""
    asked: AskedProgress | None = None
    """The last rebalance that it was asked for since it started."""
    weights: Weights = Weights()
    """Below `cluster.rebalance`, too."""
