"""`kubectl flockmq rollback`: back to the last spec under which the cluster was whole, as the operator has kept it
(`revisions`), once somebody has seen what changes."""

import difflib
import json
import sys
from collections.abc import Callable, Iterator

from flockmq_operator.kube import Kube, Refused
from flockmq_operator.kubectl.failed import WRONG_ARGUMENTS, Failed
from flockmq_operator.kubectl.status import cluster
from flockmq_operator.manifest import Manifest
from flockmq_operator.revisions import digest_of, restored, revisions_of
from flockmq_operator.spec import SpecError, decode

Say = Callable[[str], None]


async def rollback(kube: Kube, namespace: str, name: str, say: Say, agree: Callable[[], bool]) -> None:
    """Raises Failed, Refused and Unreachable."""
    body = await cluster(kube, namespace, name)
    where = f"MqttCluster {name} in namespace {namespace}"
    revision = former(body, await revisions_of(kube, body))
    if revision is None:
        raise Failed(
            f"{where}: the operator has kept no other spec under which it was Ready and Available: edit its spec"
        )
    spec = restored(revision["data"]["spec"], body["spec"])
    say(f"{where}: from generation {body['metadata']['generation']} to the spec of generation {revision['revision']}:")
    for line in (*changes(body["spec"], spec, "spec"), *notes(body["spec"], spec)):
        say(line)
    if not agree():
        raise Failed(f"{where} stays as it is")
    await replace(kube, body, spec, where)
    say(f"{where} has that spec now; the operator rolls it out: kubectl flockmq status {name} --namespace {namespace}")


def former(body: Manifest, kept: list[Manifest]) -> Manifest | None:
    """The newest that isn't the MqttCluster's spec of now; None: there is none."""
    metadata = body["metadata"]
    try:
        name = f"{metadata['name']}-{digest_of(decode(body).spec)}"
    except SpecError:  # it may well be why somebody goes back
        name = ""
    return next((revision for revision in kept if revision["metadata"]["name"] != name), None)


async def replace(kube: Kube, seen: Manifest, spec: Manifest, where: str) -> None:
    """Unless the spec isn't what somebody has seen any more. Raises Failed, Refused and Unreachable."""
    changed = Failed(f"{where} was changed in the meantime, and stays as it is: look again, with the same command")
    metadata = seen["metadata"]
    body = await cluster(kube, metadata["namespace"], metadata["name"])
    if any(body["metadata"][key] != metadata[key] for key in ("uid", "generation")):
        raise changed
    try:
        await kube.replace(body | {"spec": spec})
    except Refused as refused:
        if refused.status == 409:
            raise changed from None
        raise


def agree_at_terminal() -> bool:
    """Raises Failed where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise Failed("nobody can be asked here whether to apply it: say --yes", WRONG_ARGUMENTS)
    try:
        return input("Apply it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


# What changes


def changes(old: object, new: object, path: str) -> Iterator[str]:
    """A line for each field that changes; for each line of a text of several."""
    if old == new:
        return
    match old, new:
        case dict(), dict():
            for key in sorted({*old, *new}):
                yield from changes(old.get(key), new.get(key), f"{path}.{key}")
        case list(), list() if len(old) == len(new):
            for number, (before, after) in enumerate(zip(old, new, strict=True)):
                yield from changes(before, after, f"{path}[{number}]")
        case str() | None, str() | None if "\n" in f"{old}{new}":
            yield f"  {path}:"
            lines = difflib.ndiff((old or "").splitlines(), (new or "").splitlines())
            yield from (f"    {line}" for line in lines if line[0] in "+-")
        case _:
            yield f"  {path}: {written(old)} → {written(new)}"


def written(value: object) -> str:
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)


def notes(old: Manifest, new: Manifest) -> Iterator[str]:
    """What may not go back."""
    if old.get("image") != new.get("image"):
        yield "! an older release can't be started any more once the cluster has settled on a newer: docs/upgrades.md"
    if any(sizes(old, part) != sizes(new, part) for part in ("cores", "redis", "report")):
        yield "! a volume that has grown doesn't shrink: the operator will say so (Stalled)"


def sizes(spec: Manifest, part: str) -> object:
    return ((spec.get(part) or {}).get("storage") or {}).get("size")
