"""Carrying a plan out: patches, creations, server-side applies, deletions, in the plan's order.

One refused object doesn't keep the others from being applied, but for what makes pods that need it; what the API server
said of it is the result.
"""

from typing import NamedTuple

from flockmq_operator.kube import Kube, Refused
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.observe import Observed
from flockmq_operator.plan import Plan
from flockmq_operator.problems import Problem
from flockmq_operator.resources.labels import COMPONENT, Component
from flockmq_operator.volumes import cannot_grow
from flockmq_operator.workloads import needs, template_of


class Refusal(NamedTuple):
    what: Ref
    component: Component | None
    """Whose pods stay as they are: it is what makes them."""
    message: str
    """The API server's sentence."""


async def carry_out(kube: Kube, plan: Plan) -> list[Refusal]:
    """Raises Unreachable; what is done by then is seen, and left alone, by the next plan."""
    refusals: list[Refusal] = []
    steps = [(kube.patch, plan.patch), (kube.create, plan.create), (kube.apply, plan.apply), (kube.delete, plan.delete)]
    for act, manifests in steps:
        for manifest in manifests:
            template = template_of(manifest) if act in (kube.create, kube.apply) else None
            component = manifest["metadata"]["labels"][COMPONENT] if template else None
            lacking = {refusal.what for refusal in refusals}.intersection(needs(template["spec"]) if template else ())
            try:
                if lacking:
                    raise Refused(0, f"its pods need {' and '.join(sorted(map(str, lacking)))}")
                await act(manifest)
            except Refused as refused:
                refusals.append(Refusal(ref(manifest), component, " ".join(str(refused).split())))
    return refusals


def refusal_problems(refusals: list[Refusal], observed: Observed, namespace: str) -> list[Problem]:
    there = {*observed.objects, *map(ref, observed.claims)}
    claims = [refusal for refusal in refusals if refusal.what in there and refusal.what.kind == "PersistentVolumeClaim"]
    problems = [cannot_grow(refusal.what, namespace, refusal.message) for refusal in claims[:1]]
    others = [refusal for refusal in refusals if refusal not in claims]
    if others:
        said = "; ".join(f"{refusal.what}: {refusal.message}" for refusal in others)
        sentence = f"Kubernetes refused, in namespace {namespace}: {said}. Mend the spec or what refuses it"
        blocked = frozenset(refusal.component for refusal in others if refusal.component)
        problems.append(Problem("ApplyRefused", sentence, blocked))
    return problems


def status_manifest(body: Manifest, status: Manifest) -> Manifest:
    """What is applied to the status subresource of the MqttCluster `body`."""
    metadata = body["metadata"]
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "status": status,
    }
