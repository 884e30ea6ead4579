"""The workloads of a MqttCluster, by their part, who of them serves clients, and what their pods need."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, Component

WORKLOADS = ("StatefulSet", "Deployment")
CALLED: dict[Component, str] = {
    "core": "cores",
    "replicant": "replicants",
    "redis": "Redis",
    "report": "the report",
    "executor": "executors of the report",
    "backup": "the backup",
    "restore": "the restore",
}


def workload(context: Context, component: Component) -> Ref:
    names = {
        "core": Ref("StatefulSet", context.core),
        "replicant": Ref("Deployment", context.replicant),
        "redis": Ref("StatefulSet", context.redis),
        "report": Ref("CronJob", context.report),
        "executor": Ref("CronJob", context.report),
        "backup": Ref("CronJob", context.backup),
        "restore": Ref("Job", context.restore),
    }
    return names[component]


def pods_of(context: Context, observed: Observed, component: Component) -> int:
    """How many pods there are, those that are ending too."""
    pods = {"core": observed.core_pods, "redis": observed.redis_pods, "replicant": observed.replicant_pods}
    live = observed.objects.get(workload(context, component), {})
    count: int = live.get("status", {}).get("replicas", 0)
    return max(count, len(pods.get(component, ())))


def template_of(manifest: Manifest) -> Manifest | None:
    """The pod template of a workload or a CronJob."""
    spec = manifest.get("spec") or {}
    template: Manifest | None = spec.get("jobTemplate", {}).get("spec", {}).get("template") or spec.get("template")
    return template


def served_by(context: Context, observed: Observed) -> str:
    """To whose pods the Service leads; where there is none, to whose it is to lead."""
    service = observed.objects.get(Ref("Service", context.name), {})
    found: str = service.get("spec", {}).get("selector", {}).get(COMPONENT, context.clients)
    return found


def needs(pod: Manifest) -> Iterator[Ref]:
    """What has to exist for a PodSpec to start."""
    yield Ref("ServiceAccount", pod.get("serviceAccountName", "default"))
    for source in sources(pod):
        for kind, key, name in NAMED:
            if found := (source.get(key) or {}).get(name):
                yield Ref(kind, found)


def sources(pod: Manifest) -> Iterator[Manifest]:
    """What a PodSpec's volumes are made of: each, and each source of a projected one."""
    for volume in pod.get("volumes") or ():
        yield from (volume, *((volume.get("projected") or {}).get("sources") or ()))


NAMED = (
    ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
    ("Secret", "secret", "secretName"),
    ("Secret", "secret", "name"),
    ("ConfigMap", "configMap", "name"),
)
"""The kind, the key of a volume's source, and where its name stands there."""
SETTINGS = "config"
"""The volume with a component's own settings."""


def settings_of(template: Manifest) -> frozenset[Ref]:
    """The ConfigMap with the settings that a pod, or a template of it, names."""
    volumes = [volume for volume in template["spec"].get("volumes", ()) if volume["name"] == SETTINGS]
    return frozenset(Ref("ConfigMap", volume["configMap"]["name"]) for volume in volumes if "configMap" in volume)
