"""The workloads of a MqttCluster, by their part."""

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component

WORKLOADS = ("StatefulSet", "Deployment")


def workload(context: Context, component: Component) -> Ref:
    names = {
        "core": Ref("StatefulSet", context.core),
        "replicant": Ref("Deployment", context.replicant),
        "redis": Ref("StatefulSet", context.redis),
        "report": Ref("CronJob", context.report),
    }
    return names[component]


def template_of(manifest: Manifest) -> Manifest | None:
    """The pod template of a workload or a CronJob."""
    spec = manifest.get("spec") or {}
    template: Manifest | None = spec.get("jobTemplate", {}).get("spec", {}).get("template") or spec.get("template")
    return template
