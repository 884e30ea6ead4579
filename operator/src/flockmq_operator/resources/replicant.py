"""Replicants: a Deployment without a volume. Rollouts add a pod before they take one away."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import metadata, selector
from flockmq_operator.resources.pod import node_template

UNPRIVILEGED_PORTS = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}
"""Ports below 1024 for a user that isn't root; one of the sysctls that the restricted standard admits."""


def replicants(context: Context) -> Iterator[Manifest]:
    spec = context.spec.replicants
    ports = [{"name": listener.name, "containerPort": listener.port} for listener in context.spec.listeners]
    template = node_template(context, "replicant", ports, spec.resources.manifest(), [{"name": "data", "emptyDir": {}}])
    if any(listener.port < 1024 for listener in context.spec.listeners):
        template["spec"]["securityContext"]["sysctls"] = [UNPRIVILEGED_PORTS]
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(context, context.replicant, "replicant"),
        "spec": {
            "replicas": context.replicants,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": selector(context, "replicant")},
            "template": template,
        },
    }
