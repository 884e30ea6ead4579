"""Looks at the nodes of each MqttCluster, and has the pods of donors leave the Service, and come back, by their label.

After each pass over a MqttCluster a core is asked what the nodes do; every LOOK_S while one is a donor, or soon is. The
API server is asked only where that changes something. What was done isn't stored: an operator that starts looks at the
labels of all pods, and one that stops has all come back.
"""

import asyncio
import logging
from collections.abc import Sequence

from flockmq_operator.donors.choice import NOBODY, Case, Kept, case_of, relabelled, soon_begins, takes
from flockmq_operator.kube import Kube, Refused, Unreachable
from flockmq_operator.manifest import ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import AskNodes, Node
from flockmq_operator.passes import Done, Key, Passes
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import MANAGED_BY, MANAGER, selector

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often nodes are asked what they do, while it matters; they look at one another as often."""
STOP_MAX_S = 5.0
"""The longest that an operator which stops waits until all pods are back."""


class DonorReconciler:
    def __init__(self, kube: Kube, ask_nodes: AskNodes, metrics: Metrics) -> None:
        self._kube = kube
        self._ask_nodes = ask_nodes
        self._kept: dict[Key, Kept] = {}
        self._done: dict[Key, Case] = {}
        """What the labels of pods are made for; none: that isn't known."""
        self._passes = Passes("the donors of", self._pass, lambda _: None, metrics, gather_max_s=LOOK_S)

    def keep(self, key: Key, kept: Kept) -> None:
        """After a pass over the MqttCluster."""
        self._kept[key] = kept
        if kept.may_leave or self._done.get(key) != NOBODY:
            self._passes.wake(key)

    def wake(self, namespace: str, cluster: str) -> None:
        """Its nodes may begin to send clients away."""
        if (namespace, cluster) in self._kept:
            self._passes.wake((namespace, cluster))

    def forget(self, key: Key) -> None:
        """There is no such MqttCluster any more."""
        self._kept.pop(key, None)
        self._done.pop(key, None)

    def busy_with(self) -> set[Key]:
        """The MqttClusters whose nodes are watched now."""
        return self._passes.busy_with()

    async def stop(self) -> None:
        await self._passes.stop()
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
        self._kept[key] = kept._replace(nodes=None)  # the next pass asks them anew
        nodes = kept.nodes
        if nodes is None and kept.may_leave:
            nodes = await self._ask_nodes(kept.context)
        case = case_of(kept, nodes or ())
        is_done = case == self._done.get(key)
        changed = not is_done and await self._label(key, kept.context, case, nodes or ())
        is_over = not case.donors and not soon_begins(kept, nodes or ())
        return Done(gone=is_over, changed=changed, look_again_s=LOOK_S)

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
