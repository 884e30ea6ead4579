"""The table of pods, and what is said of those that aren't ready."""

from datetime import UTC, datetime

from flockmq_operator.kubectl.ctl import Silent, Told
from flockmq_operator.kubectl.pods import REPLICANTS_MAX, TROUBLES_MAX, pod_findings, pod_lines
from flockmq_operator.manifest import Manifest
from unit.operator.kubectl.harness import part, waiting

NOW = datetime(2026, 11, 26, 3, tzinfo=UTC)
SILENT = Silent(())


def names(pods: list[Manifest], told: Told | Silent = SILENT) -> list[str]:
    return [line.split()[0] for line in pod_lines(pods, told, NOW)]


def test_cores_come_first_by_number_then_replicants_then_redis() -> None:
    pods = [part("demo-redis-0", "redis"), part("demo-replicant-a", "replicant")]
    pods += [part(f"demo-core-{number}", "core") for number in (10, 9)]
    assert names(pods) == ["POD", "demo-core-9", "demo-core-10", "demo-replicant-a", "demo-redis-0"]


def test_of_many_replicants_those_that_are_not_ready_are_shown_and_the_others_summed_up() -> None:
    pods = [part(f"demo-replicant-{number:03}", "replicant") for number in range(REPLICANTS_MAX + 20)]
    pods[-1] = waiting(pods[-1])
    nodes = {pod["metadata"]["name"]: {"state": "ready", "connections": 5, "leads": False} for pod in pods}
    told = Told("demo-core-0", nodes, {}, [], 0, is_stale=False)
    lines = list(pod_lines(pods, told, NOW))
    assert len(lines) == REPLICANTS_MAX + 2
    assert lines[-2].startswith(pods[-1]["metadata"]["name"])
    assert lines[-1] == "and 20 more replicants, 0 of them not ready, 100 connections"


def test_a_pod_that_waits_for_a_machine_says_why_and_where_to_look() -> None:
    pending = part("demo-core-0", "core")
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    pending["status"] = {"phase": "Pending", "conditions": [unscheduled]}
    del pending["spec"]["nodeName"]
    (found,) = pod_findings([pending], NOW)
    assert found.text == "demo-core-0 can't be scheduled: 0/3 nodes are available"
    assert found.todo == "kubectl describe pod demo-core-0 --namespace fleet"
    assert "Pending" in list(pod_lines([pending], SILENT, NOW))[1]


def test_a_container_that_never_ran_has_no_log() -> None:
    (found,) = pod_findings([waiting(part("demo-core-0", "core"), "ImagePullBackOff", 0)], NOW)
    assert found.todo == "kubectl describe pod demo-core-0 --namespace fleet"


def test_a_pod_that_runs_and_is_not_ready_says_for_how_long() -> None:
    unready = part("demo-replicant-a", "replicant")
    unready["status"]["containerStatuses"][0]["ready"] = False
    since = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-26T02:50:00Z"}
    unready["status"]["conditions"] = [since]
    (found,) = pod_findings([unready], NOW)
    assert found.text == "demo-replicant-a isn't ready, for 10m"
    assert found.todo == "kubectl logs demo-replicant-a --namespace fleet --container flockmq --tail=50"


def test_a_pod_that_ends_says_by_when() -> None:
    ending = part("demo-replicant-a", "replicant")
    ending["metadata"]["deletionTimestamp"] = "2026-11-26T03:09:00Z"
    (found,) = pod_findings([ending], NOW)
    assert found.text == "demo-replicant-a is being ended; its grace period is over at 2026-11-26T03:09:00Z"
    assert "Terminating" in list(pod_lines([ending], SILENT, NOW))[1]


def test_what_is_said_of_pods_is_bounded() -> None:
    pods = [waiting(part(f"demo-replicant-{number:03}", "replicant")) for number in range(TROUBLES_MAX + 5)]
    found = pod_findings(pods, NOW)
    assert len(found) == TROUBLES_MAX + 1
    assert found[-1].text == "5 more pods aren't ready"


def test_what_the_cluster_does_not_hear_of_has_no_connections() -> None:
    unheard = {"state": "unheard", "connections": 0, "leads": False}
    told = Told("demo-core-0", {"demo-core-1": unheard}, {}, [], 0, is_stale=False)
    line = list(pod_lines([part("demo-core-1", "core")], told, NOW))[1]
    assert "Running, unheard" in line
    assert line.split()[-3:] == ["-", "-", "worker-1"]


def test_a_pod_that_has_left_the_service_says_so() -> None:
    donor, other = (part(f"demo-replicant-{name}", "replicant") for name in "ab")
    donor["metadata"]["labels"] |= {"flockmq.io/takes-clients": "false"}
    other["metadata"]["labels"] |= {"flockmq.io/takes-clients": "true"}
    lines = list(pod_lines([donor, other], SILENT, NOW))
    assert ["out of the Service" in line for line in lines] == [False, True, False]
    assert "Running, out of the Service" in lines[1]
