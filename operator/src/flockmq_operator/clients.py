"""Where clients go: to replicants; or to cores, where the spec asks for no replicants. Pure.

They are moved when those that take them next are ready: the Service leads to who it led to until then, and these stay.
"""

from datetime import datetime

from flockmq_operator.manifest import Manifest, Ref, annotation, ref
from flockmq_operator.observe import Observed
from flockmq_operator.order import state_of
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, PODS_DIGEST
from flockmq_operator.spec import pods_digest
from flockmq_operator.status.workload import rolled_out


def next_are_ready(context: Context, observed: Observed, now: datetime) -> bool:
    if context.clients == "replicant":
        replicants = observed.objects.get(Ref("Deployment", context.replicant))
        return replicants is not None and rolled_out(replicants, context.replicants)
    cores = observed.objects.get(Ref("StatefulSet", context.core))
    if cores is None or annotation(cores, PODS_DIGEST) != pods_digest(context.spec, "core"):
        return False
    return state_of(context, observed, "core", now).whole


def keep_clients(context: Context, observed: Observed, desired: list[Manifest]) -> None:
    """Where they are."""
    live = observed.objects.get(Ref("Deployment", context.replicant))
    for manifest in desired:
        if ref(manifest) == Ref("Service", context.name):
            manifest["spec"]["selector"][COMPONENT] = context.served_by
        elif live and ref(manifest) == ref(live) and context.served_by == "replicant":
            manifest["spec"]["replicas"] = live["spec"]["replicas"]
