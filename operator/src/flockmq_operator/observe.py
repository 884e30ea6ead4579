"""What exists of a MqttCluster, read from the API server anew for each pass.

Lists by label rather than caches: a pass sees what the one before it did, so a plan never acts twice on one cause.
Values of Secrets are not kept: their names, and of those that the spec names the keys, are enough. The exceptions are
the Secrets with certificates and with the cluster's key, which are renewed.
"""

import asyncio
from base64 import b64decode
from typing import NamedTuple

from flockmq_operator import report_headline
from flockmq_operator.kube import Kube
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import INSTANCE, MANAGED_BY, MANAGER, TAKES_CLIENTS, selector
from flockmq_operator.resources.secret_files import named
from flockmq_operator.spec import KIND

OWNED_KINDS = (
    "ServiceAccount",
    "ConfigMap",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
    "Service",
    "StatefulSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "CronJob",
    "Job",
)

UNAVAILABLE_MAX = 200
"""Replicant pods that are looked at for what keeps one from starting."""
REPORT_PODS_MAX = 50
"""More than its CronJobs keep."""


class Observed(NamedTuple):
    objects: dict[Ref, Manifest]
    """What the MqttCluster owns. Of Secrets the metadata alone."""
    claims: list[Manifest]
    """Volume claims of its StatefulSets' pods."""
    replica_sets: list[Manifest]
    """Of the replicants: those of former templates too, as many as Kubernetes keeps."""
    core_pods: list[Manifest]
    redis_pods: list[Manifest]
    replicant_pods: list[Manifest]
    """Up to UNAVAILABLE_MAX, while some aren't available, or all have to end; else empty, for there may be many."""
    report_pods: list[Manifest]
    """Those of the report and of the ingest, up to REPORT_PODS_MAX, where a report has succeeded whose headline isn't
    in the status; else empty."""
    jobs: list[Manifest]
    """That its CronJobs have made, and that haven't ended."""
    left_out: frozenset[Ref]
    """Pods whose label says that they take no clients, while the Service doesn't select by it."""
    orphans: frozenset[Ref]
    """Of `objects`, Secrets that were restored from a backup, without the MqttCluster for their owner."""
    foreign: frozenset[Ref]
    """Objects that stand where the MqttCluster's should, and belong to somebody else."""
    leftover: frozenset[Ref]
    """The like, of an earlier MqttCluster of this name: Kubernetes is deleting them."""
    named_secrets: dict[str, frozenset[str]]
    """Of the Secrets that the spec names: those that exist, with their keys."""
    named_claims: frozenset[str]
    """Of the volume claims that the spec names: those that exist."""
    links: dict[str, bytes] | None
    """The files of the links' Secret; None: there is none."""
    cluster_key: dict[str, bytes] | None
    """The like of the Secret with the cluster's key."""
    redis_certificates: dict[str, bytes] | None
    """The like of the Secret with the certificates of the operator's Redis."""
    status: Manifest
    """The MqttCluster's status, as it was last reported."""


async def observe(kube: Kube, context: Context, wanted: list[Ref], status: Manifest) -> Observed:
    """Read everything that a plan for `context` needs; `wanted` are the objects it will ask for."""
    labels = {INSTANCE: context.name, MANAGED_BY: MANAGER}
    namespace = context.namespace
    renewed = (context.links, context.cluster_key, context.redis_certificates)
    kinds, secrets, files, (sets, cores, redis), named_secrets, named_claims = await asyncio.gather(
        asyncio.gather(*(kube.list(kind, namespace, labels) for kind in OWNED_KINDS)),
        kube.list("Secret", namespace, labels, metadata_only=True),
        asyncio.gather(*(kube.get("Secret", namespace, name) for name in renewed)),
        asyncio.gather(
            kube.list("ReplicaSet", namespace, {**selector(context, "replicant"), MANAGED_BY: MANAGER}),
            kube.list("Pod", namespace, {**selector(context, "core"), MANAGED_BY: MANAGER}),
            kube.list("Pod", namespace, {**selector(context, "redis"), MANAGED_BY: MANAGER}),
        ),
        _named_secrets(kube, context),
        _named_claims(kube, context),
    )
    listed = [item for items in kinds for item in items] + secrets
    objects = {ref(item): item for item in listed if _owned(item, context)}
    claims = [item for item in listed if item["kind"] == "PersistentVolumeClaim" and not _owned(item, context)]
    unseen = [name for name in wanted if name not in objects]
    found = await asyncio.gather(*(kube.get(kind, namespace, name) for kind, name in unseen))
    strangers = {name: item for name, item in zip(unseen, found, strict=True) if item is not None}
    orphans = frozenset(name for name, item in strangers.items() if _is_orphan(item, context))
    ours = {name for name, item in strangers.items() if _owned(item, context)} | orphans  # some lost their labels
    objects |= {name: strangers[name] for name in ours}
    others = {name: item for name, item in strangers.items() if name not in ours}
    leftover = frozenset(name for name, item in others.items() if _of_namesake(item, context))
    replicants = await _replicant_pods(kube, context, objects.get(Ref("Deployment", context.replicant)))
    left_out = await _left_out(kube, context, objects.get(Ref("Service", context.name)), [*sets, *cores])
    reports = await _report_pods(kube, context, objects.get(Ref("CronJob", context.report)), status)
    jobs = await _running_jobs(kube, context, objects)
    foreign = frozenset(others) - leftover
    links, key, certificates = (_files(secret, context) for secret in files)
    return Observed(
        objects,
        claims,
        sets,
        cores,
        redis,
        replicants,
        reports,
        jobs,
        left_out,
        orphans,
        foreign,
        leftover,
        named_secrets,
        named_claims,
        links,
        key,
        certificates,
        status,
    )


def _files(secret: Manifest | None, context: Context) -> dict[str, bytes] | None:
    if secret is None or not (_owned(secret, context) or _is_orphan(secret, context)):
        return None
    return {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}


def _owned(item: Manifest, context: Context) -> bool:
    owners = item["metadata"].get("ownerReferences", ())
    return any(owner.get("controller") and owner["uid"] == context.cluster.uid for owner in owners)


def _is_orphan(item: Manifest, context: Context) -> bool:
    """Whether it is a Secret that says by its labels whose it is, and is nobody's."""
    labels = item["metadata"].get("labels") or {}
    says_so = labels.get(INSTANCE) == context.name and labels.get(MANAGED_BY) == MANAGER
    return item["kind"] == "Secret" and says_so and not item["metadata"].get("ownerReferences")


def _of_namesake(item: Manifest, context: Context) -> bool:
    owners = item["metadata"].get("ownerReferences", ())
    return any(owner["kind"] == KIND and owner["name"] == context.name for owner in owners)


async def _replicant_pods(kube: Kube, context: Context, live: Manifest | None) -> list[Manifest]:
    if live is None or not (context.spec.hibernate or live.get("status", {}).get("unavailableReplicas")):
        return []
    labels = {**selector(context, "replicant"), MANAGED_BY: MANAGER}
    return await kube.list("Pod", context.namespace, labels, limit=UNAVAILABLE_MAX)


async def _report_pods(kube: Kube, context: Context, cron: Manifest | None, status: Manifest) -> list[Manifest]:
    if not report_headline.wants_pods(cron, status.get("report", {})):
        return []
    labels = {**selector(context, "report"), MANAGED_BY: MANAGER}
    return await kube.list("Pod", context.namespace, labels, limit=REPORT_PODS_MAX)


async def _running_jobs(kube: Kube, context: Context, objects: dict[Ref, Manifest]) -> list[Manifest]:
    """They are a CronJob's own, without labels of the MqttCluster."""
    crons = [item for name, item in objects.items() if name.kind == "CronJob"]
    names = [job["name"] for cron in crons for job in cron.get("status", {}).get("active", ()) if "name" in job]
    found = await asyncio.gather(*(kube.get("Job", context.namespace, name) for name in names))
    return [item for item in found if item]


async def _left_out(kube: Kube, context: Context, service: Manifest | None, makers: list[Manifest]) -> frozenset[Ref]:
    """Nothing is asked where pods have no such label: those of `makers` are also theirs."""
    selects = TAKES_CLIENTS in (service or {}).get("spec", {}).get("selector", {})
    if selects or not any(TAKES_CLIENTS in (item["metadata"].get("labels") or {}) for item in makers):
        return frozenset()
    labels = {**selector(context), MANAGED_BY: MANAGER, TAKES_CLIENTS: "false"}
    return frozenset(map(ref, await kube.list("Pod", context.namespace, labels, metadata_only=True)))


async def _named_secrets(kube: Kube, context: Context) -> dict[str, frozenset[str]]:
    names = sorted({file.secret for file in named(context)})
    found = await asyncio.gather(*(kube.get("Secret", context.namespace, name) for name in names))
    return {name: frozenset(item.get("data") or ()) for name, item in zip(names, found, strict=True) if item}


async def _named_claims(kube: Kube, context: Context) -> frozenset[str]:
    names = sorted({part.claim_name for part in (context.spec.backup, context.spec.restore) if part})
    found = await asyncio.gather(*(kube.get("PersistentVolumeClaim", context.namespace, name) for name in names))
    return frozenset(name for name, item in zip(names, found, strict=True) if item)
