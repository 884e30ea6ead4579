"""Pod templates stay until the spec changes, and while something keeps a part's pods as they are. Pure."""

import json
from typing import NamedTuple

from flockmq_operator.events import WORKLOADS
from flockmq_operator.manifest import Manifest, Ref, annotation, ref
from flockmq_operator.observe import Observed
from flockmq_operator.resources import config
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, CONFIG_DIGEST, POD_TEMPLATE, PODS_DIGEST, Component
from flockmq_operator.spec import pods_digest


class Made(NamedTuple):
    """What the operator gave a workload when it last applied it."""

    digest: str
    """Of the spec that the template was made for."""
    template: Manifest


def hold_templates(
    context: Context, observed: Observed, desired: list[Manifest], blocked: frozenset[Component]
) -> bool:
    """Give workloads in `desired` the template they have, where the spec asks for no other or they are `blocked`;
    whether any of the former differs.

    A held workload keeps its configuration files too: an older broker may not know a newer operator's settings.
    """
    config_map = next(manifest for manifest in desired if manifest["kind"] == "ConfigMap")
    live_config = observed.objects.get(ref(config_map), {}).get("data") or {}
    pending = False
    for manifest in desired:
        if manifest["kind"] not in WORKLOADS:
            continue
        component: Component = manifest["metadata"]["labels"][COMPONENT]
        live = observed.objects.get(ref(manifest))
        made = last_made(live) if live else None
        digest = pods_digest(context.spec, component)
        fresh = manifest["spec"]["template"]
        is_upgrade = bool(made and made.digest == digest and context.spec.update == "OnSpecChange")
        if live and made and (is_upgrade or component in blocked):
            hold(manifest, live, made, component in blocked)
            if made.template != fresh:
                pending = pending or component not in blocked
                if config.digest(component, live_config) == annotation(made.template, CONFIG_DIGEST):
                    config_map["data"] |= config.files_of(component, live_config)
            digest = made.digest
        note(manifest, digest)
    return pending


def hold(manifest: Manifest, live: Manifest, made: Made, blocked: bool) -> None:
    manifest["spec"]["template"] = made.template
    if blocked and manifest["kind"] == "StatefulSet":  # majorities are of a number that the template says
        manifest["spec"]["replicas"] = live["spec"]["replicas"]


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
            manifest["kind"] in (*WORKLOADS, "CronJob")
            and manifest["metadata"]["labels"][COMPONENT] in components
            and ref(manifest) not in observed.objects
        )
    ]


def workload(context: Context, component: Component) -> Ref:
    names = {
        "core": Ref("StatefulSet", context.core),
        "replicant": Ref("Deployment", context.replicant),
        "redis": Ref("StatefulSet", context.redis),
        "report": Ref("CronJob", context.report),
    }
    return names[component]
