"""`kubectl flockmq status`: one cluster on a screen, or all of them, a line each."""

from datetime import UTC, datetime

from flockmq_operator.kube import Kube
from flockmq_operator.kubectl.clusters import cluster_lines
from flockmq_operator.kubectl.ctl import Execute, Silent, ask_cluster, component_of
from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.kubectl.pods import COMPONENTS
from flockmq_operator.kubectl.screen import screen
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.labels import INSTANCE
from flockmq_operator.spec import KIND


async def one(kube: Kube, execute: Execute, namespace: str, name: str) -> list[str]:
    """The lines. Raises Failed, Refused and Unreachable."""
    body = await cluster(kube, namespace, name)
    labels = {"app.kubernetes.io/name": "flockmq", INSTANCE: name}
    found = await kube.list("Pod", namespace, labels)
    pods = [pod for pod in found if component_of(pod) in COMPONENTS]
    told = await ask_cluster(execute, pods) if pods else Silent(())
    return screen(body, pods, told, datetime.now(UTC))


async def every(kube: Kube, namespace: str | None) -> list[str]:
    """The lines; `namespace` None: of all. Raises Failed, Refused and Unreachable."""
    bodies = await kube.list(KIND, namespace, {})
    if not bodies:
        where = f"namespace {namespace}; --all-namespaces (-A) looks everywhere" if namespace else "any namespace"
        return [f"there is no MqttCluster in {where}"]
    return cluster_lines(bodies, datetime.now(UTC), with_namespace=namespace is None)


async def cluster(kube: Kube, namespace: str, name: str) -> Manifest:
    """Raises Failed, Refused and Unreachable."""
    body = await kube.get(KIND, namespace, name)
    if body is None:
        raise Failed(f"there is no MqttCluster {name} in namespace {namespace}: kubectl flockmq status -A lists all")
    return body
