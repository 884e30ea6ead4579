"""The state of this node for the REST API, read on each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

from flockmq import __version__, compiled_modules
from flockmq.clock import Clock
from flockmq.management.view import LogState, NodeRow, NodeStatus, ShardStatus
from flockmq.membership.cluster import Cluster
from flockmq.membership.frames import Status
from flockmq.membership.reachability import CORE_ROLES
from flockmq.node.cluster_overview import log_states
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import SHARDS, NodeInfo

_build: Final = cache(compiled_modules.kind)
"""It looks at some hundred files, which don't change while they run, and /api/v1/status needs no key."""
NO_REPLICANT: Final = "no replicant takes clients"


class ManagementView:
    """A `management.view.NodeView`. `state` returns `starting`, `ready` or `draining`. `needs_replicant`: this node is
    ready only while a replicant takes clients."""

    def __init__(self, cluster: Cluster, rlog: Rlog, state: Callable[[], str], clock: Clock) -> None:
        self._cluster = cluster
        self._rlog = rlog
        self._state = state
        self._clock = clock
        self.needs_replicant = False
        self._started_s = clock.monotonic()

    def ready(self) -> tuple[bool, str]:
        state, unfit = self._state(), self._cluster.readiness.unfit
        if state == "ready" and unfit:
            return False, unfit
        if state == "ready" and self.needs_replicant and not self._serving_replicants():
            return False, NO_REPLICANT
        return state in ("ready", "draining"), state

    def draining(self) -> bool:
        if self.needs_replicant and (serving := self._serving_replicants()):
            return all(heard.draining for heard in serving)
        return self._state() == "draining"

    def _serving_replicants(self) -> list[Status]:
        """Those that have clients, or let them in."""
        replicants = (key for key, info in self._cluster.nodes_table.items() if info.role not in CORE_ROLES)
        heard = filter(None, map(self._cluster.status_of, replicants))
        return [status for status in heard if status.ready or status.draining]

    def nodes(self) -> Sequence[NodeRow]:
        rows = [self._row(incarnation, info) for incarnation, info in self._cluster.nodes_table.items()]
        return sorted(rows, key=lambda row: (row.name, row.incarnation))

    def _row(self, incarnation: str, info: NodeInfo) -> NodeRow:
        """Its numbers are -1 while nothing was heard from it."""
        heard = self._cluster.status_of(incarnation) or Status(-1, -1, -1)
        return NodeRow(
            name=info.name,
            incarnation=incarnation,
            role=info.role,
            host=info.host,
            mqtt_port=info.mqtt_port or None,
            connections=heard.connections,
            routes=heard.routes,
            lag_entries=heard.lag_entries,
            ready=heard.ready,
            draining=heard.draining,
            version=info.version,
        )

    def _leads(self, incarnation: str) -> bool:
        heard = self._cluster.status_of(incarnation)
        return heard is not None and heard.leads

    def names(self) -> list[str]:
        """The names of all nodes of the cluster."""
        return [info.name for info in self._cluster.nodes_table.values()]

    def status(self) -> NodeStatus:
        settings, (is_ready, state) = self._cluster.settings, self.ready()
        lags = {shard: self._rlog.lag(shard) for shard in SHARDS}
        return NodeStatus(
            name=settings.name,
            incarnation=self._cluster.incarnation,
            role=settings.role,
            version=__version__,
            build=_build(),
            ready=is_ready,
            state=state,
            uptime_s=self._clock.monotonic() - self._started_s,
            leader=next(filter(self._leads, self._cluster.nodes_table), None),
            cluster_version=self._cluster.version.current,
            shards=[
                ShardStatus(shard=shard, applied=str(self._rlog.applied(shard)), lag_entries=entries, lag_ms=ms)
                for shard, (entries, ms) in lags.items()
            ],
        )

    def rlog(self) -> Mapping[str, LogState]:
        return log_states(self._rlog)
