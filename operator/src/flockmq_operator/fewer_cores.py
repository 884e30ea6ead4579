"""Fewer cores: one goes at a time, while those that stay are ready, and know of how many they are one. Pure.

A cluster that sleeps has as many as it has volumes of cores: it wakes with all of them, under the number that they
knew, and then those go that the spec asks for no more. What was trimmed from the log may be in their snapshots alone.

A broker's node has the same rule for clusters without an operator: membership/core_removal.py there."""

import msgspec

from flockmq_operator.manifest import Manifest, Ref, annotation, ref
from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, PODS_DIGEST
from flockmq_operator.spec import pods_digest
from flockmq_operator.status.workload import ordinal, outdated_pods, pod_ready, pod_there, template_seen


def core_to_wait_for(context: Context, observed: Observed) -> str:
    """A core that stays and isn't ready, while the spec asks for fewer; empty: none. Those that would be removed may be
    all that hold the tables."""
    live = observed.objects.get(Ref("StatefulSet", context.core))
    if live is None or number_of(live, observed) <= context.spec.cores.replicas:
        return ""
    if live["spec"]["replicas"] and is_begun(context, live):
        return ""
    unready = unready_cores(context, observed)
    return f"{context.core}-{min(unready)}" if unready else ""


def core_to_restart_before_others_go(context: Context, observed: Observed) -> str:
    """A core that stays and hasn't been restarted with the number of cores that the spec asks for, where it asks for
    fewer; empty: none. Were the others removed before, too few would be there of the former number while one restarts.
    While one that goes is broken they go before, for while one isn't ready no other is restarted."""
    live = observed.objects.get(Ref("StatefulSet", context.core))
    wanted = context.spec.cores.replicas
    if live is None or live["spec"]["replicas"] <= wanted:
        return ""
    unready = unready_cores(context, observed)
    if not unready and not all(pod_ready(pod) for pod in observed.core_pods if ordinal(pod) >= wanted):
        return ""
    knows_it = is_begun(context, live) and template_seen(live)
    outdated = {ordinal(pod) for pod in outdated_pods(live, observed.core_pods)} if knows_it else set(range(wanted))
    waiting = unready | outdated & set(range(wanted))
    return f"{context.core}-{max(waiting)}" if waiting else ""


def unready_cores(context: Context, observed: Observed) -> set[int]:
    """Of those that the spec asks for."""
    return set(range(context.spec.cores.replicas)) - {ordinal(pod) for pod in observed.core_pods if pod_there(pod)}


def number_of(live: Manifest, observed: Observed) -> int:
    """How many cores there are."""
    volumes = [claim for claim in observed.claims if claim["metadata"]["labels"].get(COMPONENT) == "core"]
    stay = [ordinal(claim) for claim in volumes if "deletionTimestamp" not in claim["metadata"]]
    replicas: int = live["spec"]["replicas"]
    return replicas or max(stay, default=-1) + 1


def is_begun(context: Context, live: Manifest) -> bool:
    """The StatefulSet's template is what this spec asks for: those that start know this number of cores."""
    return annotation(live, PODS_DIGEST) == pods_digest(context.spec, "core")


def keep_cores(context: Context, observed: Observed, desired: list[Manifest]) -> None:
    """As many as there are."""
    name = Ref("StatefulSet", context.core)
    cores = next(manifest for manifest in desired if ref(manifest) == name)
    cores["spec"]["replicas"] = observed.objects[name]["spec"]["replicas"]


def remove_one(context: Context, observed: Observed, desired: list[Manifest]) -> str:
    """Have `desired` one core fewer than there are, when the one before has gone. Returns what the rest waits for;
    empty: none is left to go."""
    name = Ref("StatefulSet", context.core)
    live, wanted = observed.objects.get(name), context.spec.cores.replicas
    if live is None or live["spec"]["replicas"] <= wanted:
        return ""
    there: int = live["spec"]["replicas"]
    is_ending = any(ordinal(pod) >= there for pod in observed.core_pods)
    stays = there if is_ending else there - 1
    next(manifest for manifest in desired if ref(manifest) == name)["spec"]["replicas"] = stays
    return f"core {context.core}-{stays} to be gone before the next one goes" if stays > wanted else ""


def with_all_cores(context: Context, observed: Observed) -> Context:
    """`context` as if its spec asked for the cores that there are: their majorities are of that number too."""
    there = number_of(observed.objects[Ref("StatefulSet", context.core)], observed)
    replace = msgspec.structs.replace
    spec = replace(context.spec, cores=replace(context.spec.cores, replicas=there))
    return replace(context, cluster=replace(context.cluster, spec=spec))
