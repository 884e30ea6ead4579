"""Starts and ends a rebalance at an operator's word, and tells how far it is.

    the node that is asked ─▶ a core: does another one run? ─▶ each node that takes clients: rebalancing.py

A core has a link to every node; other nodes ask a core. A node that can't be told, or is of an older release, is named;
the others go on without it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from flockmq.auth.admin import Missing
from flockmq.bounds import OVERVIEW_WAIT_S
from flockmq.management.rebalance_rows import AskedRebalance, RebalanceShown, RebalanceView
from flockmq.management.view import Conflict, Unavailable
from flockmq.membership.cluster import Cluster
from flockmq.membership.link_requests import LinkLost, Refusal
from flockmq.membership.reachability import name_of
from flockmq.node.cluster_overview import ClusterOverview
from flockmq.node.rebalance_plan import rebalance_rows
from flockmq.node.rebalancing import Rebalancing

ORDER: Final = "rebalance.order"
ORDER_ALL: Final = "rebalance.order_all"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes are to do. Later releases may add fields with defaults."""

    node: str | None = None
    """The name of one node. None: all."""
    asked: AskedRebalance | None = None
    """What to start. None: end that of the name `ends`."""
    ends: str | None = None
    """None: whichever runs."""


_encode: Final = msgspec.msgpack.Encoder().encode
_order: Final = msgspec.msgpack.Decoder(Order)
_names: Final = msgspec.msgpack.Decoder(list[str])

_ERRORS: Final[dict[str, type[Exception]]] = {"conflict": Conflict, "missing": Missing}
"""The codes of refusals that say more than that it can't be done now."""


class RebalanceAdmin(RebalanceView):
    """One per node."""

    def __init__(self, cluster: Cluster, overview: ClusterOverview, rebalancing: Rebalancing) -> None:
        self._cluster = cluster
        self._overview = overview
        self._rebalancing = rebalancing
        cluster.on_request(ORDER, self._serve_order)
        if cluster.is_core:
            cluster.on_request(ORDER_ALL, self._serve_order_all)

    async def shown(self, thresholds: AskedRebalance = AskedRebalance()) -> RebalanceShown:  # noqa: B008
        state, details = await self._overview.members(), await self._overview.details()
        return RebalanceShown(told_by=state.told_by, nodes=rebalance_rows(state.nodes, details, thresholds))

    async def start(self, asked: AskedRebalance, node: str | None) -> RebalanceShown:
        missing = await self._passed_on(Order(node=node, asked=asked))
        return msgspec.structs.replace(await self.shown(), missing=missing)

    async def stop(self, name: str | None, node: str | None) -> None:
        if missing := await self._passed_on(Order(node=node, ends=name)):
            raise Unavailable(f"it may go on at {', '.join(missing)}")

    async def _passed_on(self, order: Order) -> list[str]:
        """The nodes that it didn't reach, and why. Raises Conflict, Missing, Unavailable."""
        core = self._overview.answering_core()
        if core == self._cluster.incarnation:
            return await self._carry_out(order)
        try:
            async with asyncio.timeout(4 * OVERVIEW_WAIT_S):
                return _names.decode(await self._cluster.ask(core, ORDER_ALL, _encode(order)))
        except Refusal as refusal:
            raise _ERRORS.get(refusal.code, Unavailable)(str(refusal)) from None
        except (LinkLost, TimeoutError):
            raise Unavailable("no core answers, which would pass it to all nodes") from None

    async def _serve_order_all(self, body: bytes) -> bytes:
        try:
            return _encode(await self._carry_out(_order.decode(body)))
        except (Conflict, Missing) as error:
            code = next(code for code, kind in _ERRORS.items() if isinstance(error, kind))
            raise Refusal(code, str(error)) from None
        except Unavailable as error:
            raise Refusal("unavailable", str(error)) from None

    async def _carry_out(self, order: Order) -> list[str]:
        """At a core. Raises Conflict, Missing, Unavailable."""
        nodes = self._addressed(order.node)
        if order.asked is not None:
            nodes = [node for node in nodes if self._takes_part(node)]
            await self._check_startable(order.asked, nodes)
        whys = await asyncio.gather(*(self._told(node, order) for node in nodes))
        missing = [f"{name_of(node)} ({why})" for node, why in zip(nodes, whys, strict=True) if why]
        if order.asked is not None and len(missing) == len(nodes):
            raise Unavailable(f"no node could be told: {', '.join(missing)}")
        return missing

    def _addressed(self, name: str | None) -> list[str]:
        """Raises Missing."""
        table = self._cluster.nodes_table.items()
        nodes = sorted(incarnation for incarnation, info in table if name in (None, info.name))
        if not nodes:
            known = ", ".join(sorted({info.name for _, info in table}))
            raise Missing(f"node: there is no node {name!r}; the nodes are {known}")
        return nodes

    def _takes_part(self, node: str) -> bool:
        """Whether it takes clients, as far as is known."""
        status = self._cluster.status_of(node)
        return status is None or (status.takes_clients is not False and not status.draining)

    async def _check_startable(self, asked: AskedRebalance, nodes: list[str]) -> None:
        """Raises Conflict."""
        if not nodes:
            raise Conflict("there is nothing to rebalance: no node that is meant takes clients now")
        for details in (await self._overview.details()).values():
            runs = details.asked if details is not None else None
            if runs is not None and runs.state == "running" and runs.name != asked.name:
                who = runs.name or "an operator"
                raise Conflict(f"one that {who} started runs already: wait until it is over, or stop it first")

    async def _told(self, node: str, order: Order) -> str:
        """Why the node couldn't be told; "" if it was."""
        if node == self._cluster.incarnation:
            self._obey(order)
            return ""
        try:
            async with asyncio.timeout(OVERVIEW_WAIT_S):
                await self._cluster.ask(node, ORDER, _encode(order))
        except Refusal as refusal:
            if refusal.code != "unavailable":
                return str(refusal)
            return "of an older release" if order.asked is not None else ""  # that runs none
        except (LinkLost, TimeoutError):
            return "doesn't answer"
        return ""

    async def _serve_order(self, body: bytes) -> bytes:
        self._obey(_order.decode(body))
        return b""

    def _obey(self, order: Order) -> None:
        if order.asked is not None:
            self._rebalancing.start(order.asked)
        else:
            self._rebalancing.stop(order.ends)
