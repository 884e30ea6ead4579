"""The workloads of a MqttCluster, by their part, and what their pods need."""

from collections.abc import Iterator

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


def needs(pod: Manifest) -> Iterator[Ref]:
    """What has to exist for a PodSpec to start."""
    yield Ref("ServiceAccount", pod.get("serviceAccountName", "default"))
    for volume in pod.get("volumes", ()):
        if claim := volume.get("persistentVolumeClaim"):
            yield Ref("PersistentVolumeClaim", claim["claimName"])
        if secret := volume.get("secret"):
            yield Ref("Secret", secret["secretName"])
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            if "projected" not in source and (secret := source.get("secret", {}).get("name")):
                yield Ref("Secret", secret)
            if config_map := source.get("configMap"):
                yield Ref("ConfigMap", config_map["name"])
