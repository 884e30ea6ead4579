"""Looks at the nodes of each MqttCluster, and has the pods of donors leave the Service, and come back, by their label.

A core is asked what the nodes do after each pass over a MqttCluster, and every RESYNC_S: every AUTOSCALING_LOOK_S where
a floor has to follow the connections that it tells, every LOOK_S while a node is a donor, or soon is. The API server is
asked only where that changes something. What was done isn't stored: an operator that starts looks at the labels of all
pods, and one that is told to stop has all come back.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from flockmq_operator.donors.choice import NOBODY, Case, Kept, case_of, relabelled, soon_begins, takes
from flockmq_operator.kube import Kube, Refused, Unreachable
from flockmq_operator.manifest import ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import AskNodes, Node
from flockmq_operator.passes import RESYNC_S, Done, Key, Passes
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import MANAGED_BY, MANAGER, selector

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often nodes are asked what they do, while it matters; they look at one another as often."""
AUTOSCALING_LOOK_S = 10.0
"""The longest that nodes aren't asked how many connections they have, where autoscaling goes by it."""
STOP_MAX_S = 5.0
"""The longest that an operator which stops waits until all pods are back."""


Told = Callable[[Context, Sequence[Node]], None]


class DonorReconciler:
    def __init__(self, kube: Kube, ask_nodes: AskNodes, metrics: Metrics, told: Told) -> None:
        """`told` is called with what nodes told, and with the context of the last pass over their MqttCluster."""
        self._kube = kube
        self._ask_nodes = ask_nodes
        self._told = told
        self._kept: dict[Key, Kept] = {}
        self._done: dict[Key, Case] = {}
        """What the labels of pods are made for; none: that isn't known."""
        self._passes = Passes("the donors of", self._pass, lambda _: None, metrics, gather_max_s=LOOK_S)

    def keep(self, key: Key, kept: Kept) -> None:
        """After a pass over the MqttCluster."""
        self._kept[key] = kept
        if kept.is_asked or self._done.get(key) != NOBODY:
            self._passes.wake(key)

    def wake(self, namespace: str, cluster: str) -> None:
        """Its nodes may begin to send clients away."""
        if (namespace, cluster) in self._kept:
            self._passes.wake((namespace, cluster))

    def forget(self, key: Key) -> None:
        """There is no such MqttCluster any more."""
        self._kept.pop(key, None)
        self._done.pop(key, None)
        if key in self.busy_with():
            self._passes.wake(key)

    def busy_with(self) -> set[Key]:
        """The MqttClusters whose nodes are asked."""
        return self._passes.busy_with()

    async def stop(self) -> None:
        await self._passes.stop()

    async def bring_back(self) -> None:
        """Have all pods come back, after `stop`."""
        try:
            async with asyncio.timeout(STOP_MAX_S):
                for key, kept in self._kept.items():
                    if self._done.get(key) != NOBODY:
                        await self._label(key, kept.context, NOBODY, ())
        except (Refused, Unreachable, TimeoutError) as error:
            log.warning("pods may be out of their Service until another operator starts: %s", str(error) or "no time")

    async def _pass(self, key: Key) -> Done:
        kept = self._kept.get(key)
        if kept is None:
            return Done(gone=True)
        nodes = await self._ask_nodes(kept.context) if kept.is_asked else None
        if nodes is not None and key in self._kept:
            self._told(kept.context, nodes)
        case = case_of(kept, nodes or ())
        changed = case != self._done.get(key) and await self._label(key, kept.context, case, nodes or ())
        is_done = case == self._done.get(key)
        is_close = not is_done or case.donors or soon_begins(kept, nodes or ())
        at_ease_s = AUTOSCALING_LOOK_S if kept.context.spec.autoscaling else RESYNC_S
        gone = is_done and not kept.is_asked
        return Done(gone=gone, changed=changed, look_again_s=LOOK_S if is_close else at_ease_s)

    async def _label(self, key: Key, context: Context, case: Case, nodes: Sequence[Node]) -> bool:
        """Whether any label changed. Raises Refused, Unreachable; the next pass begins anew then."""
        self._done.pop(key, None)
        pods = await self._kube.list("Pod", context.namespace, {**selector(context), MANAGED_BY: MANAGER})
        changes, is_whole = relabelled(case, pods, nodes), True
        for change in changes:
            try:
                await self._kube.patch(change)
            except Refused as refused:
                if refused.status not in (404, 409):  # it is gone, or another one of its name is there
                    raise
                is_whole = False
            else:
                how = "is in the Service again" if takes(change) else "is out of the Service while it rebalances"
                log.info("%s: %s %s", "/".join(key), ref(change), how)
        if is_whole and key in self._kept:
            self._done[key] = case
        return bool(changes)
