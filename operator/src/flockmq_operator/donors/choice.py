"""Which pods leave the Service because their nodes are donors, and which come back. Pure.

At most half of the pods that are ready leave, so at least one that is ready stays. One that isn't ready, or whose node
doesn't tell, is no donor.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.nodes import Node
from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, TAKES_CLIENTS, Component
from flockmq_operator.status.workload import pod_there
from flockmq_operator.workloads import workload


class Kept(NamedTuple):
    """A MqttCluster, as the last pass over it found it."""

    context: Context
    component: Component | None
    """Whose pods the Service leads to by their label; None: nobody may leave it."""
    ready: int = 0
    """How many of these are ready, and stay."""

    @property
    def may_leave(self) -> int:
        """How many pods may be out of the Service at once."""
        return self.ready // 2

    @property
    def is_asked(self) -> bool:
        """Whether it matters what its nodes do: to their pods, or to an autoscaler's floor."""
        return bool(self.may_leave or self.context.spec.autoscaling)


class Case(NamedTuple):
    """What labels are made for: while it is the same, they are as they should be."""

    component: Component | None = None
    donors: frozenset[str] = frozenset()
    ready: int = 0


NOBODY = Case()
"""No pod leaves, and those that have left come back."""


def kept_of(context: Context, observed: Observed) -> Kept:
    service = observed.objects.get(Ref("Service", context.name), {})
    selector = service.get("spec", {}).get("selector", {})
    if context.spec.pause or TAKES_CLIENTS not in selector:
        return Kept(context, None)
    component: Component = selector[COMPONENT]
    live = observed.objects.get(workload(context, component), {})
    wanted = context.spec.cores.replicas if component == "core" else context.replicants
    return Kept(context, component, min(live.get("status", {}).get("readyReplicas", 0), wanted))


def case_of(kept: Kept, nodes: Sequence[Node]) -> Case:
    donors = frozenset(node.name for node in nodes if node.rebalancing and node.role == kept.component)
    return Case(kept.component, donors, kept.ready) if donors and kept.may_leave else NOBODY


def soon_begins(kept: Kept, nodes: Sequence[Node]) -> bool:
    """Whether a node sends clients away, or does when it has waited."""
    return kept.may_leave > 0 and any(node.has_too_much for node in nodes if node.role == kept.component)


def relabelled(case: Case, pods: Sequence[Manifest], nodes: Sequence[Node]) -> list[Manifest]:
    """What is merged into pods so that their labels are as in `case`: first those that come back."""
    leaving = {pod["metadata"]["name"] for pod in leaving_pods(case, pods, nodes)}
    return sorted(changes(pods, leaving), key=takes, reverse=True)


def leaving_pods(case: Case, pods: Sequence[Manifest], nodes: Sequence[Node]) -> list[Manifest]:
    """Those that have left already are the first to stay out, then those with the most clients."""
    connections = {node.name: node.connections for node in nodes}
    ready = [pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT) == case.component and pod_there(pod)]
    donors = [pod for pod in ready if pod["metadata"]["name"] in case.donors]

    def precedence(pod: Manifest) -> tuple[bool, int, str]:
        name: str = pod["metadata"]["name"]
        return takes(pod), -connections.get(name, 0), name

    return sorted(donors, key=precedence)[: len(ready) // 2]


def changes(pods: Sequence[Manifest], leaving: set[str]) -> Iterator[Manifest]:
    for pod in pods:
        metadata = pod["metadata"]
        stays = metadata["name"] not in leaving
        if TAKES_CLIENTS in metadata["labels"] and takes(pod) != stays and "deletionTimestamp" not in metadata:
            identity = {key: metadata[key] for key in ("name", "namespace", "uid")}
            labels = {TAKES_CLIENTS: "true" if stays else "false"}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": {**identity, "labels": labels}}


def takes(pod: Manifest) -> bool:
    return bool(pod["metadata"]["labels"].get(TAKES_CLIENTS) == "true")
