"""The overview of the whole cluster that any node can give: a core asks every node, other nodes ask a core.

A core has a link to every node. If its tables may be stale, another core is asked. A replicant that reaches no core
answers from what it knows itself. A node that doesn't answer within OVERVIEW_WAIT_S is shown without its log.

Some of this needs no key, and each answer is asked of all nodes. So those who ask this node at the same time share an
answer, however many they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from flockmq.bounds import OVERVIEW_WAIT_S, SLOTS
from flockmq.management.view import ClusterState, LogState, Member, NodeLog
from flockmq.membership.cluster import Cluster
from flockmq.membership.frames import Status
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.membership.reachability import CORE_ROLES, name_of
from flockmq.node.node_details import NodeDetails
from flockmq.node.shared_answer import SharedAnswer
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import SHARDS, NodeInfo

LOG: Final = "overview.log"
LOGS: Final = "overview.logs"
MEMBERS: Final = "overview.members"
DETAILS: Final = "overview.details"
ALL_DETAILS: Final = "overview.all_details"

_REPORTED: Final = [name for name in Member.__struct_fields__ if name in Status.__struct_fields__]
"""Fields that are in both `Status` (what a node reports in its heartbeats) and `Member`. They are copied by name."""

_encode: Final = msgspec.msgpack.Encoder().encode
_log: Final = msgspec.msgpack.Decoder(dict[str, LogState])
_logs: Final = msgspec.msgpack.Decoder(list[NodeLog])
_members: Final = msgspec.msgpack.Decoder(ClusterState)
_details: Final = msgspec.msgpack.Decoder(NodeDetails)
_all_details: Final = msgspec.msgpack.Decoder(dict[str, NodeDetails | None])


class ClusterOverview:
    def __init__(self, cluster: Cluster, rlog: Rlog) -> None:
        self.own_details: Callable[[], NodeDetails]
        """Set before the cluster starts."""
        self._cluster = cluster
        self._rlog = rlog
        self._shared_logs = SharedAnswer(self._all_logs)
        self._shared_details = SharedAnswer(self._all_details)
        cluster.on_request(LOG, self._serve_log)
        cluster.on_request(DETAILS, self._serve_details)
        if cluster.is_core:
            cluster.on_request(LOGS, self._serve_logs)
            cluster.on_request(MEMBERS, self._serve_members)
            cluster.on_request(ALL_DETAILS, self._serve_all_details)

    async def logs(self) -> list[NodeLog]:
        """Every node's log, by name."""
        return await self._shared_logs.get()

    async def _all_logs(self) -> list[NodeLog]:
        answer = await self._asked_core(LOGS)
        return await self._gathered() if answer is None else _logs.decode(answer)

    async def members(self) -> ClusterState:
        answer = await self._asked_core(MEMBERS)
        return self._known() if answer is None else _members.decode(answer)

    async def details(self) -> Mapping[str, NodeDetails | None]:
        """Incarnation → what that node tells of itself; None if it doesn't answer, or is of an older release."""
        return await self._shared_details.get()

    async def _all_details(self) -> Mapping[str, NodeDetails | None]:
        answer = await self._asked_core(ALL_DETAILS)
        return await self._gathered_details() if answer is None else _all_details.decode(answer)

    async def _serve_log(self, body: bytes) -> bytes:
        return _encode(log_states(self._rlog))

    async def _serve_logs(self, body: bytes) -> bytes:
        return _encode(await self._gathered())

    async def _serve_members(self, body: bytes) -> bytes:
        return _encode(self._known())

    async def _serve_details(self, body: bytes) -> bytes:
        return _encode(self.own_details())

    async def _serve_all_details(self, body: bytes) -> bytes:
        return _encode(await self._gathered_details())

    async def _asked_core(self, method: str) -> bytes | None:
        """The answer of another core; None if this node must answer itself, or no core answers."""
        core = self.answering_core()
        return None if core == self._cluster.incarnation else await self._answer(core, method, 2 * OVERVIEW_WAIT_S)

    def answering_core(self) -> str:
        """The core that answers for the cluster: this node if it is a core, else the core that it writes through. If
        that one's tables may be stale, another core."""
        cluster = self._cluster
        nearest = cluster.incarnation if cluster.is_core else cluster.core_port.core
        others = (core for core, info in cluster.nodes_table.items() if info.role in CORE_ROLES)
        return next((core for core in (nearest, *others) if self._is_up_to_date(core)), nearest)

    def _is_up_to_date(self, core: str) -> bool:
        status = self._cluster.status_of(core)
        return status is not None and not status.stale and status.hears_redis is not False

    async def _answer(self, incarnation: str, method: str, within_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(within_s):
                return await self._cluster.ask(incarnation, method, b"")
        except (LinkLost, Refusal, TimeoutError):
            return None

    async def _gathered(self) -> list[NodeLog]:
        nodes = sorted(self._cluster.nodes_table.items(), key=lambda row: (row[1].name, row[0]))
        return list(await asyncio.gather(*(self._log_of(incarnation, info) for incarnation, info in nodes)))

    async def _log_of(self, incarnation: str, info: NodeInfo) -> NodeLog:
        if incarnation == self._cluster.incarnation:
            shards: Mapping[str, LogState] | None = log_states(self._rlog)
        else:
            answer = await self._answer(incarnation, LOG, OVERVIEW_WAIT_S)
            shards = None if answer is None else _log.decode(answer)
        return NodeLog(name=info.name, incarnation=incarnation, role=info.role, shards=shards)

    async def _gathered_details(self) -> dict[str, NodeDetails | None]:
        nodes = sorted(self._cluster.nodes_table.keys())
        return dict(zip(nodes, await asyncio.gather(*map(self._details_of, nodes)), strict=True))

    async def _details_of(self, incarnation: str) -> NodeDetails | None:
        if incarnation == self._cluster.incarnation:
            return self.own_details()
        answer = await self._answer(incarnation, DETAILS, OVERVIEW_WAIT_S)
        return None if answer is None else _details.decode(answer)

    def _known(self) -> ClusterState:
        cluster = self._cluster
        slots = cluster.slots.count()
        members = [
            self._member(incarnation, info, slots.get(incarnation, 0))
            for incarnation, info in sorted(cluster.nodes_table.items(), key=lambda row: (row[1].name, row[0]))
        ]
        return ClusterState(
            told_by=cluster.settings.name,
            stale=cluster.staleness.is_stale,
            leader=next((member.name for member in members if member.leads), None),
            slots_without_owner=SLOTS - sum(member.slots for member in members),
            nodes=members,
        )

    def _member(self, incarnation: str, info: NodeInfo, slots: int) -> Member:
        status = self._cluster.status_of(incarnation)
        about = Member(
            name=info.name,
            incarnation=incarnation,
            role=info.role,
            version=info.version,
            host=info.host,
            slots=slots,
            heard=status is not None,
        )
        if status is None:
            return about
        reported: dict[str, object] = {name: getattr(status, name) for name in _REPORTED}
        reported["unreachable"] = [name_of(other) for other in status.unreachable]
        if info.role not in CORE_ROLES and status.core:
            reported["writes_through"] = name_of(status.core)
        return msgspec.structs.replace(about, **reported)


def log_states(rlog: Rlog) -> Mapping[str, LogState]:
    """This node's own log, by shard."""
    return {name: _log_state(rlog, name) for name in SHARDS}


def _log_state(rlog: Rlog, name: str) -> LogState:
    shard = rlog.tables.shards[name]
    digests = {table: f"{digest:016x}" for table, digest in shard.digests().items()}
    return LogState(applied=str(shard.applied), digests=digests, **rlog.stats(name)._asdict())
