"""What to do next: pure, from what a MqttCluster should be, what exists of it, and the time.

The plan of a cluster that is as it should be is empty. A plan is made anew for each pass, so each step (Redis before
the nodes, one core after the other) is a condition on what exists, not a place in a procedure. What somebody has to
mend keeps back the part that it concerns, and nothing else (`problems`).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from flockmq_operator.clients import (
    admit_ports_in_use,
    keep_clients,
    keep_ports,
    lead_to_renamed,
    next_are_ready,
    select_by_label,
)
from flockmq_operator.drift import drift
from flockmq_operator.events import SIZES, Event, created, describe_change
from flockmq_operator.fewer_cores import (
    core_to_restart_before_others_go,
    core_to_wait_for,
    keep_cores,
    remove_one,
    with_all_cores,
)
from flockmq_operator.hibernation import put_to_sleep, wake_redis_first
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.observe import Observed
from flockmq_operator.order import state_of
from flockmq_operator.problems import NODES, Problem, find_problems
from flockmq_operator.redis_tls import as_made
from flockmq_operator.renewal import Renewal, describe_step, encoded, next_steps
from flockmq_operator.resources import build
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component
from flockmq_operator.restarts import next_restart, redis_to_wait_for
from flockmq_operator.restoring import WAITS, Restoring, next_step
from flockmq_operator.templates import hold_templates, settings_in_use, settings_needed, without_unmade
from flockmq_operator.volumes import keep_claim_templates, requested, resized_claims, shrinking
from flockmq_operator.workloads import served_by, workload

KEPT_KINDS = ("Secret", "PersistentVolumeClaim")
"""Never deleted by a plan: they hold what can't be made again."""


class Plan(NamedTuple):
    create: tuple[Manifest, ...] = ()
    apply: tuple[Manifest, ...] = ()
    delete: tuple[Manifest, ...] = ()
    """Live objects."""
    events: tuple[Event, ...] = ()
    """What to tell once all of it is done."""
    problems: tuple[Problem, ...] = ()
    waiting_for: str = ""
    """What has to happen before the next step."""
    update_pending: bool = False
    """Whether pods are held at an older template (spec.update)."""
    updates: bool = False
    """Whether pods are to be replaced though the spec asks for no others."""
    resizes: bool = False
    """Whether it changes nothing but sizes: numbers of pods, volumes."""
    rolls: frozenset[Component] = frozenset()
    """Whose pod template it changes."""

    patch: tuple[Manifest, ...] = ()
    """What is merged into live objects before anything is applied."""
    paused: str = ""
    """That nothing is done, and what waits (spec.pause)."""
    behind: bool = False
    """Whether anything waits for the pause to end."""

    @property
    def changes(self) -> bool:
        return bool(self.patch or self.create or self.apply or self.delete)


def make_plan(said: Context, observed: Observed, now: datetime, known: Sequence[Problem] = ()) -> Plan:
    """`known`: problems that were found before."""
    context = as_made(said, observed)
    awaited_core = core_to_wait_for(context, observed)
    if awaited_core:
        context = with_all_cores(context, observed)
    context = msgspec.structs.replace(context, served_by=served_by(context, observed))
    desired = build(context)
    wanted = {ref(manifest) for manifest in desired}
    outdated_core = core_to_restart_before_others_go(context, observed)
    going_core = ""
    if outdated_core:
        keep_cores(context, observed, desired)
    elif not context.spec.hibernate:
        going_core = remove_one(context, observed, desired)
    renewal = next_steps(context, observed, desired, now)
    restoring = next_step(context, observed)
    problems = (
        *known,
        *find_problems(said, context, observed, desired),
        *((restoring.problem,) if restoring.problem else ()),
        *renewal.problems,
        *shrinking(context, observed),
    )
    if observed.leftover:
        waiting = f"{len(observed.leftover)} objects of an earlier MqttCluster of this name to be gone"
        return Plan(problems=problems, waiting_for=waiting)
    blocked = frozenset(component for problem in problems for component in problem.blocks)
    unmade, waiting_for = blocked, restoring.waiting_for or redis_to_wait_for(context, observed)
    if restoring.waiting_for:
        unmade |= WAITS
    elif waiting_for:
        unmade |= NODES
    elif awaited_core and not context.spec.hibernate:
        waiting_for = f"core {awaited_core} to be ready before cores are removed"
    elif outdated_core:
        waiting_for = f"core {outdated_core} to know the new number of cores before others are removed"
    else:
        waiting_for = going_core
    kept_parts = blocked
    if context.served_by != context.clients and not next_are_ready(context, observed, now):
        keep_clients(context, observed, desired)
        waiting_for = waiting_for or f"{context.clients}s to be ready for clients"
        if context.clients == "replicant" and not state_of(context, observed, "core", now).broken:
            kept_parts |= {"core"}
    if context.spec.hibernate:
        waiting_for = put_to_sleep(context, observed, desired) or waiting_for
    else:
        waiting_for = wake_redis_first(context, observed, desired) or waiting_for
    held = hold_templates(context, observed, desired, kept_parts, now)
    select_by_label(context, observed, desired)
    keep_ports(context, observed, desired, held.unknown)
    lead_to_renamed(context, observed, desired)
    admit_ports_in_use(context, observed, desired)
    keep_claim_templates(observed, desired)
    kept = held.unknown.union(restoring.kept, *(problem.keeps for problem in problems))
    jobs: tuple[Component, ...] = ("report", "backup", "restore")
    kept |= {workload(context, component) for component in jobs if component in blocked}
    kept |= {Ref("CronJob", context.ingest)} if "report" in blocked else set()
    desired = settings_needed(without_unmade(desired, observed, unmade))
    desired = [manifest for manifest in desired if ref(manifest) not in kept]
    plan = changes(context, observed, desired, renewal)
    plan = finished(context, observed, plan, wanted | restoring.kept, blocked, now)
    plan = with_restore(plan, restoring, blocked)._replace(
        problems=problems,
        waiting_for=waiting_for or held.waiting_for,
        update_pending=held.update_pending,
        updates=held.updates,
    )
    return paused(plan) if context.spec.pause else plan


def with_restore(plan: Plan, restoring: Restoring, blocked: frozenset[Component]) -> Plan:
    if "restore" in blocked:
        return plan
    return plan._replace(
        create=(*plan.create, *restoring.create),
        delete=(*plan.delete, *restoring.delete),
        events=(*plan.events, *restoring.events),
    )


def paused(plan: Plan) -> Plan:
    """What there would be to do, told and not done."""
    names = [*map(ref, plan.patch), *map(ref, plan.create), *map(ref, plan.apply), *map(ref, plan.delete)]
    waits = f": {', '.join(map(str, dict.fromkeys(names)))}" if names else ""
    sentence = f"spec.pause: the operator only reports; {len(names)} changes wait{waits}"
    return Plan(problems=plan.problems, update_pending=plan.update_pending, paused=sentence, behind=bool(names))


def changes(context: Context, observed: Observed, desired: list[Manifest], renewal: Renewal) -> Plan:
    """What makes and changes objects, so that they are as desired."""
    secrets = [manifest for manifest in desired if manifest["kind"] == "Secret"]
    for secret in secrets:
        if step := renewal.steps.get(ref(secret)):
            secret["data"] = encoded(step.files)
    create = tuple(secret for secret in secrets if ref(secret) not in observed.objects)
    apply = [secret for secret in secrets if ref(secret) in renewal.steps and secret not in create]
    events = [describe_step(context, ref(secret), renewal.steps[ref(secret)]) for secret in apply]
    resizes = not create and not apply
    rolls: set[Component] = set()
    unchanged = observed.status.get("observedGeneration") == context.cluster.generation
    for manifest in desired:
        live = observed.objects.get(ref(manifest))
        if manifest["kind"] == "Secret":
            continue
        if live is None:
            apply.append(manifest)
            resizes = False
        elif manifest["kind"] != "PersistentVolumeClaim" and (paths := drift(manifest, live)):
            apply.append(manifest)
            events.append(describe_change(manifest, live, paths, mended=unchanged))
            resizes = resizes and SIZES.issuperset(paths)
            rolls |= rolled_by(context, manifest, paths)
    grown = resized_claims(context, observed, desired)
    for claim in grown:
        sentence = f"Resizing {ref(claim)} to {requested(claim)}"
        events.append(Event("Normal", "VolumeResized", sentence, (ref(claim),)))
    made = [ref(manifest) for manifest in (*create, *apply) if ref(manifest) not in observed.objects]
    if made:
        events.insert(0, created(made))
    adopt = [adopted(secret, observed) for secret in secrets if ref(secret) in observed.orphans]
    for secret in adopt:
        sentence = f"Adopted {ref(secret)}, which was there without an owner"
        events.append(Event("Normal", "Adopted", sentence, (ref(secret),)))
    return Plan(
        create,
        (*apply, *grown),
        (),
        tuple(events),
        patch=(*adopt, *leaves_rolling_update(desired, observed)),
        resizes=resizes and not adopt,
        rolls=frozenset(rolls),
    )


def leaves_rolling_update(desired: list[Manifest], observed: Observed) -> Iterator[Manifest]:
    """The StatefulSets of an earlier operator that Kubernetes rolls out itself. What it has filled in for that stays
    where another strategy is applied, and is refused beside it."""
    for manifest in desired:
        live = observed.objects.get(ref(manifest))
        strategy = manifest.get("spec", {}).get("updateStrategy")
        if live and strategy == {"type": "OnDelete"} and "rollingUpdate" in live["spec"].get("updateStrategy", {}):
            metadata = {key: live["metadata"][key] for key in ("name", "namespace", "uid")}
            spec = {"updateStrategy": {**strategy, "rollingUpdate": None}}
            yield {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata, "spec": spec}


def adopted(secret: Manifest, observed: Observed) -> Manifest:
    """The live object with the metadata that it lacks."""
    metadata = {**secret["metadata"], "uid": observed.objects[ref(secret)]["metadata"]["uid"]}
    return {"apiVersion": secret["apiVersion"], "kind": secret["kind"], "metadata": metadata}


def rolled_by(context: Context, manifest: Manifest, paths: list[str]) -> set[Component]:
    if not any(path.startswith("spec.template") for path in paths):
        return set()
    components: tuple[Component, ...] = ("core", "replicant", "redis")
    return {component for component in components if workload(context, component) == ref(manifest)}


def finished(
    context: Context,
    observed: Observed,
    plan: Plan,
    wanted: set[Ref],
    blocked: frozenset[Component],
    now: datetime,
) -> Plan:
    """`plan`, and what is deleted: what the spec asks for no longer, and a pod that is restarted."""
    wanted = wanted | settings_in_use(observed)
    delete = [live for name, live in observed.objects.items() if name not in wanted and name.kind not in KEPT_KINDS]
    events = list(plan.events)
    for live in delete:
        sentence = f"Deleted {ref(live)}: the spec asks for it no longer"
        events.append(Event("Normal", "Deleted", sentence, (ref(live),)))
    if restart := next_restart(context, observed, {ref(manifest) for manifest in plan.apply}, blocked, now):
        delete.append(restart.pod)
        events.append(restart.event)
    resizes = plan.resizes and not delete and bool(plan.apply)
    return plan._replace(delete=tuple(delete), events=tuple(events), resizes=resizes)
