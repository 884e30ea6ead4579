"""`kubectl flockmq status`, from the kubeconfig to the screen."""

import re

import pytest

from flockmq.management.view import AlarmRow
from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.manifest import Ref
from unit.operator.kubectl.harness import Town, conditions, member, part, waiting

DEMO = Ref("MqttCluster", "demo")


async def screen(town: Town, capsys: pytest.CaptureFixture[str]) -> list[str]:
    await town.run("status", "demo")
    return capsys.readouterr().out.splitlines()


def row(lines: list[str], name: str) -> list[str]:
    """The cells of the line that begins so."""
    found = next(line for line in lines if line.startswith(name))
    return re.split(r"  +", found)


async def test_a_cluster_that_is_well_is_one_screen(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    lines = await screen(town, capsys)
    assert lines[0] == ("MqttCluster demo in namespace fleet: clients are served; all is as the spec asks")
    assert "  fine: Available, CoresReady, ReplicantsReady, RedisReady, Ready" in lines
    assert row(lines, "cores") == ["cores", "3/3", "0.1.0", "core:1"]
    assert row(lines, "replicants") == ["replicants", "2/2", "0.1.0", "replicant:1"]
    assert row(lines, "Redis") == ["Redis", "1/1", "-", "redis:1"]
    assert row(lines, "demo-core-1")[:5] == ["demo-core-1", "core", "1/1", "Running, leads", "0"]
    assert row(lines, "demo-replicant-a")[6:] == ["20", "0.3s", "worker-1"]
    assert row(lines, "demo-redis-0")[6:] == ["-", "-", "worker-1"]
    assert "  connections: 40, alarms: none; told by demo-core-0" in lines
    assert not [line for line in lines if "!" in line]
    assert len(lines) < 24


async def test_what_the_last_report_says_first_is_shown(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"day": "2026-11-20", "isOver": True, "clients": 9, "refused": 2, "lostEvents": 0, "peakConnections": 7}
    town.world.objects[DEMO]["status"]["report"] = {**figures, "changed": ["2 refused connects: \x1b[2J"]}
    lines = await screen(town, capsys)
    shown = (
        "  report of 2026-11-20: 7 connections at the peak, 9 clients, 2 refused, no event lost; 2 refused connects: "
    )
    assert [line for line in lines if line.startswith(shown)] == [f"{shown}\N{REPLACEMENT CHARACTER}[2J"]


async def test_alarms_and_nodes_that_drain_are_shown(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    town.node.alarms = [AlarmRow(name="redis-memory/r:6379", since_s=1_764_000_000.0, text="80 %\x1b[2J of it")]
    town.node.nodes[3] = member("demo-replicant-a", "replicant", 7, draining=True)
    lines = await screen(town, capsys)
    assert row(lines, "demo-replicant-a")[3] == "Running, draining"
    alarm = row(lines, "redis-memory/r:6379")
    assert alarm[2] == "80 %\N{REPLACEMENT CHARACTER}[2J of it"


async def test_another_core_is_asked_where_one_does_not_answer(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    town.silent = {"demo-core-0"}
    assert "  connections: 40, alarms: none; told by demo-core-1" in await screen(town, capsys)


async def test_where_no_node_answers_it_says_so_and_shows_what_kubernetes_knows(
    town: Town, capsys: pytest.CaptureFixture[str]
) -> None:
    town.silent = {f"demo-core-{number}" for number in range(3)} | {"demo-replicant-a"}
    lines = await screen(town, capsys)
    at = next(number for number, line in enumerate(lines) if line.startswith("  ! NO NODE ANSWERS"))
    asked = [line.split(":")[0] for line in lines[at + 1 : at + 5]]
    assert asked == [f"    pod {name} in namespace fleet" for name in sorted(town.silent)]
    assert row(lines, "cores") == ["cores", "3/3", "-", "core:1"]
    assert row(lines, "demo-core-0")[6:] == ["-", "-", "worker-1"]


async def test_what_is_wrong_comes_first_with_what_to_do(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    town.world.objects[DEMO]["status"] = conditions(
        Ready=("False", "NotAllReady", "CoresReady: 1 of 3 ready"),
        Available=("False", "NoQuorum", "1 of 3 cores are ready, which is no majority"),
        Reconciling=("True", "Progressing", "waiting for CoresReady"),
        CoresReady=("False", "NotAllReady", "1 of 3 ready"),
        RedisReady=("True", "Answers", "it answers"),
    )
    broken = waiting(part("demo-core-2", "core"), said="flockmq: spec.config: mqtt.max_qos must be 0, 1 or 2")
    town.world.put(broken)
    lines = await screen(town, capsys)
    assert lines[0].endswith(": CLIENTS ARE NOT SERVED; not all is as the spec asks")
    assert re.match(r"  ! Available is False for \w+ \(NoQuorum\): 1 of 3 cores are ready", lines[2])
    assert "don't delete their volumes" in lines[3]
    assert lines[4].startswith("  ! CoresReady is False")
    assert "  now: waiting for CoresReady" in lines
    assert row(lines, "cores")[1] == "2/3"
    assert row(lines, "demo-core-2")[3:5] == ["CrashLoopBackOff", "7"]
    at = lines.index("  ! demo-core-2: CrashLoopBackOff: flockmq: spec.config: mqtt.max_qos must be 0, 1 or 2")
    assert lines[at + 1].endswith("kubectl logs demo-core-2 --namespace fleet --container flockmq --tail=50 --previous")


async def test_without_pods_nobody_is_asked(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in town.world.objects if name.kind == "Pod"]:
        del town.world.objects[name]
    lines = await screen(town, capsys)
    assert row(lines, "cores")[1] == "0/3"
    assert "    no core runs, and no replicant is ready" in lines


async def test_a_cluster_that_is_not_there_is_said_in_a_sentence(town: Town) -> None:
    with pytest.raises(Failed, match="there is no MqttCluster prod in namespace fleet: kubectl flockmq status -A"):
        await town.run("status", "prod")


async def test_all_clusters_are_a_line_each(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    await town.run("status")
    head, demo = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "AVAILABLE", "READY", "CORES", "REPLICANTS", "REDIS", "AGE", "WRONG"]
    assert demo.split()[:6] == ["demo", "True", "True", "0/3", "0/2", "True"]
    assert not town.commands
    await town.run("status", "-A")
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["fleet", "demo"]
    del town.world.objects[DEMO]
    await town.run("status")
    assert capsys.readouterr().out == (
        "there is no MqttCluster in namespace fleet; --all-namespaces (-A) looks everywhere\n"
    )


async def test_a_name_in_all_namespaces_is_refused(town: Town) -> None:
    with pytest.raises(Failed, match="leave NAME away") as failed:
        await town.run("status", "demo", "-A")
    assert failed.value.code == 2
