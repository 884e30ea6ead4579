"""A new cluster that begins with a backup: its volumes are filled before its cores and its Redis are made. Pure.

Once there is a StatefulSet of Redis or of cores there is nothing to restore any more. Volumes that were there before
are never filled, and never run beside restored ones: cores whose tables are newer than the restored log would have it
begin anew from these tables, with sessions that are older. So a restore that has begun is done, or has failed, before
anything is made, though the spec asks for it no longer.
"""

from typing import NamedTuple

from flockmq_operator.events import Event
from flockmq_operator.manifest import Manifest, Ref, annotation, ref
from flockmq_operator.observe import Observed
from flockmq_operator.problems import NODES, Problem, no_claim
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, RESTORED_FOR, RESTORES, Component, selector_string
from flockmq_operator.resources.restore import claims, restores
from flockmq_operator.spec import Restore

WAITS: frozenset[Component] = NODES | {"redis"}
"""Who is made when the volumes are filled."""
REFUSED: frozenset[Component] = WAITS | {"restore"}


class Restoring(NamedTuple):
    """What there is to do. Empty: nothing is to be restored, or all is."""

    waiting_for: str = ""
    problem: Problem | None = None
    create: tuple[Manifest, ...] = ()
    delete: tuple[Manifest, ...] = ()
    events: tuple[Event, ...] = ()
    kept: frozenset[Ref] = frozenset()
    """The job, which can't be changed, and isn't made again."""


def next_step(context: Context, observed: Observed) -> Restoring:
    spec, job = context.spec.restore, Ref("Job", context.restore)
    is_made = bool({Ref("StatefulSet", context.redis), Ref("StatefulSet", context.core)} & observed.objects.keys())
    live = observed.objects.get(job)
    if spec is None:
        return Restoring() if is_made or live is None else to_be_done(context, job, live)
    if is_made:
        return Restoring(kept=frozenset({job}))
    if live and is_finished(live, "Complete"):
        return Restoring(kept=frozenset({job}))
    waiting_for = f"the backup {restores(spec)} to be restored ({job})"
    if live and is_finished(live, "Failed"):
        if annotation(live, RESTORES) != restores(spec):
            sentence = f"Deleted {job}, to begin again with another backup"
            deleted = Event("Normal", "Deleted", sentence, (job,))
            return Restoring(waiting_for, delete=(live,), events=(deleted,), kept=frozenset({job}))
        return Restoring(waiting_for, failed(context, spec, job), kept=frozenset({job}))
    if problem := missing_claim(context, observed, spec) or old_volumes(context, observed):
        return Restoring(waiting_for, problem)
    there = {ref(claim) for claim in observed.claims}
    missing = tuple(claim for claim in claims(context) if ref(claim) not in there)
    sentence = f"Restoring the backup {restores(spec)} into {' and '.join(str(ref(claim)) for claim in missing)}"
    begun = Event("Normal", "Restoring", sentence, tuple(map(ref, missing)))
    kept = frozenset({job} if live else ())
    return Restoring(waiting_for, create=missing, events=(begun,) if missing else (), kept=kept)


def to_be_done(context: Context, job: Ref, live: Manifest) -> Restoring:
    """What has begun, and the spec asks for no longer."""
    if is_finished(live, "Complete"):
        return Restoring()
    what = annotation(live, RESTORES) or ""
    problem = half_filled(context, what, job) if is_finished(live, "Failed") else None
    return Restoring(f"the backup {what} to be restored ({job})", problem, kept=frozenset({job}))


def is_finished(job: Manifest, how: str) -> bool:
    """`how`: Complete or Failed."""
    conditions = job.get("status", {}).get("conditions") or ()
    return any(condition["type"] == how and condition["status"] == "True" for condition in conditions)


def failed(context: Context, spec: Restore, job: Ref) -> Problem:
    here = f"--namespace {context.namespace}"
    return Problem(
        "RestoreFailed",
        f"the backup {restores(spec)} couldn't be restored; why: kubectl logs {here} --prefix --selector "
        f"{selector_string(context, 'restore')}. Name another backup in spec.restore, or mend it and begin again: "
        f"kubectl delete job {here} {job.name}",
        REFUSED,
    )


def half_filled(context: Context, what: str, job: Ref) -> Problem:
    volumes = " ".join(f"pvc/{claim['metadata']['name']}" for claim in claims(context))
    return Problem(
        "RestoreFailed",
        f"the backup {what} couldn't be restored, and spec.restore was removed: the new volumes may hold a part of it. "
        "Name a backup in spec.restore; or begin without one: "
        f"kubectl delete --namespace {context.namespace} {volumes} job/{job.name}",
        REFUSED,
    )


def missing_claim(context: Context, observed: Observed, spec: Restore) -> Problem | None:
    if spec.claim_name in observed.named_claims:
        return None
    return no_claim("spec.restore.claimName", spec.claim_name, context.namespace, REFUSED)


def old_volumes(context: Context, observed: Observed) -> Problem | None:
    uid = context.cluster.uid
    parts = ("core", "redis")
    old = [
        claim["metadata"]["name"]
        for claim in observed.claims
        if claim["metadata"]["labels"].get(COMPONENT) in parts and annotation(claim, RESTORED_FOR) != uid
    ]
    if not old:
        return None
    names = " ".join(sorted(old))
    return Problem(
        "RestoreRefused",
        f"spec.restore: there are volumes of an earlier cluster of this name, and a backup is restored into new ones "
        f"only. Give the MqttCluster another name; or remove spec.restore, to go on with what they hold; or delete "
        f"them for good: kubectl delete pvc --namespace {context.namespace} {names}",
        REFUSED,
    )
