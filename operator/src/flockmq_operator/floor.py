"""The fewest replicants that a cluster's connections ask for: the minReplicas the operator gives the autoscaler. Pure.

It rises at once, since a connection storm doesn't wait, and falls only to the highest of the last WINDOW_S seconds: a
network hiccup that disconnects everybody for a minute must not cost the replicants they come back to.
"""

from math import ceil

from flockmq_operator.spec import Autoscaling

WINDOW_S = 300.0
HISTORY_MAX = 256
"""Samples kept of one cluster."""

History = tuple[tuple[float, int], ...]
"""(when, in seconds of a monotonic clock; the floor asked for then), oldest first."""


def wanted(autoscaling: Autoscaling, connections: int) -> int:
    """The floor that `connections` ask for, within the bounds of `autoscaling`."""
    asked = ceil(connections / autoscaling.connections_per_replicant)
    return clamp(autoscaling, asked)


def clamp(autoscaling: Autoscaling, replicas: int) -> int:
    return max(autoscaling.min_replicas, min(replicas, autoscaling.max_replicas))


def remember(history: History, now_s: float, floor: int) -> History:
    """`history` with one more sample, without those older than the window."""
    recent = tuple(sample for sample in history if sample[0] > now_s - WINDOW_S)
    return (*recent, (now_s, floor))[-HISTORY_MAX:]


def stabilised(autoscaling: Autoscaling, history: History) -> int:
    """The floor to keep now: the highest in the window."""
    return clamp(autoscaling, max((floor for _, floor in history), default=0))
