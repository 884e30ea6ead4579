"""What MqttRebalances ask of a cluster's management API. Any core passes it to all nodes."""

from urllib.parse import urlencode

from flockmq_operator.management_api import ManagementApi, decoded, path_to
from flockmq_operator.rebalances.progress import Shown
from flockmq_operator.rebalances.spec import RebalanceSpec

PATH = path_to("rebalance")


class RebalanceApi(ManagementApi):
    """Each method raises NodeRefuses, NodeAway."""

    async def shown(self, spec: RebalanceSpec) -> Shown:
        """What nodes do now, and would do by this spec."""
        query = urlencode(spec.planned())
        answer, _ = await self.ask("GET", f"{PATH}?{query}" if query else PATH)
        return decoded(answer, Shown)

    async def start(self, name: str, spec: RebalanceSpec) -> Shown:
        answer, _ = await self.ask("PUT", PATH, {"name": name, **spec.asked()})
        return decoded(answer, Shown)

    async def stop(self, name: str) -> None:
        """Only one of this name. That none runs is fine."""
        await self.ask("DELETE", f"{PATH}?{urlencode({'name': name})}")
