"""The Service that clients connect to: every ready replicant."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import MQTT_PORT, Context
from flockmq_operator.resources.labels import metadata, selector


def service(context: Context) -> Iterator[Manifest]:
    spec = context.spec.service
    port: Manifest = {"name": "mqtt", "port": MQTT_PORT, "targetPort": "mqtt"}
    if spec.node_port is not None:
        port["nodePort"] = spec.node_port
    meta = metadata(context, context.name, "replicant")
    if spec.annotations:
        meta["annotations"] = spec.annotations
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"type": spec.type, "selector": selector(context, "replicant"), "ports": [port]},
    }
