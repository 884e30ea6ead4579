"""An operator's hands in a simulation: what management's REST API does, asked of a node that may die amid it.

As in faults/admin.py changes of rules wait for one another: the list of them is replaced as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from flockmq.auth.admin import Admin, Missing, NewBan
from flockmq.config.auth_settings import RuleSettings
from judges.topics import denied_action
from load.stage import AdminFailed

if TYPE_CHECKING:
    from simulation.cluster import SimulatedCluster

ANSWER_MAX_S: Final = 12.0
"""A node waits 10 s for the log."""


class SimulatedAdmin:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._denied: dict[str, None] = {}
        self._changing_rules = asyncio.Lock()

    async def ban(self, node: str, client: str) -> None:
        await self._ask(node, lambda admin: admin.put_ban(NewBan("clientid", client)))

    async def lift(self, node: str, client: str) -> None:
        """A node that hasn't read of the ban yet can't lift it, until it has made it once more."""
        while not await self._ask(node, lambda admin: admin.delete_ban("clientid", client)):
            await self.ban(node, client)

    async def deny(self, node: str, prefix: str) -> None:
        async with self._changing_rules:
            self._denied[prefix] = None
            await self._put_rules(node)

    async def allow(self, node: str, prefix: str) -> None:
        async with self._changing_rules:
            self._denied.pop(prefix, None)
            await self._put_rules(node)

    async def silence(self, node: str, client: str) -> None:
        """It may publish nothing any more."""
        rules = (RuleSettings(permit="deny", action="publish"),)
        await self._ask(node, lambda admin: admin.put_rules("clientid", client, rules))

    async def deafen(self, node: str, client: str, topic: str) -> None:
        """It may not subscribe to this any more."""
        rules = (RuleSettings(permit="deny", action="subscribe", topics=(topic,)),)
        await self._ask(node, lambda admin: admin.put_rules("clientid", client, rules))

    async def _put_rules(self, node: str) -> None:
        rules = tuple(
            RuleSettings(
                permit="deny",
                action=denied_action(prefix),
                topics=(prefix, f"{prefix}/#"),
            )
            for prefix in self._denied
        )
        await self._ask(node, lambda admin: admin.put_rules("all", "", rules))

    async def _ask(self, name: str, what: Callable[[Admin], Coroutine[Any, Any, Any]]) -> bool:
        """False: what is to be changed isn't there."""
        node = self._cluster.nodes[name]
        if node.assembly is None or node.process is None:
            raise AdminFailed(f"{name} is down")
        auth = node.assembly.node.access.auth
        task = self._cluster.loop.create_task(_is_done(what(auth.admin)), context=node.process.context)
        await asyncio.wait([task], timeout=ANSWER_MAX_S)
        if not task.done() or task.result() is None:
            raise AdminFailed(f"{name} didn't say yes")
        return task.result() is True


async def _is_done(change: Coroutine[Any, Any, Any]) -> bool | None:
    """None: it failed, perhaps long after anybody waited for it."""
    try:
        await change
    except Missing:
        return False
    except Exception:
        return None
    return True
