"""The Service that clients connect to: every ready replicant, a port for each listener."""

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
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"type": spec.type, "selector": selector(context, "replicant"), "ports": ports},
    }
