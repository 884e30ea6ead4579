"""Rebalancing as the REST API shows it, and what may be asked for.

The structs are the JSON of /api/v1/rebalance (see `rebalance`). AskedRebalance also goes from node to node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Protocol, TypeAlias

import msgspec

from flockmq.config.schema import AbsoluteThreshold, EvictionRate, LoadWeight, RelativeThreshold

RebalanceState: TypeAlias = Literal["unheard", "idle", "rebalancing", "draining"]
AskedState: TypeAlias = Literal["running", "balanced", "gave_up", "stopped"]
"""`balanced`: no node has more than the thresholds allow, or none of its clients can go without making another node
that one. `gave_up`: clients always came back to the node.
`stopped`: by an operator, or because all clients leave the node."""

RebalanceName: TypeAlias = Annotated[str, msgspec.Meta(max_length=512)]
WaitSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)]


class AskedRebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance that an operator asks for. Where a field is None, each node takes its own configuration."""

    name: RebalanceName = ""
    """Who asks. One of another name isn't started while this one runs."""
    relative_threshold: RelativeThreshold | None = None
    absolute_threshold: AbsoluteThreshold | None = None
    rate: EvictionRate | None = None
    """Clients per second that all nodes together send to other nodes."""
    wait: WaitSeconds | None = None
    """The seconds from the start until the first client goes: load balancers learn meanwhile which nodes send clients
    away. None: 0."""
    settle: WaitSeconds | None = None
    """It is over when no node has sent a client away for so many seconds: they come back meanwhile. None: 10."""
    connections_weight: LoadWeight | None = None
    sessions_weight: LoadWeight | None = None
    messages_weight: LoadWeight | None = None


THRESHOLDS: Final = (
    *("relative_threshold", "absolute_threshold", "rate"),
    *("connections_weight", "sessions_weight", "messages_weight"),
)
"""The fields of AskedRebalance by which a plan is made."""
WAITS: Final = ("wait", "settle")


class AskedProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a node is with the last rebalance that it was asked for since it started."""

    name: str
    state: AskedState
    moved: int
    """How many clients it has sent away for it."""


class RebalanceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as `/api/v1/rebalance` shows it. A field is None if the node isn't heard, or doesn't tell it."""

    node: str
    role: str
    state: RebalanceState
    clients: int | None
    is_enabled: bool | None = None
    """Whether `cluster.rebalance.enabled` is set there."""
    load: float | None = None
    """Its load, in clients: their number, if all clients of the cluster are alike. None while it drains."""
    mean: float | None = None
    """The mean load of the nodes that take clients, and of this one. None while it drains."""
    begins_above: int | None = None
    """The node sends clients away, down to the mean, once its load has been above this for its wait."""
    planned: int | None = None
    """About how many clients it would send away by the present numbers: exactly, if its clients are alike."""
    planned_s: float | None = None
    """The seconds that takes at its part of the rate."""
    left: int = 0
    """How many clients it is sending away now."""
    rate: float = 0.0
    """Clients per second that go now."""
    left_s: float | None = None
    """The seconds until they have gone. None: none goes, for example because no other node takes clients."""
    evicted: int | None = None
    """How many clients it has sent away since it started."""
    asked: AskedProgress | None = None
    """None: it was asked for none since it started."""


class RebalanceShown(msgspec.Struct, frozen=True, kw_only=True):
    told_by: str
    nodes: Sequence[RebalanceRow]
    missing: Sequence[str] = ()
    """The nodes that don't know of a rebalance that was just started, and why."""


class RebalanceView(Protocol):
    """The rebalancing of the whole cluster. `node`: the name of one node; None means all."""

    async def shown(self, thresholds: AskedRebalance) -> RebalanceShown:
        """What nodes do now, and would do with these thresholds and this rate."""

    async def start(self, asked: AskedRebalance, node: str | None) -> RebalanceShown:
        """Replaces one of the same name that runs. Raises Conflict, Missing, Unavailable."""

    async def stop(self, name: str | None, node: str | None) -> None:
        """End that of this name; None: whichever runs. It is fine if none runs. Raises Missing, Unavailable."""
