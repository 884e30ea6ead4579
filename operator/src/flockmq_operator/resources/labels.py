"""Labels and metadata that every object of a MqttCluster carries, and the annotations by which the operator remembers.

The operator finds its objects by INSTANCE and MANAGED_BY, and takes as its own only those whose controlling owner
reference holds the MqttCluster's uid.
"""

from typing import Literal

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import Context
from flockmq_operator.spec import GROUP, KIND, VERSION

Component = Literal["core", "replicant", "redis", "report", "executor", "backup", "restore"]

COMPONENT = "app.kubernetes.io/component"
INSTANCE = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "flockmq-operator"

PODS_DIGEST = f"{GROUP}/pods-digest"
"""On a workload: the digest of the spec that its pod template was made for (spec.pods_digest)."""
POD_TEMPLATE = f"{GROUP}/pod-template"
"""On a workload: its pod template as the operator made it, in JSON."""
CONFIG_DIGEST = f"{GROUP}/config"
"""On a pod: the digest of its configuration; a change of it rolls pods."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""On a pod: whether an autoscaler of Kubernetes' nodes may move it though it has an emptyDir."""
RESTORED_FOR = f"{GROUP}/restored-for"
"""On a volume claim that a backup is restored into: the uid of the MqttCluster whose it is."""
RESTORES = f"{GROUP}/restores"
"""On the job that restores: which backup of which claim."""
TAKES_CLIENTS = f"{GROUP}/takes-clients"
"""A label of pods with listeners: whether the clients' Service leads to them. No other selector has it."""
SELECTS = f"{GROUP}/selects"
"""On the clients' Service that selects by TAKES_CLIENTS. Drift doesn't see that a selector, which is owned as a whole,
has a key too many; it sees this. So an operator of before, which doesn't know the label, puts its own selector back."""
REDIS_TLS = f"{GROUP}/redis-tls"
"""On the Secret with Redis' passwords: that this Redis was made to speak TLS."""


def selector(context: Context, component: Component | None = None) -> dict[str, str]:
    """The labels that tell the pods of a component from all others; they never change."""
    labels = {"app.kubernetes.io/name": "flockmq", INSTANCE: context.name}
    return {**labels, COMPONENT: component} if component else labels


def selector_string(context: Context, component: Component) -> str:
    return ",".join(f"{key}={value}" for key, value in selector(context, component).items())


def metadata(context: Context, name: str, component: Component | None = None) -> Manifest:
    return {
        "name": name,
        "namespace": context.namespace,
        "labels": {**selector(context, component), MANAGED_BY: MANAGER},
        "ownerReferences": [
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "name": context.name,
                "uid": context.cluster.uid,
                "controller": True,
            }
        ],
    }
