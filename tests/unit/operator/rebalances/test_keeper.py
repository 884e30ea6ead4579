"""What becomes of a MqttRebalance: it is started, watched, stopped. Against the broker's own API."""

import pytest

from flockmq.management.rebalance_rows import AskedRebalance
from flockmq.management.view import Conflict, Unavailable
from flockmq_operator.manifest import Ref
from unit.operator.rebalances.harness import MOVE, NAME, UID, Town, mqtt_rebalance
from unit.operator.schema import REBALANCE_SCHEMA, violations
from unit.operator.users.harness import CORE, DEMO, core
from unit.operator.world import mqtt_cluster


async def started(town: Town, uid: str = UID, **spec: object) -> None:
    town.world.put(mqtt_rebalance(uid=uid, **spec))
    await town.look()
    town.told()


async def test_one_that_is_created_is_started_with_what_its_spec_says(town: Town) -> None:
    said = {"relativeThresholdPercent": 105, "absoluteThreshold": 10, "rate": 50, "waitSeconds": 0, "settleSeconds": 60}
    rebalance = mqtt_rebalance()
    rebalance["spec"] |= {**said, "weights": {"messages": 5}}
    town.world.put(rebalance)
    done = await town.look()
    assert town.nodes.started == [
        AskedRebalance(
            name=NAME,
            relative_threshold=1.05,
            absolute_threshold=10,
            rate=50.0,
            wait=0.0,
            settle=60.0,
            messages_weight=5.0,
        )
    ]
    assert (town.how(), town.condition()["status"]) == (("Running", "Started"), "Unknown")
    assert (town.is_held(), done.look_again_s) == (True, 2.0)
    assert town.told() == ["Started"]
    assert "startTime" in town.status()
    assert "endTime" not in town.status()


async def test_how_far_it_is_stands_in_its_status_until_it_has_succeeded(town: Town) -> None:
    await started(town)
    assert town.nodes.started == [AskedRebalance(name=NAME)], "all else is as nodes are configured"
    town.nodes.tell("r-1", "running", moved=40, left=110)
    await town.look()
    assert town.how() == ("Running", "Moving")
    assert town.condition()["message"] == "40 clients were moved, 110 are to go"
    status = town.status()
    assert (status["moved"], status["left"]) == (40, 110)
    assert status["nodes"][0] == {"name": "r-1", "clients": 300, "moved": 40, "left": 110, "state": "running"}
    town.nodes.tell("r-1", "balanced", moved=150)
    town.nodes.tell("r-2", "balanced")
    await town.look()
    assert (town.how(), town.condition()["status"]) == (("Succeeded", "Balanced"), "True")
    assert (town.status()["moved"], town.status()["left"]) == (150, 0)
    assert "endTime" in town.status()
    assert town.told() == ["Balanced"]
    assert list(violations(town.status(), REBALANCE_SCHEMA["properties"]["status"])) == []
    done = await town.look()
    assert (town.is_held(), done.look_again_s) == (False, 30.0)
    before = town.status()
    await town.look()
    assert (town.status(), len(town.nodes.started)) == (before, 1)


async def test_a_dry_run_writes_the_plan_and_ends(town: Town) -> None:
    await started(town, dryRun=True, absoluteThreshold=5, waitSeconds=30)
    assert town.how() == ("Succeeded", "Planned")
    assert town.condition()["message"] == "150 clients would be moved; nothing was done"
    assert town.nodes.thresholds == AskedRebalance(absolute_threshold=5)
    assert (town.status()["left"], town.status()["moved"]) == (150, 0)
    assert town.status()["nodes"][0] == {"name": "r-1", "clients": 300, "moved": 0, "left": 150}
    assert (town.nodes.started, town.is_held()) == ([], False)


# How it fails.


async def test_clients_that_always_come_back_are_told(town: Town) -> None:
    await started(town)
    town.nodes.tell("r-1", "gave_up", moved=450)
    town.nodes.tell("r-2", "balanced")
    await town.look()
    assert (town.how(), town.condition()["status"]) == (("Failed", "GaveUp"), "False")
    assert "450 clients were moved, but too many of them came back to r-1: see" in town.condition()["message"]
    assert town.told() == ["GaveUp"]


async def test_that_somebody_stopped_it_is_told(town: Town) -> None:
    await started(town)
    for node in town.nodes.rows:
        town.nodes.tell(node, "stopped")
    await town.look()
    assert town.how() == ("Failed", "Stopped")


async def test_while_another_one_runs_one_is_refused(town: Town) -> None:
    other = Ref("MqttRebalance", "other")
    await started(town)
    town.world.put(mqtt_rebalance("other", "2026-11-26T11:00:00Z"))
    await town.look()
    assert (town.how()[0], town.how(other)) == ("Running", ("Failed", "AnotherRuns"))
    assert f"{NAME} has started one in MqttCluster demo" in town.condition(other)["message"]
    assert (len(town.nodes.started), town.is_held(other)) == (1, False)
    assert "startTime" not in town.status(other)


async def test_while_somebody_rebalances_by_hand_one_is_refused(town: Town) -> None:
    town.nodes.tell("r-1", "running", "")
    await started(town)
    assert town.how() == ("Failed", "AnotherRuns")
    assert "somebody has started one" in town.condition()["message"]


@pytest.mark.parametrize(
    ("missing", "reason"), [(CORE, "ClusterNotReady"), (DEMO, "ClusterMissing"), (None, "ClusterPaused")]
)
async def test_where_the_cluster_is_not_available_one_is_refused(town: Town, missing: Ref | None, reason: str) -> None:
    if missing:
        del town.world.objects[missing]
    else:
        town.world.put(mqtt_cluster({"pause": True}))
    await started(town)
    assert town.how() == ("Failed", reason)
    assert (town.nodes.started, town.is_held()) == ([], False)


async def test_what_the_broker_refuses_is_told_with_its_sentence(town: Town) -> None:
    town.nodes.failure = Conflict("there is nothing to rebalance: no node that is meant takes clients now")
    await started(town)
    assert town.how() == ("Failed", "Refused")
    assert "there is nothing to rebalance" in town.condition()["message"]


async def test_a_key_that_the_cluster_refuses_is_told(town: Town) -> None:
    town.world.objects[Ref("Secret", "demo-api-key")]["data"]["key"] = "eHh4"
    await started(town)
    assert town.how() == ("Failed", "KeyRefused")
    assert "refuses the key in Secret demo-api-key" in town.condition()["message"]
    await town.look()
    assert not town.is_held()


# What comes in between.


async def test_a_cluster_that_cannot_answer_now_is_waited_for(town: Town) -> None:
    town.nodes.failure = Unavailable("no core answers")
    await started(town)
    assert town.how() == ("Pending", "ClusterNotReady")
    town.nodes.failure = None
    await town.look()
    assert town.how() == ("Running", "Started")
    del town.world.objects[CORE]
    done = await town.look()
    assert (town.how(), done.look_again_s) == (("Running", "ClusterNotReady"), 2.0)
    town.world.put(core())
    await town.look()
    assert town.how() == ("Running", "Moving")


async def test_one_whose_cluster_goes_has_failed(town: Town) -> None:
    await started(town)
    del town.world.objects[DEMO]
    await town.look()
    assert town.how() == ("Failed", "ClusterMissing")
    await town.look()
    assert not town.is_held()


async def test_an_operator_that_dies_leaves_what_the_next_one_needs(town: Town) -> None:
    await started(town)
    body = town.world.objects[MOVE]
    del body["status"]  # it died before it wrote that
    town.reconciler = town.another_operator()
    town.nodes.tell("r-1", "running", moved=5)
    await town.look()
    assert (town.how(), town.status()["moved"]) == (("Running", "Moving"), 5)
    assert len(town.nodes.started) == 1


async def test_what_a_node_moved_before_it_restarted_still_counts(town: Town) -> None:
    await started(town)
    town.nodes.tell("r-1", "running", moved=40, left=110)
    await town.look()
    town.nodes.restart("r-1")
    town.nodes.tell("r-2", "balanced", moved=2)
    await town.look()
    assert (town.how(), town.status()["moved"]) == (("Succeeded", "Balanced"), 42)
    assert town.status()["nodes"][0]["state"] == "restarted"


async def test_one_that_all_nodes_have_forgotten_is_started_again(town: Town) -> None:
    await started(town)
    town.nodes.restart("r-1", "r-2")
    await town.look()
    assert (town.how()[0], len(town.nodes.started)) == ("Running", 2)


async def test_nodes_that_do_not_know_of_it_are_named(town: Town) -> None:
    town.nodes.missing = ("r-9 (doesn't answer)",)
    await started(town)
    assert town.condition()["message"] == "started in MqttCluster demo; not at r-9 (doesn't answer)"


# The end.


async def test_one_that_is_deleted_is_stopped_and_goes(town: Town) -> None:
    await started(town)
    town.delete()
    await town.look()
    assert town.nodes.stopped == [NAME]
    assert MOVE not in town.world.objects
    assert (await town.look()).gone


async def test_another_one_of_its_name_starts_anew(town: Town) -> None:
    await started(town)
    town.delete()
    await town.look()
    for node in town.nodes.rows:
        town.nodes.tell(node, "stopped")
    await started(town, uid="0e1d2c3b-b8f1-4c55-9d3c-3f0a4e1c2d5b")
    assert (town.how(), len(town.nodes.started)) == (("Running", "Started"), 2)


async def test_one_that_is_over_is_deleted_without_a_word_to_nodes(town: Town) -> None:
    await started(town)
    for node in town.nodes.rows:
        town.nodes.tell(node, "balanced")
    await town.look()
    town.delete()
    await town.look()
    assert (town.nodes.stopped, MOVE in town.world.objects) == ([], False)


@pytest.mark.parametrize("is_going", [True, False])
async def test_it_goes_with_its_cluster(town: Town, is_going: bool) -> None:
    await started(town)
    town.delete()
    if is_going:
        town.world.objects[DEMO]["metadata"]["deletionTimestamp"] = "now"
    else:
        del town.world.objects[DEMO]
    await town.look()
    assert MOVE not in town.world.objects


async def test_it_waits_a_while_for_nodes_that_cannot_be_told_and_then_goes(town: Town) -> None:
    await started(town)
    town.delete()
    town.nodes.failure = Unavailable("it may go on at r-1 (doesn't answer)")
    done = await town.look()
    assert (town.how(), done.look_again_s) == (("Running", "Stopping"), 2.0)
    assert "it may go on at r-1" in town.condition()["message"]
    del town.world.objects[CORE]
    await town.look()
    assert MOVE in town.world.objects
    town.delete(seconds_ago=61.0)
    await town.look()
    assert MOVE not in town.world.objects
