"""What waits in a node, as its metrics tell it, beside the bound of each.

What always holds: a queue that `BOUNDS` names is told by the node; what a queue holds is counted up and down alike, so
below zero is as much a defect as beyond its bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from flockmq import bounds
from flockmq.node.assembly import Assembly
from flockmq.rlog.shards import SHARDS

Sampled = tuple[str, tuple[str, ...]]
"""The name of a metric, and its labels."""

LENGTH: Final = "flockmq_queue_length"

BOUNDS: Final[dict[Sampled, float]] = {
    (LENGTH, ("attaches",)): bounds.ATTACHES_MAX,
    (LENGTH, ("log_pending_bytes",)): bounds.LOG_PENDING_MAX_BYTES * len(SHARDS),
    (LENGTH, ("offered_messages",)): bounds.OFFERED_MAX_BYTES // bounds.OFFERED_BYTES,
    (LENGTH, ("offered_bytes",)): bounds.OFFERED_MAX_BYTES,
    ("flockmq_sessions_away", ()): bounds.AWAY_SESSIONS_MAX,
    ("flockmq_delayed_messages", ()): bounds.DELAYED_MAX_MESSAGES,
    ("flockmq_delayed_bytes", ()): bounds.DELAYED_MAX_BYTES,
    ("flockmq_routes", ()): bounds.MAX_ROUTES,
    ("flockmq_alarms", ()): bounds.ALARMS_MAX,
}
OF_EACH_NODE: Final[dict[Sampled, float]] = {
    (LENGTH, ("resend_messages",)): bounds.PEER_RESEND_MAX_MESSAGES,
    ("flockmq_courier_messages", ()): bounds.COURIER_LANE_MAX_MESSAGES,
    ("flockmq_courier_bytes", ()): bounds.COURIER_LANE_MAX_BYTES,
}
"""Bounds for each of the other nodes; what is told is the sum."""
OF_A_CORE: Final[dict[Sampled, float]] = {
    ("flockmq_home_intake_bytes", ()): bounds.INTAKE_SENDER_MAX_BYTES,
    ("flockmq_home_store_queue_bytes", ()): bounds.STORE_QUEUE_MAX_BYTES,
}
MQUEUE: Final = "mqueue of "


class Queue(NamedTuple):
    name: str
    length: float
    bound: float

    @property
    def keeps(self) -> bool:
        return 0 <= self.length <= self.bound


def of_node(made: Assembly, nodes: int, max_mqueue_len: int) -> Iterator[Queue]:
    """`nodes`: how many there are; `max_mqueue_len`: as they are configured."""
    told = {(sample.name, tuple(sample.labels)): sample.value for sample in made.node.view.samples()}
    known = BOUNDS | {sampled: bound * nodes for sampled, bound in OF_EACH_NODE.items()}
    hosting = made.node.hosting
    if hosting is not None:
        known |= {sampled: bound * nodes for sampled, bound in OF_A_CORE.items()}
    for (name, labels), bound in known.items():
        yield Queue(" ".join((name, *labels)), told[name, labels], bound)
    for sessions in (made.node.sessions, *(() if hosting is None else (hosting.residents.sessions,))):
        for client_id, session in sessions.by_id.items():
            yield Queue(f"{MQUEUE}{client_id.decode()}", session.waiting(), max_mqueue_len)
