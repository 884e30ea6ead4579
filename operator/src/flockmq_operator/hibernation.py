"""A cluster that hibernates has no pods; its volumes, Secrets and settings stay (spec.hibernate). Pure.

Replicants end first, then cores, then Redis, each when the pods of the part before are gone: so whatever was
acknowledged is written, and sessions and retained messages are in the volumes. A cluster that wakes starts Redis first,
as a new one does.
"""

from flockmq_operator.manifest import Manifest, ref
from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component
from flockmq_operator.status.workload import rolled_out
from flockmq_operator.workloads import CALLED, pods_of, workload

ORDER: tuple[Component, ...] = ("replicant", "core", "redis")
RETENTION = "persistentVolumeClaimRetentionPolicy"


def put_to_sleep(context: Context, observed: Observed, desired: list[Manifest]) -> str:
    """Set the numbers of pods in `desired`, and suspend its jobs. Returns what it waits for; empty: nothing."""
    waits_for = ""
    for manifest in desired:
        if manifest["kind"] == "CronJob":
            manifest["spec"]["suspend"] = True
    by_name = {ref(manifest): manifest for manifest in desired}
    for component in ORDER:
        name = workload(context, component)
        if name not in by_name:  # Redis is somebody else's
            continue
        manifest = by_name[name]
        if waits_for:
            keep_number(manifest, observed)
            continue
        set_number(manifest, 0)
        if count := pods_of(context, observed, component):
            waits_for = f"{count} pods of {CALLED[component]} to end"
    return waits_for


def wake_redis_first(context: Context, observed: Observed, desired: list[Manifest]) -> str:
    """Keep nodes in `desired` asleep while Redis isn't ready. Returns what they wait for; empty: nothing."""
    redis = observed.objects.get(workload(context, "redis"))
    if redis is None or context.spec.redis.external or rolled_out(redis, context.spec.redis.replicas):
        return ""
    nodes = (workload(context, "core"), workload(context, "replicant"))
    asleep = [
        manifest for manifest in desired if ref(manifest) in nodes and sleeps(observed.objects.get(ref(manifest)))
    ]
    for manifest in asleep:
        set_number(manifest, 0)
    return f"Redis ({context.redis}) to be ready" if asleep else ""


def sleeps(live: Manifest | None) -> bool:
    return live is not None and live["spec"]["replicas"] == 0


def keep_number(manifest: Manifest, observed: Observed) -> None:
    live = observed.objects.get(ref(manifest))
    set_number(manifest, live["spec"]["replicas"] if live is not None else 0)


def set_number(manifest: Manifest, replicas: int) -> None:
    manifest["spec"]["replicas"] = replicas
    if (
        not replicas and RETENTION in manifest["spec"]
    ):  # volumes of cores that a smaller cluster has no more are deleted
        manifest["spec"][RETENTION] = {**manifest["spec"][RETENTION], "whenScaled": "Retain"}
