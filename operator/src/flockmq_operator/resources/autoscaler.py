"""The HorizontalPodAutoscaler. It scales the MqttCluster, not the Deployment: only the operator writes the Deployment's
replicas. Its minReplicas is the floor that the operator keeps (see `floor`)."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import metadata
from flockmq_operator.spec import GROUP, KIND, VERSION

GENTLE_SCALE_DOWN: Manifest = {
    "scaleDown": {
        "stabilizationWindowSeconds": 300,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 1, "periodSeconds": 60},
            {"type": "Percent", "value": 10, "periodSeconds": 60},
        ],
    }
}
"""Connections live long: each replicant that goes makes its clients connect again."""


def autoscaler(context: Context) -> Iterator[Manifest]:
    spec = context.spec.autoscaling
    if spec is None:
        return
    target = {"type": "Utilization", "averageUtilization": spec.target_cpu_utilization_percentage}
    yield {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(context, context.name, "replicant"),
        "spec": {
            "scaleTargetRef": {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": context.name},
            "minReplicas": context.floor or spec.min_replicas,
            "maxReplicas": spec.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}, *spec.metrics],
            "behavior": spec.behavior or GENTLE_SCALE_DOWN,
        },
    }
