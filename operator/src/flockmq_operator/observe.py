"""What exists of a MqttCluster, read from the API server anew for each pass.

Lists by label rather than caches: a pass sees what the one before it did, so a plan never acts twice on one cause.
Values of Secrets are not read: their metadata is enough.
"""

import asyncio
from typing import NamedTuple

from flockmq_operator.kube import Kube
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import INSTANCE, MANAGED_BY, MANAGER, selector
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
)


class Observed(NamedTuple):
    objects: dict[Ref, Manifest]
    """What the MqttCluster owns. Of Secrets the metadata alone."""
    claims: list[Manifest]
    """Volume claims of its StatefulSets' pods."""
    core_pods: list[Manifest]
    redis_pods: list[Manifest]
    foreign: frozenset[Ref]
    """Objects that stand where the MqttCluster's should, and belong to somebody else."""
    leftover: frozenset[Ref]
    """The like, of an earlier MqttCluster of this name: Kubernetes is deleting them."""
    external_secret_keys: frozenset[str] | None
    """Keys of the Secret that redis.external names; None: there is no such Secret, or none is named."""
    status: Manifest
    """The MqttCluster's status, as it was last reported."""


async def observe(kube: Kube, context: Context, wanted: list[Ref], status: Manifest) -> Observed:
    """Read everything that a plan for `context` needs; `wanted` are the objects it will ask for."""
    labels = {INSTANCE: context.name, MANAGED_BY: MANAGER}
    namespace = context.namespace
    kinds, secrets, cores, redis, external = await asyncio.gather(
        asyncio.gather(*(kube.list(kind, namespace, labels) for kind in OWNED_KINDS)),
        kube.list("Secret", namespace, labels, metadata_only=True),
        kube.list("Pod", namespace, {**selector(context, "core"), MANAGED_BY: MANAGER}),
        kube.list("Pod", namespace, {**selector(context, "redis"), MANAGED_BY: MANAGER}),
        _external_secret_keys(kube, context),
    )
    listed = [item for items in kinds for item in items] + secrets
    objects = {ref(item): item for item in listed if _owned(item, context)}
    claims = [item for item in listed if item["kind"] == "PersistentVolumeClaim" and not _owned(item, context)]
    unseen = [name for name in wanted if name not in objects]
    found = await asyncio.gather(*(kube.get(kind, namespace, name) for kind, name in unseen))
    strangers = {name: item for name, item in zip(unseen, found, strict=True) if item is not None}
    objects |= {name: item for name, item in strangers.items() if _owned(item, context)}  # it lost its labels
    others = {name: item for name, item in strangers.items() if not _owned(item, context)}
    leftover = frozenset(name for name, item in others.items() if _of_namesake(item, context))
    return Observed(objects, claims, cores, redis, frozenset(others) - leftover, leftover, external, status)


def _owned(item: Manifest, context: Context) -> bool:
    owners = item["metadata"].get("ownerReferences", ())
    return any(owner.get("controller") and owner["uid"] == context.cluster.uid for owner in owners)


def _of_namesake(item: Manifest, context: Context) -> bool:
    owners = item["metadata"].get("ownerReferences", ())
    return any(owner["kind"] == KIND and owner["name"] == context.name for owner in owners)


async def _external_secret_keys(kube: Kube, context: Context) -> frozenset[str] | None:
    if context.spec.redis.external is None or context.redis_password is None:
        return None
    secret = await kube.get("Secret", context.namespace, context.redis_password[0])
    return None if secret is None else frozenset(secret.get("data", ()))
