"""Where clients go: to replicants; or to cores, where the spec asks for no replicants. Pure.

They are moved when those that take them next are ready: the Service leads to who it led to until then, and these stay.

The Service selects by TAKES_CLIENTS only while all pods that it leads to have that label, and all that will come: pods
that an earlier operator made have none, and none of them may leave the Service for that.
"""

from collections.abc import Collection, Iterator
from datetime import datetime

from flockmq_operator.manifest import Manifest, Ref, annotation, ref
from flockmq_operator.observe import Observed
from flockmq_operator.order import state_of
from flockmq_operator.resources.context import LINK_PORT, MANAGEMENT_PORT, Context
from flockmq_operator.resources.labels import COMPONENT, PODS_DIGEST, SELECTS, TAKES_CLIENTS, Component
from flockmq_operator.resources.pod import NODE
from flockmq_operator.spec import pods_digest
from flockmq_operator.status.workload import rolled_out
from flockmq_operator.workloads import template_of, workload


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


def select_by_label(context: Context, observed: Observed, desired: list[Manifest]) -> None:
    """Have the Service of `desired`, whose templates are those that are applied, select by TAKES_CLIENTS if it can."""
    for manifest in desired:
        if ref(manifest) == Ref("Service", context.name):
            labelled = all(map(has_label, makers(context, observed, desired, manifest["spec"]["selector"][COMPONENT])))
            if labelled and not observed.left_out:
                manifest["spec"]["selector"][TAKES_CLIENTS] = "true"
                annotations = manifest["metadata"].get("annotations", {})
                manifest["metadata"]["annotations"] = {**annotations, SELECTS: TAKES_CLIENTS}


def keep_ports(context: Context, observed: Observed, desired: list[Manifest], left_alone: Collection[Ref]) -> None:
    """Have the Service of `desired` lead to the listeners of the template that is applied, which isn't the spec's while
    it is held: it leads to ports by their names. `left_alone`: workloads that aren't applied."""
    by_name = {ref(manifest): manifest for manifest in desired}
    service = by_name[Ref("Service", context.name)]
    serving = workload(context, service["spec"]["selector"][COMPONENT])
    template = template_of((observed.objects if serving in left_alone else by_name).get(serving, {}))
    there = dict(listeners(template)) if template else {}
    if there and there != {port["name"]: port["port"] for port in service["spec"]["ports"]}:
        said = {port["name"]: port for port in service["spec"]["ports"]}
        service["spec"]["ports"] = [
            {**said.get(name, {}), "name": name, "port": port, "targetPort": name} for name, port in there.items()
        ]


def lead_to_renamed(context: Context, observed: Observed, desired: list[Manifest]) -> None:
    """Have the Service of `desired`, whose templates are those that are applied, lead to a listener by its number while
    there are pods in which it has another name."""
    service = next(manifest for manifest in desired if ref(manifest) == Ref("Service", context.name))
    serving = service["spec"]["selector"][COMPONENT]
    there = [dict(listeners(maker)) for maker in makers(context, observed, desired, serving)]
    for port in service["spec"]["ports"]:
        if any(port["name"] not in names and port["port"] in names.values() for names in there):
            port["targetPort"] = port["port"]


def admit_ports_in_use(context: Context, observed: Observed, desired: list[Manifest]) -> None:
    """Have the NetworkPolicies of `desired`, whose templates are those that are applied, let clients in to each port at
    which pods listen: another port of the spec is that of pods that come, and the Service leads to both by its name."""
    parts: tuple[Component, ...] = ("core", "replicant")
    policies = {Ref("NetworkPolicy", workload(context, component).name): component for component in parts}
    for manifest in desired:
        if component := policies.get(ref(manifest)):
            rules = manifest["spec"]["ingress"]
            open_to_all = {entry["port"] for rule in rules if "from" not in rule for entry in rule["ports"]}
            in_use = {port for maker in makers(context, observed, desired, component) for port in clients_ports(maker)}
            if lacking := sorted(in_use - open_to_all):
                rules.append({"ports": [{"protocol": "TCP", "port": port} for port in lacking]})


def clients_ports(pod: Manifest) -> Iterator[int]:
    """Of a pod, or a template of it."""
    return (port for _, port in listeners(pod))


def listeners(pod: Manifest) -> Iterator[tuple[str, int]]:
    """Name and port of each."""
    for container in pod["spec"].get("containers", ()):
        if container["name"] == NODE:
            for port in container.get("ports", ()):
                if port["containerPort"] not in (LINK_PORT, MANAGEMENT_PORT):
                    yield port["name"], port["containerPort"]


def makers(context: Context, observed: Observed, desired: list[Manifest], component: Component) -> Iterator[Manifest]:
    """Pods of a part, and the templates by which there are, and will be, others."""
    name = workload(context, component)
    workloads = [manifest for manifest in (*desired, observed.objects.get(name)) if manifest and ref(manifest) == name]
    sets = [item for item in observed.replica_sets if has_pods(item)] if component == "replicant" else []
    yield from (template for manifest in (*workloads, *sets) if (template := template_of(manifest)))
    yield from observed.core_pods if component == "core" else ()


def has_pods(replica_set: Manifest) -> bool:
    spec, status = replica_set.get("spec", {}), replica_set.get("status", {})
    return bool(spec.get("replicas") or status.get("replicas"))


def has_label(pod: Manifest) -> bool:
    """A pod, or a template of it."""
    return TAKES_CLIENTS in (pod["metadata"].get("labels") or {})
