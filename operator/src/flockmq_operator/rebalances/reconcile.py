"""A pass over the MqttRebalances of one MqttCluster: have its nodes do what they ask for (`keeper`), say how far it is.

One at a time, those that run first: while one runs, another one is refused.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from flockmq_operator.kube import Kube
from flockmq_operator.management_access import Absent, find_access
from flockmq_operator.management_api import connected
from flockmq_operator.manifest import Manifest
from flockmq_operator.metrics import Metrics
from flockmq_operator.passes import RESYNC_S, Done, Key, Passes
from flockmq_operator.rebalances.api import RebalanceApi
from flockmq_operator.rebalances.keeper import Keeper
from flockmq_operator.rebalances.progress import Verdict
from flockmq_operator.rebalances.spec import OVER, REBALANCE_KIND, MqttRebalance, decode_rebalance
from flockmq_operator.rebalances.status import make_rebalance_status, rebalance_events
from flockmq_operator.report import report
from flockmq_operator.settings import Settings
from flockmq_operator.spec import SpecError

PROGRESS_S = 2.0
"""How often nodes are asked how far they are; they look at one another as often."""
GATHER_MAX_S = PROGRESS_S
"""The longest that reasons for a pass are gathered: each change of a status is one."""


class RebalanceReconciler:
    def __init__(self, kube: Kube, settings: Settings, metrics: Metrics, runs: Callable[[str, str], None]) -> None:
        """`runs` is told the namespace and the name of a MqttCluster in which one runs."""
        self._kube = kube
        self._settings = settings
        self._runs = runs
        self._passes = Passes("the MqttRebalances of", self._pass, lambda _: None, metrics, GATHER_MAX_S)

    def wake(self, namespace: str, cluster: str) -> None:
        """There is a reason to look at the MqttRebalances of this MqttCluster."""
        self._passes.wake((namespace, cluster))

    def busy_with(self) -> set[Key]:
        """The MqttClusters whose MqttRebalances are being kept."""
        return self._passes.busy_with()

    async def stop(self) -> None:
        await self._passes.stop()

    async def _pass(self, key: Key) -> Done:
        namespace, cluster = key
        listed = await self._kube.list(REBALANCE_KIND, namespace, {})
        bodies = [body for body in listed if (body.get("spec") or {}).get("cluster") == cluster]
        rebalances = await self._decoded(bodies)
        verdicts = await self._look_after(key, rebalances) if rebalances else []
        if any(verdict.phase == "Running" for verdict in verdicts):
            self._runs(namespace, cluster)
        is_busy = any(verdict.phase not in OVER for verdict in verdicts)
        return Done(gone=not rebalances, changed=bool(verdicts), look_again_s=PROGRESS_S if is_busy else RESYNC_S)

    async def _decoded(self, bodies: list[Manifest]) -> list[MqttRebalance]:
        """Those for which something is to be done, in their order."""
        rebalances: list[MqttRebalance] = []
        for body in bodies:
            try:
                rebalances.append(decode_rebalance(body))
            except SpecError as error:
                await self._report(body, Verdict("Failed", "InvalidSpec", str(error)))
        return sorted((each for each in rebalances if each.needs_work), key=lambda each: each.precedence)

    async def _look_after(self, key: Key, rebalances: list[MqttRebalance]) -> list[Verdict]:
        access = await find_access(self._kube, self._settings, *key)
        if isinstance(access, Absent):
            return await self._each(rebalances, Keeper(self._kube, key, access, datetime.now(UTC)))
        async with connected(access, RebalanceApi) as api:
            return await self._each(rebalances, Keeper(self._kube, key, api, datetime.now(UTC)))

    async def _each(self, rebalances: list[MqttRebalance], keeper: Keeper) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for rebalance in rebalances:
            if verdict := await keeper.keep(rebalance):
                verdicts.append(verdict)
                await self._report(rebalance.body, verdict)
        return verdicts

    async def _report(self, body: Manifest, verdict: Verdict) -> None:
        status = make_rebalance_status(body, verdict, datetime.now(UTC))
        events = rebalance_events(body.get("status") or {}, verdict)
        await report(self._kube, body, status, events, self._settings.pod_name)
