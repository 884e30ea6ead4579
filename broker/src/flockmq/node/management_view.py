"""The state of this node for the REST API, read on each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from flockmq import __version__, compiled_modules
from flockmq.clock import Clock
from flockmq.management.view import LogState, NodeRow, NodeStatus, ShardStatus
from flockmq.membership.cluster import Cluster
from flockmq.membership.views import MemberView
from flockmq.node.cluster_overview import log_states
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import SHARDS


class ManagementView:
    """A `management.view.NodeView`. `state` returns `starting`, `ready` or `draining`."""

    def __init__(self, cluster: Cluster, rlog: Rlog, state: Callable[[], str], clock: Clock) -> None:
        self._cluster = cluster
        self._rlog = rlog
        self._state = state
        self._clock = clock
        self._started_s = clock.monotonic()

    def ready(self) -> tuple[bool, str]:
        state, unfit = self._state(), self._cluster.readiness.unfit
        if state == "ready" and unfit:
            return False, unfit
        return state in ("ready", "draining"), state

    def draining(self) -> bool:
        return self._state() == "draining"

    def nodes(self) -> Sequence[NodeRow]:
        return [_row(view) for view in self._cluster.nodes()]

    def names(self) -> list[str]:
        """The names of all nodes of the cluster."""
        return [view.name for view in self._cluster.nodes()]

    def status(self) -> NodeStatus:
        settings, (is_ready, state) = self._cluster.settings, self.ready()
        lags = {shard: self._rlog.lag(shard) for shard in SHARDS}
        return NodeStatus(
            name=settings.name,
            incarnation=self._cluster.incarnation,
            role=settings.role,
            version=__version__,
            build=compiled_modules.kind(),
            ready=is_ready,
            state=state,
            uptime_s=self._clock.monotonic() - self._started_s,
            leader=next((view.incarnation for view in self._cluster.nodes() if view.leader), None),
            cluster_version=self._cluster.version.current,
            shards=[
                ShardStatus(shard=shard, applied=str(self._rlog.applied(shard)), lag_entries=entries, lag_ms=ms)
                for shard, (entries, ms) in lags.items()
            ],
        )

    def rlog(self) -> Mapping[str, LogState]:
        return log_states(self._rlog)


def _row(view: MemberView) -> NodeRow:
    """Convert a member; fields are copied by name."""
    row = msgspec.convert(view, NodeRow, from_attributes=True)
    return row if row.mqtt_port else msgspec.structs.replace(row, mqtt_port=None)
