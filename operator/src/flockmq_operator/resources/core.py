"""Cores: a StatefulSet, and the headless Service by which nodes find them.

`Parallel`, since cores need one another to become ready; `OnDelete`, since the operator restarts them one at a time
itself (see `restarts`): the StatefulSet controller doesn't know when a core has caught up with the log.
"""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import LINK_PORT, MANAGEMENT_PORT, Context
from flockmq_operator.resources.custom_pod import customised
from flockmq_operator.resources.labels import COMPONENT, MANAGED_BY, MANAGER, metadata, selector
from flockmq_operator.resources.pod import node_template
from flockmq_operator.spec import Storage


def cores(context: Context) -> Iterator[Manifest]:
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(context, context.core, "core"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(context, "core"),
            "ports": [
                {"name": "link", "port": LINK_PORT, "targetPort": "link"},
                {"name": "management", "port": MANAGEMENT_PORT, "targetPort": "management"},
            ],
        },
    }
    spec = context.spec.cores
    template = node_template(context, "core", spec.resources.manifest(), [])
    yield {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(context, context.core, "core"),
        "spec": {
            "serviceName": context.core,
            "replicas": spec.replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": selector(context, "core")},
            "template": customised(template, spec.pod_template, "spec.cores.podTemplate"),
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted(context), "whenScaled": "Delete"},
            "volumeClaimTemplates": [claim_template(context, "core", spec.storage)],
        },
    }


def when_deleted(context: Context) -> str:
    """The cores' volumes stay as long as the log does: what was trimmed from it stands in their snapshots alone."""
    redis = context.spec.redis
    return "Retain" if redis.external else redis.storage.when_deleted


def claim_template(context: Context, component: str, storage: Storage) -> Manifest:
    """The claim, named `data`, of a StatefulSet's pod."""
    labels = {**selector(context), COMPONENT: component, MANAGED_BY: MANAGER}
    return {"metadata": {"name": "data", "labels": labels}, "spec": claim_spec(storage)}


def claim_spec(storage: Storage) -> Manifest:
    spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage.size}}}
    return {**spec, "storageClassName": storage.storage_class_name} if storage.storage_class_name else spec
