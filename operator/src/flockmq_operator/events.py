"""What happened, in a sentence: events that are told on the MqttCluster. Pure."""

from typing import Literal, NamedTuple

from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.workloads import WORKLOADS

MESSAGE_MAX = 1000
"""Characters of an event's sentence; the API server takes 1024 bytes."""
SIZES = frozenset({"spec.replicas", "spec.minReplicas"})
"""The paths of numbers of pods."""


class Event(NamedTuple):
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    about: tuple[Ref, ...] = ()
    """The objects that were changed: where Kubernetes refused it, there is nothing to tell."""


def created(names: list[Ref]) -> Event:
    return Event("Normal", "Created", f"Created {', '.join(map(str, names))}", tuple(names))


def without_refused(events: tuple[Event, ...], refused: set[Ref]) -> list[Event]:
    """What is true of `events` though Kubernetes refused to change the objects `refused`."""
    told: list[Event] = []
    for event in events:
        done = [name for name in event.about if name not in refused]
        if len(done) == len(event.about):
            told.append(event)
        elif done:
            told.append(created(done))  # no other event is about several objects
    return [event._replace(message=event.message[:MESSAGE_MAX]) for event in told]


def describe_change(manifest: Manifest, live: Manifest, paths: list[str], *, mended: bool) -> Event:
    """`mended`: the spec is as it was, so somebody else changed the object."""
    what, about = str(ref(manifest)), (ref(manifest),)
    spec, old = manifest.get("spec", {}), live.get("spec") or {}
    if "spec.replicas" in paths:
        return Event("Normal", "Scaled", f"Scaled {what} from {old.get('replicas')} to {spec['replicas']}", about)
    if manifest["kind"] in WORKLOADS and any(path.startswith("spec.template") for path in paths):
        return Event("Normal", "Rolling", f"Rolling out {what}: {', '.join(visible(paths))} changed", about)
    if manifest["kind"] == "HorizontalPodAutoscaler" and paths == ["spec.minReplicas"]:
        sentence = f"from {old.get('minReplicas')} to {spec['minReplicas']}"
        return Event("Normal", "FloorMoved", f"The fewest replicants that connections ask for went {sentence}", about)
    changed = ", ".join(visible(paths))
    follows_pods = "spec.selector" in paths or paths == ["spec.ingress"]  # of the clients' Service; of a NetworkPolicy
    if mended and not follows_pods:
        return Event("Normal", "Mended", f"{what} wasn't as the MqttCluster says; mended {changed}", about)
    return Event("Normal", "Updated", f"Updated {what}: {changed}", about)


def visible(paths: list[str]) -> list[str]:
    """Without the operator's own notes, unless nothing else is left to name."""
    return [path for path in paths if not path.startswith("metadata.annotations")] or ["its annotations"]
