"""What of a spec no object can be made of (`spec.config` that isn't TOML, say), and the spec without it. Pure.

The CRD's schema can't refuse it. Pods that would read it stay as they are; all else is made of what is right.
"""

from msgspec.structs import replace

from flockmq_operator.problems import NODES, Problem
from flockmq_operator.resources import build
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component
from flockmq_operator.spec import Authentication, Authorization, PodTemplate, Spec, SpecError

Part = tuple[str, dict[str, object], frozenset[Component]]
"""The field of the spec, what stands for it instead, and whose pods read it."""


def without_what_is_wrong(context: Context) -> tuple[Context, list[Problem]]:
    """Raises SpecError where that isn't enough."""
    problems: list[Problem] = []
    while True:
        try:
            build(context)
        except SpecError as error:
            found = [part for part in parts(context.spec) if str(error).startswith(part[0])]
            if not found or len(problems) > len(parts(context.spec)):
                raise
            _, instead, blocked = found[0]
            problems.append(Problem("InvalidSpec", str(error), blocked))
            spec = replace(context.spec, **instead)
            context = replace(context, cluster=replace(context.cluster, spec=spec))
        else:
            return context, problems


def parts(spec: Spec) -> list[Part]:
    return [
        ("spec.cores.podTemplate", {"cores": replace(spec.cores, pod_template=PodTemplate())}, frozenset({"core"})),
        (
            "spec.replicants.podTemplate",
            {"replicants": replace(spec.replicants, pod_template=PodTemplate())},
            frozenset({"replicant"}),
        ),
        ("spec.redis.podTemplate", {"redis": replace(spec.redis, pod_template=PodTemplate())}, frozenset({"redis"})),
        ("spec.config", {"config": ""}, NODES),
        ("spec.authentication", {"authentication": Authentication(chain=())}, NODES),
        ("spec.authorization", {"authorization": Authorization()}, NODES),
    ]
