"""Pod templates stay until the spec changes, while something keeps a part's pods as they are, and until it is their
turn. Pure."""

import json
from datetime import datetime
from typing import NamedTuple

from flockmq_operator.manifest import Manifest, Ref, annotation, ref
from flockmq_operator.observe import Observed
from flockmq_operator.order import whose_turn
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, POD_TEMPLATE, PODS_DIGEST, Component
from flockmq_operator.spec import pods_digest
from flockmq_operator.workloads import WORKLOADS, settings_of, template_of


class Made(NamedTuple):
    """What the operator gave a workload when it last applied it."""

    digest: str
    """Of the spec that the template was made for."""
    template: Manifest


class Held(NamedTuple):
    update_pending: bool
    """Whether a newer operator would make other pods."""
    updates: bool
    """Whether the part whose turn it is takes what a newer operator makes, and no edit."""
    waiting_for: str
    """What has to happen before the next part takes its new template."""
    unknown: frozenset[Ref]
    """Workloads whose template has to stay, and which it is can't be known any more: they are left alone."""


def hold_templates(
    context: Context, observed: Observed, desired: list[Manifest], blocked: frozenset[Component], now: datetime
) -> Held:
    """Give workloads in `desired` the template they have, where the spec asks for no other, they are `blocked`, or it
    isn't their turn. A held template names its own settings: an older broker may not know a newer operator's."""
    changes = {change.component: change for manifest in desired if (change := change_of(context, observed, manifest))}
    upgrades = {component for component, change in changes.items() if change.is_upgrade}
    differs = {component for component, change in changes.items() if change.differs}
    turn = whose_turn(context, observed, differs - upgrades - blocked, blocked, now)
    for component, change in changes.items():
        is_kept = component in blocked or (component in differs - upgrades and component != turn.component)
        if is_kept or component in upgrades:
            hold(change, is_kept)
        note(change.manifest, change.made.digest if change.made and is_kept else change.digest)
    unknown = frozenset(
        ref(change.manifest) for name, change in changes.items() if name in blocked and change.live and not change.made
    )
    updates = turn.component is not None and changes[turn.component].is_own
    return Held(bool(differs & upgrades - blocked), updates, turn.waiting_for, unknown)


class Change(NamedTuple):
    """From what the operator gave a workload last to what it would give it."""

    component: Component
    manifest: Manifest
    digest: str
    """Of the spec that `manifest` is made for."""
    live: Manifest | None
    made: Made | None
    is_own: bool
    """Whether the spec asks for no other pods: what differs is the operator's own."""
    is_upgrade: bool
    """Whether it is, and has to wait: for an edit, or for its turn."""

    @property
    def differs(self) -> bool:
        return self.made is not None and self.made.template != self.manifest["spec"]["template"]


def change_of(context: Context, observed: Observed, manifest: Manifest) -> Change | None:
    """None: it is no workload."""
    if manifest["kind"] not in WORKLOADS:
        return None
    component: Component = manifest["metadata"]["labels"][COMPONENT]
    live = observed.objects.get(ref(manifest))
    made = last_made(live) if live else None
    digest = pods_digest(context.spec, component)
    is_own = made is not None and made.digest == digest
    is_upgrade = is_own and (context.spec.update == "OnSpecChange" or not context.may_update)
    if made and not settings_of(made.template) <= observed.objects.keys():  # such a pod couldn't start any more
        is_upgrade = is_upgrade and made.template == manifest["spec"]["template"]
    return Change(component, manifest, digest, live, made, is_own, is_upgrade)


def hold(change: Change, is_kept: bool) -> None:
    if change.live is None or change.made is None:
        return
    spec = change.manifest["spec"]
    spec["template"] = change.made.template
    falls_asleep = spec["replicas"] == 0
    if is_kept and change.manifest["kind"] == "StatefulSet" and not falls_asleep:
        spec["replicas"] = change.live["spec"]["replicas"]  # majorities are of a number that the template says


def note(manifest: Manifest, digest: str) -> None:
    manifest["metadata"]["annotations"] = {
        PODS_DIGEST: digest,
        POD_TEMPLATE: json.dumps(manifest["spec"]["template"], sort_keys=True, separators=(",", ":")),
    }


def last_made(live: Manifest) -> Made | None:
    """None: it can't be known any more."""
    digest = annotation(live, PODS_DIGEST)
    try:
        template = json.loads(annotation(live, POD_TEMPLATE) or "")
    except ValueError:
        return None
    return Made(digest, template) if digest and isinstance(template, dict) and "spec" in template else None


def without_unmade(desired: list[Manifest], observed: Observed, components: frozenset[Component]) -> list[Manifest]:
    """`desired` without the workloads of `components` that aren't there."""
    return [
        manifest
        for manifest in desired
        if not (
            manifest["kind"] in (*WORKLOADS, "CronJob", "Job")
            and manifest["metadata"]["labels"][COMPONENT] in components
            and ref(manifest) not in observed.objects
        )
    ]


def settings_needed(desired: list[Manifest]) -> list[Manifest]:
    """`desired` without the ConfigMaps that none of its pods name."""
    templates = [template for manifest in desired if (template := template_of(manifest))]
    named = frozenset[Ref]().union(*map(settings_of, templates))
    return [manifest for manifest in desired if manifest["kind"] != "ConfigMap" or ref(manifest) in named]


def settings_in_use(observed: Observed) -> frozenset[Ref]:
    """ConfigMaps that pods name, or what would make pods."""
    makers = [*observed.replica_sets, *observed.jobs, *observed.objects.values()]
    templates = [template for manifest in makers if (template := template_of(manifest))]
    pods = [*observed.core_pods, *observed.redis_pods, *observed.replicant_pods]
    return frozenset[Ref]().union(*map(settings_of, (*templates, *pods)))
