"""What to do next: pure, from what a MqttCluster should be, what exists of it, and the time.

The plan of a cluster that is as it should be is empty. A plan is made anew for each pass, so each step (Redis before
the nodes, one core after the other) is a condition on what exists, not a place in a procedure.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from flockmq_operator.certificates import WITHOUT_ROLE, Step, Unreadable, next_step, of_links, of_redis
from flockmq_operator.cluster_key import next_key_step
from flockmq_operator.drift import drift
from flockmq_operator.images import allowed, images_refused
from flockmq_operator.manifest import Manifest, Ref, annotation, ref
from flockmq_operator.observe import Observed
from flockmq_operator.quantity import quantity
from flockmq_operator.redis_tls import as_made, contradiction
from flockmq_operator.resources import build, config
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, CONFIG_DIGEST, POD_TEMPLATE, PODS_DIGEST, Component, selector
from flockmq_operator.resources.secret_files import named
from flockmq_operator.spec import pods_digest
from flockmq_operator.status.workload import ordinal, pod_ready, pod_waits, rolled_out

WORKLOADS = ("StatefulSet", "Deployment")
KEPT_KINDS = ("Secret", "PersistentVolumeClaim")
"""Never deleted by a plan: they hold what can't be made again."""
MESSAGE_MAX = 1000
"""Characters of an event's sentence; the API server takes 1024 bytes."""


class Event(NamedTuple):
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Problem(NamedTuple):
    """Why nothing can be done until somebody acts."""

    reason: str
    message: str


class Plan(NamedTuple):
    create: tuple[Manifest, ...] = ()
    apply: tuple[Manifest, ...] = ()
    delete: tuple[Manifest, ...] = ()
    """Live objects."""
    events: tuple[Event, ...] = ()
    """What to tell once all of it is done."""
    problem: Problem | None = None
    waiting_for: str = ""
    """What has to happen before the next step."""
    update_pending: bool = False
    """Whether pods are held at an older template (spec.update)."""

    @property
    def changes(self) -> bool:
        return bool(self.create or self.apply or self.delete)


def make_plan(said: Context, observed: Observed, now: datetime) -> Plan:
    context = as_made(said, observed)
    awaited_core = core_to_wait_for(context, observed)
    if awaited_core:
        context = with_all_cores(context, observed)
    desired = build(context)
    outdated_core = core_to_restart_before_others_go(context, observed)
    if outdated_core:
        keep_cores(context, observed, desired)
    problem = find_problem(context, observed, [ref(manifest) for manifest in desired]) or fixed_tls(said, observed)
    if problem:
        return Plan(problem=problem)
    if observed.leftover:
        return Plan(waiting_for=f"{len(observed.leftover)} objects of an earlier MqttCluster of this name to be gone")
    waiting_for = redis_to_wait_for(context, observed)
    if waiting_for:
        nodes = (Ref("StatefulSet", context.core), Ref("Deployment", context.replicant))
        desired = [manifest for manifest in desired if ref(manifest) not in nodes or ref(manifest) in observed.objects]
    elif awaited_core:
        waiting_for = f"core {awaited_core} to be ready before cores are removed"
    elif outdated_core:
        waiting_for = f"core {outdated_core} to know the new number of cores before others are removed"
    update_pending = hold_templates(context, observed, desired)
    keep_claim_templates(observed, desired)

    steps = next_steps(context, observed, now)
    if isinstance(steps, Problem):
        return Plan(problem=steps)
    secrets = [manifest for manifest in desired if manifest["kind"] == "Secret"]
    for secret in secrets:
        if step := steps.get(ref(secret)):
            secret["data"] = encoded(step.files)
    create = tuple(secret for secret in secrets if ref(secret) not in observed.objects)
    apply = [secret for secret in secrets if ref(secret) in steps and secret not in create]
    events = [describe_step(context, ref(secret), steps[ref(secret)]) for secret in apply]
    for manifest in desired:
        live = observed.objects.get(ref(manifest))
        if manifest["kind"] == "Secret":
            continue
        if live is None:
            apply.append(manifest)
        elif manifest["kind"] != "PersistentVolumeClaim" and (paths := drift(manifest, live)):
            apply.append(manifest)
            events.append(describe_change(context, observed, manifest, live, paths))
    grown = growing_claims(context, observed)
    events += [Event("Normal", "VolumeGrown", f"Growing {ref(claim)} to {requested(claim)}") for claim in grown]
    made = [str(ref(manifest)) for manifest in (*create, *apply) if ref(manifest) not in observed.objects]
    if made:
        events.insert(0, Event("Normal", "Created", f"Created {', '.join(made)}"))

    wanted = {ref(manifest) for manifest in desired}
    delete = [live for name, live in observed.objects.items() if name not in wanted and name.kind not in KEPT_KINDS]
    events += [Event("Normal", "Deleted", f"Deleted {ref(live)}: the spec asks for it no longer") for live in delete]
    for pod, event in restarts(context, observed, {ref(manifest) for manifest in apply}):
        delete.append(pod)
        events.append(event)
    shortened = tuple(event._replace(message=event.message[:MESSAGE_MAX]) for event in events)
    return Plan(create, (*apply, *grown), tuple(delete), shortened, None, waiting_for, update_pending)


def next_steps(context: Context, observed: Observed, now: datetime) -> dict[Ref, Step] | Problem:
    """What becomes of the Secrets that are renewed."""
    without_role = any(shows_no_role(context, pod) for pod in nodes_there(context, observed))
    steps: dict[str, Step | None] = {}
    name = context.links
    try:
        steps[name] = next_step(observed.links, of_links(context.name), now, without_role=without_role)
        if context.redis_tls:
            name = context.redis_certificates
            steps[name] = next_step(observed.redis_certificates, of_redis(context.name), now)
    except Unreadable as error:
        return unreadable_certificates(context, name, error)
    try:
        key_step = next_key_step(observed.cluster_key, context.spec.cluster_key_rotation, now)
    except Unreadable as error:
        return unreadable_key(context, error)
    steps[context.cluster_key] = key_step
    return {Ref("Secret", name): step for name, step in steps.items() if step}


def describe_step(context: Context, secret: Ref, step: Step) -> Event:
    is_key = secret.name == context.cluster_key
    return Event("Normal", "ClusterKeyRotated" if is_key else "CertificatesRenewed", step.sentence)


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """A Secret's data."""
    return {name: b64encode(content).decode() for name, content in files.items()}


def restarts(context: Context, observed: Observed, applied: set[Ref]) -> Iterator[tuple[Manifest, Event]]:
    """Pods to delete, so that they come back from their newest template: not while that is only being applied."""
    if Ref("StatefulSet", context.redis) not in applied and (redis := redis_to_restart(context, observed)):
        sentence = f"Restarting {redis['metadata']['name']}, which isn't ready, for its new pod template"
        yield redis, Event("Normal", "RestartingRedis", sentence)
    if Ref("StatefulSet", context.core) not in applied and (core := core_to_restart(context, observed)):
        yield core, describe_restart(context, observed, core)


# What nobody but a person can mend


def find_problem(context: Context, observed: Observed, wanted: list[Ref]) -> Problem | None:
    taken = [str(name) for name in wanted if name in observed.foreign]
    if taken:
        return Problem(
            "NameTaken",
            f"{', '.join(taken)} in namespace {context.namespace} exists and doesn't belong to this MqttCluster: "
            "delete it, or create the MqttCluster under another name",
        )
    secrets = [name for kind, name in wanted if kind == "Secret"]
    return (
        refused_image(context)
        or missing_secret(context, observed)
        or lost_secret(context, observed, secrets)
        or shrinking(context, observed)
    )


def refused_image(context: Context) -> Problem | None:
    refused = [f"{field}: {image}" for field, image in images_refused(context)]
    if not refused:
        return None
    return Problem(
        "ImageRefused",
        f"{', '.join(refused)}: the operator takes images only from {', '.join(allowed(context.settings))}: name one "
        "of these, or have its registry added to the operator's (imageRegistries of its chart)",
    )


def fixed_tls(said: Context, observed: Observed) -> Problem | None:
    """A transition rule of the CRD refuses most of this; it can't see how a Redis was made that the spec says nothing
    of."""
    sentence = contradiction(said, observed)
    return Problem("RedisTlsFixed", sentence) if sentence else None


def missing_secret(context: Context, observed: Observed) -> Problem | None:
    """A Secret or a key that the spec names isn't there: pods that mount it couldn't start."""
    for file in named(context):
        where = f"{file.named_by}: Secret {file.secret} in namespace {context.namespace}"
        keys = observed.named_secrets.get(file.secret)
        if keys is None:
            return Problem("SecretMissing", f"{where} doesn't exist: create it, with the key {file.key}")
        if file.key not in keys:
            return Problem("SecretMissing", f"{where} has no key {file.key}: add it")
    return None


def lost_secret(context: Context, observed: Observed, made: list[str]) -> Problem | None:
    """A Secret that running pods were started with is gone. A new value would lock them out from one another; once none
    runs any more, it is made anew. The first user may be made anew at any time (cores take a new password in), and so
    may certificates, which are read again."""
    live = observed.objects.get(Ref("StatefulSet", context.core))
    renewable = (context.mqtt_user, context.links, context.redis_certificates)
    needed = [name for name in made if name not in renewable and live and mounts(live, name)]
    lost = [name for name in needed if Ref("Secret", name) not in observed.objects]
    if not lost or not any_running(context, observed, lost):
        return None
    labels = [f"{key}={value}" for key, value in selector(context).items()]
    redis_may_stay = [] if context.redis in lost else [f"{COMPONENT}!=redis"]
    pods = ",".join(labels + redis_may_stay)
    return Problem(
        "SecretMissing",
        f"Secret {' and '.join(lost)} in namespace {context.namespace} was deleted, and running pods use it: restore "
        "it from a backup; or restart all of them with a new one, which is made when no old pod runs any more "
        f"(volumes stay): kubectl delete pods --namespace {context.namespace} --selector {pods}",
    )


def any_running(context: Context, observed: Observed, lost: list[str]) -> bool:
    """Whether any pod was started with `lost` Secrets and hasn't ended: one that waits for a Secret is still Pending.
    Redis pods mount the Redis Secret alone, and run again without the others."""
    replicants = observed.objects.get(Ref("Deployment", context.replicant), {})
    if replicants.get("status", {}).get("readyReplicas"):
        return True
    redis_pods = observed.redis_pods if context.redis in lost else ()
    pods = (*observed.core_pods, *redis_pods, *observed.replicant_pods)
    return any(pod.get("status", {}).get("phase") not in ("Pending", "Succeeded", "Failed") for pod in pods)


def mounts(live: Manifest, secret: str) -> bool:
    return any(source["name"] == secret for source in mounted(live["spec"]["template"]["spec"]))


def mounted(pod: Manifest) -> list[Manifest]:
    """What a PodSpec takes from Secrets by projected volumes: the Secret's name, and `items`."""
    sources = [source for volume in pod["volumes"] for source in volume.get("projected", {}).get("sources", ())]
    return [source["secret"] for source in sources if "secret" in source]


def nodes_there(context: Context, observed: Observed) -> Iterator[Manifest]:
    """The PodSpecs of nodes that are, or are to be."""
    for name in (Ref("StatefulSet", context.core), Ref("Deployment", context.replicant)):
        if live := observed.objects.get(name):
            yield live["spec"]["template"]["spec"]
    for pod in (*observed.core_pods, *observed.replicant_pods):
        yield pod["spec"]


def shows_no_role(context: Context, pod: Manifest) -> bool:
    """Whether an earlier operator gave it the certificate that says no role."""
    links = [secret for secret in mounted(pod) if secret["name"] == context.links]
    return any(item["key"] == f"{WITHOUT_ROLE}.crt" for secret in links for item in secret["items"])


def unreadable_certificates(context: Context, secret: str, error: Unreadable) -> Problem:
    return Problem(
        "CertificatesUnreadable",
        f"Secret {secret} in namespace {context.namespace}: {error}: restore it, or delete it, and the operator makes "
        "another; connections that are up stay",
    )


def unreadable_key(context: Context, error: Unreadable) -> Problem:
    return Problem(
        "ClusterKeyUnreadable",
        f"Secret {context.cluster_key} in namespace {context.namespace}: {error}: restore it, or write one key into "
        "key, which every node must hold, and remove rotation",
    )


def shrinking(context: Context, observed: Observed) -> Problem | None:
    """A transition rule of the CRD refuses this; it can't see a part of the spec that is removed and added again."""
    for claim, size in claims_with_size(context, observed):
        if quantity(size) < quantity(requested(claim)):
            return Problem(
                "VolumeCannotShrink",
                f"{ref(claim)} in namespace {context.namespace} has {requested(claim)}, the spec asks for {size}: "
                f"volumes only grow; set its storage.size to {requested(claim)} or more",
            )
    return None


# Redis first


def redis_to_wait_for(context: Context, observed: Observed) -> str:
    """Nodes that start before Redis would only fail and back off; those that run need no permission."""
    if context.spec.redis.external:
        return ""
    live = observed.objects.get(Ref("StatefulSet", context.redis))
    return "" if live and rolled_out(live, context.spec.redis.replicas) else f"Redis ({context.redis}) to be ready"


def redis_to_restart(context: Context, observed: Observed) -> Manifest | None:
    """A pod of Redis that isn't ready and not of the newest template: the StatefulSet's controller waits for a pod to
    become ready before it restarts that one, or, of a Redis with replicas, the next one; so a mended template wouldn't
    get through.

    Of a Redis with replicas only one that can't start, for others may be loading, and only while none is ready: with a
    ready one those that are restarted become ready too, each by itself; the first start needs all.
    """
    live = observed.objects.get(Ref("StatefulSet", context.redis))
    if live is None or not template_seen(live):
        return None
    if any(pod_ready(pod) for pod in observed.redis_pods):
        return None
    broken = [pod for pod in outdated_pods(live, observed.redis_pods) if "deletionTimestamp" not in pod["metadata"]]
    return next((pod for pod in broken if pod_waits(pod) or not context.redis_hosts), None)


# Pod templates stay until the spec changes


def hold_templates(context: Context, observed: Observed, desired: list[Manifest]) -> bool:
    """Give workloads in `desired` the template they have, where the spec asks for no other; whether any differs.

    A held workload keeps its configuration files too: an older broker may not know a newer operator's settings.
    """
    config_map = next(manifest for manifest in desired if manifest["kind"] == "ConfigMap")
    live_config = observed.objects.get(ref(config_map), {}).get("data") or {}
    pending = False
    for manifest in desired:
        if manifest["kind"] not in WORKLOADS:
            continue
        live = observed.objects.get(ref(manifest))
        component: Component = manifest["metadata"]["labels"][COMPONENT]
        digest = pods_digest(context.spec, component)
        fresh = manifest["spec"]["template"]
        held = held_template(live, digest) if live and context.spec.update == "OnSpecChange" else None
        if held is not None and held != fresh:
            pending = True
            manifest["spec"]["template"] = held
            if config.digest(component, live_config) == annotation(held, CONFIG_DIGEST):
                config_map["data"] |= config.files_of(component, live_config)
        manifest["metadata"]["annotations"] = {
            PODS_DIGEST: digest,
            POD_TEMPLATE: json.dumps(manifest["spec"]["template"], sort_keys=True, separators=(",", ":")),
        }
    return pending


def held_template(live: Manifest, digest: str) -> Manifest | None:
    """The template that the operator gave `live` for this very digest of the spec."""
    if annotation(live, PODS_DIGEST) != digest:
        return None
    try:
        template: Manifest = json.loads(annotation(live, POD_TEMPLATE) or "")
    except ValueError:
        return None
    return template if isinstance(template, dict) and "spec" in template else None


# Volumes


def keep_claim_templates(observed: Observed, desired: list[Manifest]) -> None:
    """A StatefulSet's claim templates can't be changed; its volumes grow by `growing_claims`."""
    for manifest in desired:
        live = observed.objects.get(ref(manifest))
        if manifest["kind"] != "StatefulSet" or live is None:
            continue
        for template, existing in zip(
            manifest["spec"]["volumeClaimTemplates"], live["spec"]["volumeClaimTemplates"], strict=True
        ):
            template["metadata"]["labels"] = existing["metadata"]["labels"]
            template["spec"] = {
                key: existing["spec"][key]
                for key in ("accessModes", "resources", "storageClassName")
                if key in existing["spec"]
            }


def claims_with_size(context: Context, observed: Observed) -> list[tuple[Manifest, str]]:
    """Each volume claim with the size that the spec asks for."""
    sizes = {
        "core": context.spec.cores.storage.size,
        "redis": context.spec.redis.storage.size,
        "report": context.spec.report.storage.size,
    }
    own = [item for name, item in observed.objects.items() if name.kind == "PersistentVolumeClaim"]
    labelled = [(claim, claim["metadata"]["labels"].get(COMPONENT)) for claim in (*own, *observed.claims)]
    return [(claim, sizes[component]) for claim, component in labelled if component in sizes]


def growing_claims(context: Context, observed: Observed) -> list[Manifest]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim["metadata"]["name"], "namespace": context.namespace},
            "spec": {"resources": {"requests": {"storage": size}}},
        }
        for claim, size in claims_with_size(context, observed)
        if quantity(size) > quantity(requested(claim))
    ]


def requested(claim: Manifest) -> str:
    size: str = claim["spec"]["resources"]["requests"]["storage"]
    return size


# Cores are removed while those that stay are ready


def core_to_wait_for(context: Context, observed: Observed) -> str:
    """A core that stays and isn't ready, while the spec asks for fewer; empty: none. Those that would be removed may be
    all that hold the tables."""
    live = observed.objects.get(Ref("StatefulSet", context.core))
    if live is None or live["spec"]["replicas"] <= context.spec.cores.replicas or is_begun(context, live):
        return ""
    unready = unready_cores(context, observed)
    return f"{context.core}-{min(unready)}" if unready else ""


def core_to_restart_before_others_go(context: Context, observed: Observed) -> str:
    """A core that stays and hasn't been restarted with the number of cores that the spec asks for, where it asks for
    fewer; empty: none. Were the others removed before, too few would be there of the former number while one restarts.
    If one that goes is broken all go at once, for while one isn't ready no other is restarted."""
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
    there = [pod for pod in observed.core_pods if pod_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
    return set(range(context.spec.cores.replicas)) - {ordinal(pod) for pod in there}


def is_begun(context: Context, live: Manifest) -> bool:
    """The StatefulSet's template is what this spec asks for: those that start know this number of cores."""
    return annotation(live, PODS_DIGEST) == pods_digest(context.spec, "core")


def keep_cores(context: Context, observed: Observed, desired: list[Manifest]) -> None:
    """As many as there are."""
    name = Ref("StatefulSet", context.core)
    cores = next(manifest for manifest in desired if ref(manifest) == name)
    cores["spec"]["replicas"] = observed.objects[name]["spec"]["replicas"]


def with_all_cores(context: Context, observed: Observed) -> Context:
    """`context` as if its spec asked for the cores that there are: their majorities are of that number too."""
    there: int = observed.objects[Ref("StatefulSet", context.core)]["spec"]["replicas"]
    replace = msgspec.structs.replace
    spec = replace(context.spec, cores=replace(context.spec.cores, replicas=there))
    return replace(context, cluster=replace(context.cluster, spec=spec))


# One core after the other


def core_to_restart(context: Context, observed: Observed) -> Manifest | None:
    """The core pod to delete so that it comes back from the newest template; None: none now.

    One that isn't ready goes first, for nothing is lost with it; a ready one only while all cores are ready. Those that
    are about to be removed aren't restarted.
    """
    live = observed.objects.get(Ref("StatefulSet", context.core))
    if live is None or not template_seen(live):
        return None
    pods = sorted(observed.core_pods, key=ordinal, reverse=True)
    there = max(live["spec"]["replicas"], context.spec.cores.replicas)
    if len(pods) < there or any("deletionTimestamp" in pod["metadata"] for pod in pods):
        return None
    outdated = outdated_cores(context, live, pods)
    unready = [pod for pod in pods if not pod_ready(pod)]
    broken = [pod for pod in outdated if pod in unready]
    if broken:
        return broken[0]
    return outdated[0] if outdated and not unready else None


def template_seen(live: Manifest) -> bool:
    """Whether the StatefulSet's controller has seen its newest template."""
    return bool(live.get("status", {}).get("observedGeneration") == live["metadata"]["generation"])


def outdated_pods(live: Manifest, pods: list[Manifest]) -> list[Manifest]:
    newest = live["status"].get("updateRevision")
    return [pod for pod in pods if pod["metadata"]["labels"].get("controller-revision-hash") != newest]


def outdated_cores(context: Context, live: Manifest, pods: list[Manifest]) -> list[Manifest]:
    """Without those that are about to be removed."""
    return [pod for pod in outdated_pods(live, pods) if ordinal(pod) < context.spec.cores.replicas]


def describe_restart(context: Context, observed: Observed, pod: Manifest) -> Event:
    left = len(outdated_cores(context, observed.objects[Ref("StatefulSet", context.core)], observed.core_pods)) - 1
    sentence = f"Restarting core {pod['metadata']['name']} for its new pod template; {left} more to restart"
    return Event("Normal", "RestartingCore", sentence)


# What happened, in a sentence


def describe_change(
    context: Context, observed: Observed, manifest: Manifest, live: Manifest, paths: list[str]
) -> Event:
    what = str(ref(manifest))
    spec, old = manifest.get("spec", {}), live.get("spec") or {}
    if "spec.replicas" in paths:
        return Event("Normal", "Scaled", f"Scaled {what} from {old.get('replicas')} to {spec['replicas']}")
    if manifest["kind"] in WORKLOADS and any(path.startswith("spec.template") for path in paths):
        return Event("Normal", "Rolling", f"Rolling out {what}: {', '.join(visible(paths))} changed")
    if manifest["kind"] == "HorizontalPodAutoscaler" and paths == ["spec.minReplicas"]:
        floor = f"from {old.get('minReplicas')} to {spec['minReplicas']}"
        return Event("Normal", "FloorMoved", f"The fewest replicants that connections ask for went {floor}")
    if observed.status.get("observedGeneration") == context.cluster.generation:
        return Event("Normal", "Mended", f"{what} wasn't as the MqttCluster says; mended {', '.join(visible(paths))}")
    return Event("Normal", "Updated", f"Updated {what}: {', '.join(visible(paths))}")


def visible(paths: list[str]) -> list[str]:
    """Without the operator's own notes, unless nothing else is left to name."""
    return [path for path in paths if not path.startswith("metadata.annotations")] or ["its annotations"]
