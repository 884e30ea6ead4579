"""Replicants: a Deployment without a volume. Rollouts add a pod before they take one away."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import MQTT_PORT, Context
from flockmq_operator.resources.labels import metadata, selector
from flockmq_operator.resources.pod import node_template


def replicants(context: Context) -> Iterator[Manifest]:
    spec = context.spec.replicants
    ports = [{"name": "mqtt", "containerPort": MQTT_PORT}]
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(context, context.replicant, "replicant"),
        "spec": {
            "replicas": spec.replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": selector(context, "replicant")},
            "template": node_template(
                context, "replicant", ports, spec.resources.manifest(), [{"name": "data", "emptyDir": {}}]
            ),
        },
    }
