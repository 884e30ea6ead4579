"""What nobody but a person can mend, and which part of the cluster it blocks. Pure.

A problem stays where it belongs: it says whose pods stay as they are, and which objects are left alone. All else is
planned as ever.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flockmq_operator.certificates import Unreadable
from flockmq_operator.images import allowed, images_refused
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.observe import Observed
from flockmq_operator.redis_tls import contradiction
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, Component, selector
from flockmq_operator.resources.secret_files import SecretFile, named, node_files, s3_files
from flockmq_operator.workloads import needs, sources, template_of

NODES: frozenset[Component] = frozenset({"core", "replicant"})


class Problem(NamedTuple):
    """Why something can't be done until somebody acts."""

    reason: str
    message: str
    blocks: frozenset[Component] = frozenset()
    """Whose pods stay as they are: no new template, none that is made, none that is restarted."""
    keeps: frozenset[Ref] = frozenset()
    """Objects that are left alone."""


def find_problems(said: Context, context: Context, observed: Observed, desired: list[Manifest]) -> list[Problem]:
    """`said`: what the spec says of Redis' TLS; `context`: how it is."""
    found = [
        taken_names(context, observed, desired),
        *refused_images(context),
        *missing_secrets(context, observed),
        missing_claim(context, observed),
        lost_secret(context, observed, desired),
        fixed_tls(said, observed),
    ]
    return [problem for problem in found if problem]


def taken_names(context: Context, observed: Observed, desired: list[Manifest]) -> Problem | None:
    taken = [manifest for manifest in desired if ref(manifest) in observed.foreign]
    if not taken:
        return None
    names = [ref(manifest) for manifest in taken]
    # What clients connect to concerns no pod; of the others the label says whose part they are.
    parts = [manifest for manifest in taken if ref(manifest) != Ref("Service", context.name)]
    labelled = {label for manifest in parts if (label := manifest["metadata"]["labels"].get(COMPONENT))}
    return Problem(
        "NameTaken",
        f"{', '.join(map(str, names))} in namespace {context.namespace} exists and doesn't belong to this MqttCluster: "
        "delete it, or create the MqttCluster under another name",
        frozenset(labelled) | users_of(set(names), desired),
        frozenset(names),
    )


def refused_images(context: Context) -> Iterator[Problem]:
    refused = list(images_refused(context))
    if refused:
        said = ", ".join(f"{image.field}: {image.name}" for image in refused)
        yield Problem(
            "ImageRefused",
            f"{said}: the operator takes images only from {', '.join(allowed(context.settings))}: name one "
            "of these, or have its registry added to the operator's (imageRegistries of its chart)",
            frozenset(component for image in refused for component in image.components),
        )


def missing_secrets(context: Context, observed: Observed) -> Iterator[Problem]:
    """A Secret or a key that the spec names isn't there: pods that mount it couldn't start."""
    readers: dict[Component, list[SecretFile]] = {component: node_files(context, component) for component in NODES}
    readers["report"] = s3_files(context)
    told = set()
    for file in named(context):
        keys = observed.named_secrets.get(file.secret)
        if file.secret in told or (keys is not None and file.key in keys):
            continue
        told.add(file.secret)
        where = f"{file.named_by}: Secret {file.secret} in namespace {context.namespace}"
        exists = keys is not None
        mend = f"has no key {file.key}: add it" if exists else f"doesn't exist: create it, with the key {file.key}"
        yield Problem("SecretMissing", f"{where} {mend}", readers_of(file.secret, readers))


def missing_claim(context: Context, observed: Observed) -> Problem | None:
    """The volume for backups isn't there. Of the one to restore from `restoring` tells."""
    spec = context.spec.backup
    if spec is None or spec.claim_name in observed.named_claims:
        return None
    return no_claim("spec.backup.claimName", spec.claim_name, context.namespace, frozenset({"backup"}))


def no_claim(field: str, claim: str, namespace: str, blocks: frozenset[Component]) -> Problem:
    where = f"PersistentVolumeClaim {claim} in namespace {namespace}"
    return Problem("ClaimMissing", f"{field}: {where} doesn't exist: create it (docs/kubernetes.md has one)", blocks)


def readers_of(secret: str, readers: Mapping[Component, list[SecretFile]]) -> frozenset[Component]:
    return frozenset(component for component, files in readers.items() if any(file.secret == secret for file in files))


def lost_secret(context: Context, observed: Observed, desired: list[Manifest]) -> Problem | None:
    """A Secret that running pods were started with is gone. A new value would lock them out from one another; once none
    runs any more, it is made anew. The first user may be made anew at any time (cores take a new password in), and so
    may certificates, which are read again."""
    live = observed.objects.get(Ref("StatefulSet", context.core))
    renewable = (context.mqtt_user, context.links, context.redis_certificates)
    made = [manifest["metadata"]["name"] for manifest in desired if manifest["kind"] == "Secret"]
    needed = [name for name in made if name not in renewable and live and mounts(live, name)]
    lost = [name for name in needed if Ref("Secret", name) not in observed.objects]
    if not lost or not any_running(context, observed, lost):
        return None
    labels = [f"{key}={value}" for key, value in selector(context).items()]
    redis_may_stay = [] if context.redis in lost else [f"{COMPONENT}!=redis"]
    pods = ",".join(labels + redis_may_stay)
    names = {Ref("Secret", name) for name in lost}
    return Problem(
        "SecretMissing",
        f"Secret {' and '.join(lost)} in namespace {context.namespace} was deleted, and running pods use it: restore "
        "it from a backup; or restart all of them with a new one, which is made when no old pod runs any more "
        f"(volumes stay): kubectl delete pods --namespace {context.namespace} --selector {pods}",
        users_of(names, desired),
        frozenset(names),
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


def fixed_tls(said: Context, observed: Observed) -> Problem | None:
    """A transition rule of the CRD refuses most of this; it can't see how a Redis was made that the spec says nothing
    of. It goes on as it was made."""
    sentence = contradiction(said, observed)
    return Problem("RedisTlsFixed", sentence) if sentence else None


def unreadable_certificates(context: Context, name: str, error: Unreadable, desired: list[Manifest]) -> Problem:
    return Problem(
        "CertificatesUnreadable",
        f"Secret {name} in namespace {context.namespace}: {error}: restore it, or delete it, and the operator makes "
        "another; connections that are up stay",
        users_of({Ref("Secret", name)}, desired),
    )


def unreadable_key(context: Context, error: Unreadable, desired: list[Manifest]) -> Problem:
    return Problem(
        "ClusterKeyUnreadable",
        f"Secret {context.cluster_key} in namespace {context.namespace}: {error}: restore it, or write one key into "
        "key, which every node must hold, and remove rotation",
        users_of({Ref("Secret", context.cluster_key)}, desired),
    )


# Who uses what


def users_of(names: set[Ref], desired: list[Manifest]) -> frozenset[Component]:
    """The components whose pods need one of the objects `names`."""
    found = []
    for manifest in desired:
        template = template_of(manifest)
        if template and names & set(needs(template["spec"])):
            found.append(manifest["metadata"]["labels"][COMPONENT])
    return frozenset(found)


def mounts(live: Manifest, secret: str) -> bool:
    return any(source["name"] == secret for source in mounted(live["spec"]["template"]["spec"]))


def mounted(pod: Manifest) -> list[Manifest]:
    """What a PodSpec takes from Secrets by projected volumes: the Secret's name, and `items`."""
    return [source["secret"] for source in sources(pod) if "name" in (source.get("secret") or {})]
