"""What rebalancing does, and would do, by node: from the heartbeats of all, and what each tells of itself. No I/O.

The plan is what each node would decide by client_balance.py if the present numbers lasted for its wait. It is made with
each node's own thresholds and rate unless others are given, also where `cluster.rebalance.enabled` isn't set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from flockmq.management.rebalance_rows import AskedRebalance, RebalanceRow, RebalanceState
from flockmq.management.view import Member
from flockmq.node.client_balance import ClientBalance, KnownLoad, compared, figures_of, takers_beside
from flockmq.node.node_details import NodeDetails
from flockmq.node.node_load import ROUNDING


def rebalance_rows(
    members: Sequence[Member],
    details: Mapping[str, NodeDetails | None],
    thresholds: AskedRebalance = AskedRebalance(),  # noqa: B008 - it never changes
) -> list[RebalanceRow]:
    """A row for each member, in their order. `details`: by incarnation; None for a node that tells nothing."""
    return [_row(member, members, details.get(member.incarnation), thresholds) for member in members]


def _row(
    member: Member, members: Sequence[Member], details: NodeDetails | None, thresholds: AskedRebalance
) -> RebalanceRow:
    if not member.heard:
        return RebalanceRow(node=member.name, role=member.role, state="unheard", clients=None)
    state: RebalanceState = "draining" if member.draining else "idle"
    row = RebalanceRow(node=member.name, role=member.role, state=state, clients=member.connections)
    if details is None:
        return row
    row = msgspec.structs.replace(row, is_enabled=details.rebalances, evicted=details.evicted, asked=details.asked)
    if member.draining:
        left = member.connections
        return msgspec.structs.replace(row, left=left, rate=details.rate, left_s=_seconds(left, details.rate))
    if details.left:
        rate = details.rate
        row = msgspec.structs.replace(
            row, state="rebalancing", left=details.left, rate=rate, left_s=_seconds(details.left, rate)
        )
    return _planned(row, member, members, details, thresholds)


def _planned(
    row: RebalanceRow, member: Member, members: Sequence[Member], details: NodeDetails, thresholds: AskedRebalance
) -> RebalanceRow:
    balancing = details.balancing.asked(thresholds)
    weights = details.weights.asked(thresholds)
    me, own = member.incarnation, figures_of(member)
    here = compared(KnownLoad(weights), own, takers_beside(me, members), is_shedding=False)
    excess = ClientBalance(balancing._replace(wait_s=0.0), weights).look(0.0, members, me, own)
    planned = math.floor(excess.load * own.connections / here.load + ROUNDING) if here.load else 0
    rate = (thresholds.rate or details.eviction_rate) * excess.share
    return msgspec.structs.replace(
        row,
        load=round(here.load, 3),
        mean=here.mean,
        begins_above=math.floor(balancing.begins_above(here.mean)),
        planned=planned,
        planned_s=_seconds(planned, rate),
    )


def _seconds(clients: int, rate: float) -> float | None:
    """None: nothing goes at this rate."""
    if not clients:
        return 0.0
    return clients / rate if rate else None
