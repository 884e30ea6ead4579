"""What is done for one MqttRebalance: it is started, watched and stopped in the cluster.

    no phase, Pending ─▶ Running ─▶ Succeeded | Failed

It gets the finalizer before nodes are asked, and loses it when it is over, or when the nodes were told to stop. Nodes
know it by its name. So an operator that dies at any point leaves all that the next one needs: in the status, and in
what nodes tell. A rebalance ends by itself, so nothing is lost where nodes can't be told to stop.
"""

import logging
from datetime import UTC, datetime

from flockmq_operator.finalizer import with_finalizer, without_finalizer
from flockmq_operator.kube import Kube
from flockmq_operator.management_access import Absent, refused_key
from flockmq_operator.management_api import NodeAway, NodeRefuses
from flockmq_operator.passes import Key
from flockmq_operator.rebalances.api import RebalanceApi
from flockmq_operator.rebalances.progress import Shown, Verdict, plan, progress, runs_instead, said
from flockmq_operator.rebalances.spec import FINALIZER, OVER, MqttRebalance

log = logging.getLogger(__name__)

STOP_MAX_S = 60.0
"""How long a deleted one waits until its nodes can be told to stop."""


class Keeper:
    """Of the MqttRebalances of the MqttCluster `key`, in one pass. `api`: or why the cluster can't be asked."""

    def __init__(self, kube: Kube, key: Key, api: RebalanceApi | Absent, now: datetime) -> None:
        self._kube = kube
        self._namespace, self._cluster = key
        self._api = api
        self._now = now

    async def keep(self, rebalance: MqttRebalance) -> Verdict | None:
        """None: it is gone, or there is nothing to say."""
        if rebalance.is_deleted or rebalance.phase in OVER:
            return await self._let_go(rebalance)
        if isinstance(self._api, Absent):
            return self._without_cluster(rebalance, self._api)
        try:
            return await self._bring_about(rebalance, self._api)
        except NodeAway as error:
            return _waiting(rebalance, "ClusterNotReady", str(error))
        except NodeRefuses as error:
            if error.status in (401, 403):
                return Verdict("Failed", "KeyRefused", refused_key(self._cluster, error))
            return Verdict("Failed", "Refused", f"MqttCluster {self._cluster} refuses it: {error}")

    def _without_cluster(self, rebalance: MqttRebalance, absent: Absent) -> Verdict:
        """One that runs goes on, unless its cluster is gone."""
        if rebalance.phase == "Running" and not absent.is_gone:
            return _waiting(rebalance, absent.reason, absent.message)
        return Verdict("Failed", absent.reason, f"{absent.message}; then create another MqttRebalance")

    async def _bring_about(self, rebalance: MqttRebalance, api: RebalanceApi) -> Verdict:
        shown = await api.shown(rebalance.spec)
        if rebalance.spec.dry_run:
            return plan(shown)
        before = rebalance.status.get("nodes", ())
        if found := progress(rebalance.asks_as, shown, before):
            return found
        if other := runs_instead(rebalance.asks_as, shown):
            sentence = f"{other} has started one in MqttCluster {self._cluster}"
            return Verdict("Failed", "AnotherRuns", f"{sentence}: wait until it is over, then create another one")
        shown = await self._started(rebalance, api)
        found = progress(rebalance.asks_as, shown, before)
        missing = f"; not at {said(list(shown.missing))}" if shown.missing else ""
        sentence = f"started in MqttCluster {self._cluster}{missing}"
        return Verdict("Running", "Started", sentence, found.nodes if found else None)

    async def _started(self, rebalance: MqttRebalance, api: RebalanceApi) -> Shown:
        """Also where all nodes have restarted, and so forgotten it."""
        if not rebalance.is_held:
            await with_finalizer(self._kube, rebalance.body, FINALIZER)
        log.info("%s/%s: rebalancing %s", self._namespace, rebalance.name, self._cluster)
        return await api.start(rebalance.asks_as, rebalance.spec)

    async def _let_go(self, rebalance: MqttRebalance) -> Verdict | None:
        if not rebalance.is_held:
            return None
        if rebalance.phase not in OVER and (why := await self._not_stopped(rebalance)):
            return _waiting(rebalance, "Stopping", f"nodes can't be told to stop yet: {why}")
        await without_finalizer(self._kube, rebalance.body, FINALIZER)
        return None

    async def _not_stopped(self, rebalance: MqttRebalance) -> str:
        """Why the nodes couldn't be told to stop, while that is to be tried again; "" otherwise."""
        try:
            if not isinstance(self._api, Absent):
                await self._api.stop(rebalance.asks_as)
                return ""
            if self._api.is_gone:
                return ""
            why = self._api.message
        except (NodeAway, NodeRefuses) as error:
            why = str(error)
        deleted = datetime.fromisoformat(rebalance.body["metadata"]["deletionTimestamp"])
        if (self._now - deleted.astimezone(UTC)).total_seconds() < STOP_MAX_S:
            return why
        log.warning("%s/%s goes, and its nodes weren't told to stop: %s", self._namespace, rebalance.name, why)
        return ""


def _waiting(rebalance: MqttRebalance, reason: str, message: str) -> Verdict:
    return Verdict("Running" if rebalance.phase == "Running" else "Pending", reason, message)
