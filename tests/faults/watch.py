"""What a node's metrics say of its bounds: "every queue has a named bound", and `/metrics` shows it beside the queue.

One bound may hold for each shard of the log, or for each other node, where the metric is their sum. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from flockmq.rlog.schema import SHARDS
from flockmq.telemetry.sample import Sample
from load.history import BoundPassed


class Bounded(NamedTuple):
    """`bound`: what flockmq_bound calls it. Where there are several of what it bounds: one `by_shard`, or `by_node`."""

    name: str
    labels: tuple[str, ...]
    bound: str
    by_shard: bool = False
    by_node: bool = False


_QUEUE: Final = "flockmq_queue_length"
BOUNDED: Final = (
    Bounded(_QUEUE, ("attaches",), "attaches_max"),
    Bounded(_QUEUE, ("resend_messages",), "peer_resend_max_messages", by_node=True),
    Bounded(_QUEUE, ("log_pending_bytes",), "log_pending_max_bytes", by_shard=True),
    Bounded(_QUEUE, ("unoffered_bytes",), "unoffered_max_bytes"),
    Bounded(_QUEUE, ("offered_bytes",), "offered_max_bytes"),
    Bounded(_QUEUE, ("held_bytes",), "held_max_bytes"),
    Bounded(_QUEUE, ("ended_filters",), "ended_filters_waiting_max"),
    Bounded(_QUEUE, ("hashes",), "hashes_waiting_max"),
    Bounded("flockmq_slot_queue_messages", (), "slot_queue_max_messages", by_node=True),
    Bounded("flockmq_slot_queue_bytes", (), "slot_queue_max_bytes", by_node=True),
    Bounded("flockmq_owner_intake_bytes", (), "intake_sender_max_bytes", by_node=True),
    Bounded("flockmq_session_store_queue_bytes", (), "store_queue_max_bytes"),
    Bounded("flockmq_sessions_away", (), "away_sessions_max"),
    Bounded("flockmq_exclusive_subscriptions", (), "max_routes"),
    Bounded("flockmq_delayed_messages", (), "delayed_max_messages"),
    Bounded("flockmq_delayed_bytes", (), "delayed_max_bytes"),
    Bounded("flockmq_routes", (), "max_routes"),
    Bounded("flockmq_alarms", (), "alarms_max"),
    Bounded("flockmq_bans", (), "bans_max"),
)


def value(samples: Sequence[Sample], name: str) -> float:
    """The sum over its labels."""
    return sum(sample.value for sample in samples if sample.name == name)


def bounds_of(samples: Iterable[Sample]) -> dict[str, float]:
    """What flockmq_bound says."""
    return {sample.labels[0]: sample.value for sample in samples if sample.name == "flockmq_bound"}


def bounds_passed(
    at: float, node: str, samples: Sequence[Sample], bounds: Mapping[str, float], nodes: int
) -> Iterator[BoundPassed]:
    """`bounds`: the node's; `nodes`: how many the cluster has. Raises KeyError where a bound has no such name any
    more."""
    shown = {(sample.name, sample.labels): sample.value for sample in samples}
    for each in BOUNDED:
        many = (len(SHARDS) if each.by_shard else 1) * (nodes if each.by_node else 1)
        bound = bounds[each.bound] * many
        if (now := shown.get((each.name, each.labels), 0.0)) > bound:
            yield BoundPassed(at, node, " ".join((each.name, *each.labels)), now, bound)
