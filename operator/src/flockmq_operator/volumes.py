"""Volumes: they grow by their claims, for a StatefulSet's claim templates can't be changed. Pure."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest, Ref, ref
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
    }
    if context.spec.report.enabled and not context.spec.report.storage.s3:
        sizes["report"] = context.spec.report.storage.size
    own = [item for name, item in observed.objects.items() if name.kind == "PersistentVolumeClaim"]
    labelled = [(claim, claim["metadata"]["labels"].get(COMPONENT)) for claim in (*own, *observed.claims)]
    return [(claim, sizes[component]) for claim, component in labelled if component in sizes]


def resized_claims(context: Context, observed: Observed, desired: list[Manifest]) -> list[Manifest]:
    """Those that grow, and those whose growth is taken back before they had it."""
    whole = {ref(manifest): manifest for manifest in desired if manifest["kind"] == "PersistentVolumeClaim"}
    resized = []
    for claim, size in claims_with_size(context, observed):
        if quantity(size) > quantity(requested(claim)) or is_taken_back(claim, size):
            only_size = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim["metadata"]["name"], "namespace": context.namespace},
                "spec": {"resources": {"requests": {"storage": size}}},
            }
            # What isn't applied any more is given up: the owner too, of a claim that the operator made.
            resized.append(whole.get(ref(claim), only_size))
    return resized


def requested(claim: Manifest) -> str:
    size: str = claim["spec"]["resources"]["requests"]["storage"]
    return size


def capacity(claim: Manifest) -> str:
    """What the volume has; while that isn't known, what it was asked for."""
    size: str = claim.get("status", {}).get("capacity", {}).get("storage", requested(claim))
    return size


def is_taken_back(claim: Manifest, size: str) -> bool:
    return quantity(capacity(claim)) < quantity(size) < quantity(requested(claim))


def shrinking(context: Context, observed: Observed) -> Iterator[Problem]:
    for claim, size in claims_with_size(context, observed):
        if quantity(size) >= quantity(requested(claim)) or is_taken_back(claim, size):
            continue
        has, asked = capacity(claim), requested(claim)
        under_way = f", which is growing to {asked}," if quantity(has) < quantity(asked) else ""
        mend = f"to more than {has}" if under_way else f"to {asked} or more"
        yield Problem(
            "VolumeCannotShrink",
            f"{ref(claim)} in namespace {context.namespace} has {has}{under_way} and the spec asks for {size}: "
            f"volumes only grow; set its storage.size {mend}",
        )
        return


def cannot_grow(claim: Ref, namespace: str, sentence: str) -> Problem:
    return Problem(
        "VolumeCannotGrow",
        f"{claim} in namespace {namespace} can't grow: {sentence}: set its storage.size back to what it was, or have "
        "its StorageClass allow it (allowVolumeExpansion)",
    )
