"""The specs under which a MqttCluster was whole: what `kubectl flockmq rollback` goes back to.

Each is a ControllerRevision, such as a StatefulSet keeps of its templates; the MqttCluster owns it, so it goes with it.
One is written when Ready and Available are True, and the newest REVISIONS_MAX are kept; a spec that comes again becomes
the newest. Whoever may view MqttClusters of a namespace mostly may view these, so nothing is told that wasn't: a spec
has names of Secrets, not what they hold.

Going back isn't about how many replicants there are, nor about what a field has the operator do once (a restart,
another key, a pause, what a new cluster began with): specs that differ in nothing else are one revision.
"""

import copy
import hashlib
import json
import logging
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from flockmq_operator.kube import Kube, Refused
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.labels import INSTANCE, MANAGED_BY, MANAGER
from flockmq_operator.spec import Cores, Redis, Replicants, Spec, decode, said

log = logging.getLogger(__name__)

REVISIONS_MAX = 5
"""Kept of one MqttCluster."""
KIND = "ControllerRevision"
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""The annotation of a pod template that restarts its pods, as `kubectl rollout restart` sets it."""
DONE_ONCE = (
    ("pause",),
    ("hibernate",),
    ("clusterKeyRotation",),
    ("restore",),
    *((part, "podTemplate", "metadata", "annotations", RESTARTED_AT) for part in ("cores", "replicants", "redis")),
)
"""Where fields stand in a spec that have the operator do something once, or leave it."""
NUMBER = ("replicants", "replicas")

Part = TypeVar("Part", Cores, Replicants, Redis)


class Steps(NamedTuple):
    """The deletions come first: one that becomes the newest again is made anew, since a patch of its number is refused
    where the API server writes its data in other bytes."""

    delete: list[Manifest]
    create: Manifest | None


def is_whole(status: Manifest) -> bool:
    states = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    return states.get("Ready") == states.get("Available") == "True"


async def keep(kube: Kube, body: Manifest) -> None:
    """Keep the spec of this MqttCluster, which is whole. Raises Unreachable; a refusal is only told."""
    metadata = body["metadata"]
    try:
        steps = next_steps(body, await revisions_of(kube, body))
        for revision in steps.delete:
            await kube.delete(revision)
        if steps.create:
            await kube.create(steps.create)
    except Refused as refused:
        where = f"{metadata['namespace']}/{metadata['name']}"
        log.warning("%s: its spec isn't kept to go back to: %s; upgrade the operator's chart", where, refused)


async def revisions_of(kube: Kube, body: Manifest) -> list[Manifest]:
    """The newest first. Raises Refused and Unreachable."""
    metadata = body["metadata"]
    found = await kube.list(KIND, metadata["namespace"], {INSTANCE: metadata["name"], MANAGED_BY: MANAGER})
    own = [item for item in found if owner_of(item) == metadata["uid"]]  # those of StatefulSets have its labels
    return sorted(own, key=lambda revision: -int(revision["revision"]))


def owner_of(item: Manifest) -> str | None:
    """The uid."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def next_steps(body: Manifest, kept: list[Manifest]) -> Steps:
    """`kept`: the newest first."""
    metadata = body["metadata"]
    name = f"{metadata['name']}-{digest_of(decode(body).spec)}"
    others = [revision for revision in kept if revision["metadata"]["name"] != name]
    too_many = others[REVISIONS_MAX - 1 :]
    if kept and kept[0]["metadata"]["name"] == name:
        return Steps(too_many, None)
    former = [revision for revision in kept if revision not in others]
    return Steps([*former, *too_many], revision_of(body, name))


def revision_of(body: Manifest, name: str) -> Manifest:
    metadata = body["metadata"]
    owner = {"name": metadata["name"], "uid": metadata["uid"], "controller": True}
    return {
        "apiVersion": "apps/v1",
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {"app.kubernetes.io/name": "flockmq", INSTANCE: metadata["name"], MANAGED_BY: MANAGER},
            "ownerReferences": [{"apiVersion": body["apiVersion"], "kind": body["kind"], **owner}],
        },
        "data": {"spec": body["spec"]},
        "revision": metadata["generation"],
    }


def digest_of(spec: Spec) -> str:
    """Equal for specs of one revision. Fields at their default don't count, so a newer definition changes nothing."""
    once = replace(
        spec,
        pause=False,
        hibernate=False,
        cluster_key_rotation="",
        restore=None,
        cores=not_restarted(spec.cores),
        replicants=replace(not_restarted(spec.replicants), replicas=min(spec.replicants.replicas, 1)),
        redis=not_restarted(spec.redis),
    )
    return hashlib.sha256(json.dumps(said(once), sort_keys=True).encode()).hexdigest()[:16]


def not_restarted(part: Part) -> Part:
    metadata = part.pod_template.metadata
    annotations = {key: value for key, value in metadata.annotations.items() if key != RESTARTED_AT}
    return replace(part, pod_template=replace(part.pod_template, metadata=replace(metadata, annotations=annotations)))


def restored(kept: Manifest, current: Manifest) -> Manifest:
    """The spec `kept`, with what isn't gone back from as it is in the spec `current`: see the head of this file."""
    found = copy.deepcopy(kept)
    numbers = [value_at(spec, NUMBER) for spec in (kept, current)]
    paths = DONE_ONCE if 0 in numbers else (*DONE_ONCE, NUMBER)  # without replicants it is another kind of cluster
    for path in paths:
        put_at(found, path, value_at(current, path))
    return found


def value_at(spec: Manifest, path: tuple[str, ...]) -> object:
    """None: there is none."""
    value: object = spec
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def put_at(spec: Manifest, path: tuple[str, ...], value: object) -> None:
    """None: take it away."""
    *above, last = path
    if value is None:
        holder = value_at(spec, tuple(above))
        if isinstance(holder, dict):
            holder.pop(last, None)
        return
    for key in above:
        spec = spec.setdefault(key, {})
    spec[last] = value
