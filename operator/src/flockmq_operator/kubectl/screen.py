"""One MqttCluster on one screen: what is wrong, what runs, its pods, its alarms. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from flockmq_operator import report_headline
from flockmq_operator.kubectl.advice import Finding, findings
from flockmq_operator.kubectl.ctl import Silent, Told, component_of
from flockmq_operator.kubectl.pods import node_of, pod_findings, pod_lines
from flockmq_operator.kubectl.text import age, counted, shown, table
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.labels import Component
from flockmq_operator.spec import Autoscaling, Cores, Redis, Replicants
from flockmq_operator.status.workload import pod_there
from flockmq_operator.workloads import CALLED

PARTS: tuple[tuple[Component, str], ...] = (("core", "flockmq"), ("replicant", "flockmq"), ("redis", "redis"))
"""(part, its container whose image is shown)."""
ALARMS_MAX = 10
"""Rows of alarms, the oldest first."""


def screen(body: Manifest, pods: Sequence[Manifest], told: Told | Silent, now: datetime) -> list[str]:
    """The lines. `body`: the MqttCluster; `pods`: of cores, replicants and Redis."""
    return [
        *about(body, now),
        *told_lines(told, now),
        "",
        *part_lines(body, pods, told),
        "",
        *pod_lines(pods, told, now),
        *bulleted(pod_findings(pods, now)),
    ]


def about(body: Manifest, now: datetime) -> Iterator[str]:
    """What its conditions say."""
    metadata, found = body["metadata"], findings(body, now)
    yield f"MqttCluster {metadata['name']} in namespace {metadata['namespace']}: {found.headline}"
    if endpoint := (body.get("status") or {}).get("endpoint"):
        yield f"  endpoint {endpoint}, generation {metadata['generation']}"
    if told := report_headline.sentence((body.get("status") or {}).get("report", {})):
        yield f"  report of {shown(told)}"
    yield from bulleted(found.wrong)
    yield from (f"  now: {work}" for work in found.working)
    if found.fine:
        yield f"  fine: {', '.join(found.fine)}"


def bulleted(items: Sequence[Finding]) -> Iterator[str]:
    for item in items:
        yield f"  ! {item.text}"
        if item.todo:
            yield f"    → {item.todo}"


def part_lines(body: Manifest, pods: Sequence[Manifest], told: Told | Silent) -> list[str]:
    """Cores, replicants and Redis: how many are ready of how many, and what they run."""
    rows = []
    for component, container in PARTS:
        of_part = [pod for pod in pods if component_of(pod) == component]
        count = wanted(body.get("spec") or {}, component)
        if count is None:
            rows.append(["Redis", "-", "-", "external"])
            continue
        ready = sum(map(pod_there, of_part))
        versions = [str(node["version"]) for pod in of_part if "version" in (node := node_of(pod, told))]
        images = [image for pod in of_part if (image := image_of(pod, container))]
        rows.append([CALLED[component], f"{ready}/{count}", counted(sorted(versions)), counted(sorted(images))])
    return table(("PART", "READY", "VERSION", "IMAGE"), rows)


def wanted(spec: Manifest, component: Component) -> int | None:
    """How many pods the spec asks for; None: somebody else runs it."""
    part = spec.get({"core": "cores", "replicant": "replicants"}.get(component, component)) or {}
    if component == "redis" and part.get("external"):
        return None
    if spec.get("hibernate"):
        return 0
    if component == "redis":
        return int(part.get("replicas", Redis().replicas))
    if component == "core":
        return int(part.get("replicas", Cores().replicas))
    count = int(part.get("replicas", Replicants().replicas))
    autoscaling = spec.get("autoscaling")
    return max(count, autoscaling.get("minReplicas", LEAST)) if autoscaling else count


LEAST = Autoscaling(max_replicas=1).min_replicas


def image_of(pod: Manifest, container: str) -> str:
    """Empty: it has no such container."""
    images = [item["image"] for item in pod["spec"].get("containers", ()) if item["name"] == container]
    return images[0] if images else ""


def told_lines(told: Told | Silent, now: datetime) -> Iterator[str]:
    """What the broker says of itself: alarms, slots without an owner; or that no node of it answers."""
    if isinstance(told, Silent):
        yield "  ! NO NODE ANSWERS: what is below is what Kubernetes knows; connections, lag and alarms aren't known"
        yield from (f"    {shown(why)}" for why in told.why)
        if not told.why:
            yield "    no core runs, and no replicant is ready"
        return
    if told.is_stale:
        yield f"  ! the tables of {told.by}, which tells what is below, may be stale"
    if told.unowned_slots:
        yield f"  ! {told.unowned_slots} slots of client ids have no owner: their sessions wait for a core"
    connections = sum(row.get("connections", 0) for row in told.nodes.values())
    yield f"  connections: {connections}, alarms: {len(told.alarms) or 'none'}; told by {told.by}"
    if told.alarms:
        yield ""
        yield from table(("ALARM", "FOR", "TEXT"), [alarm_row(alarm, now) for alarm in told.alarms[:ALARMS_MAX]])
    if len(told.alarms) > ALARMS_MAX:
        yield f"and {len(told.alarms) - ALARMS_MAX} more: kubectl exec {told.by} -- flockmq ctl alarms list"


def alarm_row(alarm: Manifest, now: datetime) -> list[str]:
    since = datetime.fromisoformat(alarm["since"])
    return [alarm["name"], age((now - since).total_seconds()), alarm["text"]]
