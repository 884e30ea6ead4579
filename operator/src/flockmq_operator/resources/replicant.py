"""Replicants: a Deployment without a volume. Rollouts add a pod before they take one away."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.custom_pod import customised
from flockmq_operator.resources.labels import metadata, selector
from flockmq_operator.resources.pod import node_template


def replicants(context: Context) -> Iterator[Manifest]:
    spec = context.spec.replicants
    template = node_template(context, "replicant", spec.resources.manifest(), [{"name": "data", "emptyDir": {}}])
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(context, context.replicant, "replicant"),
        "spec": {
            "replicas": context.replicants,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": selector(context, "replicant")},
            "template": customised(template, spec.pod_template, "spec.replicants.podTemplate"),
        },
    }
