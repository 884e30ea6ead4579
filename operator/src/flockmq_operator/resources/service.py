"""The Service that clients connect to: every ready replicant (a core, where there are none), by a port for each
listener."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import metadata, selector


def service(context: Context) -> Iterator[Manifest]:
    spec = context.spec.service
    ports: list[Manifest] = [
        {
            "name": listener.name,
            "port": listener.port,
            "targetPort": listener.name,
            **({"nodePort": listener.node_port} if listener.node_port else {}),
        }
        for listener in context.spec.listeners
    ]
    meta = metadata(context, context.name, "replicant")
    if spec.annotations:
        meta["annotations"] = spec.annotations
    optional = {
        "loadBalancerSourceRanges": list(spec.load_balancer_source_ranges),
        "loadBalancerClass": spec.load_balancer_class,
        "externalTrafficPolicy": spec.external_traffic_policy,
        "ipFamilies": list(spec.ip_families),
        "ipFamilyPolicy": spec.ip_family_policy,
    }
    given = {key: value for key, value in optional.items() if value}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"type": spec.type, "selector": selector(context, context.clients), "ports": ports, **given},
    }
