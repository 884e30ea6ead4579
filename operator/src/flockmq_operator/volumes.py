"""Volumes: they grow by their claims, for a StatefulSet's claim templates can't be changed. Pure."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest, ref
from flockmq_operator.observe import Observed
from flockmq_operator.problems import Problem
from flockmq_operator.quantity import quantity
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT


def keep_claim_templates(observed: Observed, desired: list[Manifest]) -> None:
    """Give StatefulSets in `desired` the claim templates that they have."""
    for manifest in desired:
        live = observed.objects.get(ref(manifest))
        if manifest["kind"] != "StatefulSet" or live is None:
            continue
        for template, existing in zip(
            manifest["spec"]["volumeClaimTemplates"], live["spec"]["volumeClaimTemplates"], strict=True
        ):
            template["metadata"]["labels"] = existing["metadata"]["labels"]
            template["spec"] = {
                key: existing["spec"][key]
                for key in ("accessModes", "resources", "storageClassName")
                if key in existing["spec"]
            }


def claims_with_size(context: Context, observed: Observed) -> list[tuple[Manifest, str]]:
    """Each volume claim with the size that the spec asks for."""
    sizes = {
        "core": context.spec.cores.storage.size,
        "redis": context.spec.redis.storage.size,
        "report": context.spec.report.storage.size,
    }
    own = [item for name, item in observed.objects.items() if name.kind == "PersistentVolumeClaim"]
    labelled = [(claim, claim["metadata"]["labels"].get(COMPONENT)) for claim in (*own, *observed.claims)]
    return [(claim, sizes[component]) for claim, component in labelled if component in sizes]


def growing_claims(context: Context, observed: Observed) -> list[Manifest]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim["metadata"]["name"], "namespace": context.namespace},
            "spec": {"resources": {"requests": {"storage": size}}},
        }
        for claim, size in claims_with_size(context, observed)
        if quantity(size) > quantity(requested(claim))
    ]


def requested(claim: Manifest) -> str:
    size: str = claim["spec"]["resources"]["requests"]["storage"]
    return size


def shrinking(context: Context, observed: Observed) -> Iterator[Problem]:
    """A transition rule of the CRD refuses this; it can't see a part of the spec that is removed and added again."""
    for claim, size in claims_with_size(context, observed):
        if quantity(size) < quantity(requested(claim)):
            yield Problem(
                "VolumeCannotShrink",
                f"{ref(claim)} in namespace {context.namespace} has {requested(claim)}, the spec asks for {size}: "
                f"volumes only grow; set its storage.size to {requested(claim)} or more",
            )
            return
