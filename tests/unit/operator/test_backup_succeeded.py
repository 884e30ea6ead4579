"""What is told of backups: whether the last one succeeded, and how many failed since one did."""

from datetime import UTC, datetime

import pytest

from flockmq_operator.manifest import Manifest
from flockmq_operator.status.backup_succeeded import count
from unit.operator.test_plan import converge
from unit.operator.test_resources_backup import CRON_JOB, SPEC, claim
from unit.operator.test_status import condition, status, summary
from unit.operator.world import World, context


async def backed_up(told: Manifest) -> World:
    world = World(claim())
    await converge(world, context(SPEC))
    world.objects[CRON_JOB]["status"] = told
    return world


FIRST, SECOND = "2026-11-20T02:00:00Z", "2026-11-21T02:00:00Z"
DONE = "2026-11-20T02:01:00Z"


@pytest.mark.parametrize(
    ("told", "value", "reason"),
    [
        ({}, "Unknown", "NotRunYet"),
        ({"lastScheduleTime": FIRST, "active": [{}]}, "Unknown", "Running"),
        ({"lastScheduleTime": FIRST}, "False", "Failed"),
        ({"lastScheduleTime": FIRST, "lastSuccessfulTime": DONE}, "True", "Succeeded"),
        ({"lastScheduleTime": SECOND, "lastSuccessfulTime": DONE}, "False", "Failed"),
    ],
)
async def test_one_that_failed_is_told_and_the_cluster_is_ready(told: Manifest, value: str, reason: str) -> None:
    made = await status(await backed_up(told), context(SPEC))
    found = condition(made, "BackupSucceeded")
    assert (found["status"], found["reason"]) == (value, reason)
    assert summary(made)["Ready"] == "True"


async def test_while_one_runs_what_is_known_of_the_one_before_stands() -> None:
    failed = await status(await backed_up({"lastScheduleTime": FIRST}), context(SPEC))
    world = await backed_up({"lastScheduleTime": SECOND, "active": [{}]})
    made = await status(world, context(SPEC), failed)
    assert (condition(made, "BackupSucceeded")["status"], made["backup"]["missed"]) == ("False", 1)


def test_those_that_failed_since_one_succeeded_are_counted_once_each() -> None:
    told: Manifest = {}
    for cron, missed in (
        ({}, 0),
        ({"lastScheduleTime": FIRST, "active": [{}]}, 0),
        ({"lastScheduleTime": FIRST}, 1),
        ({"lastScheduleTime": FIRST}, 1),
        ({"lastScheduleTime": SECOND, "active": [{}]}, 1),
        ({"lastScheduleTime": SECOND}, 2),
        ({"lastScheduleTime": SECOND, "lastSuccessfulTime": DONE.replace("20T", "22T")}, 0),
    ):
        told = count({"status": cron}, told)
        assert told["missed"] == missed, cron
    assert told["lastSuccessfulTime"] == "2026-11-22T02:01:00Z"
    assert datetime.fromisoformat(told["lastFailedTime"]) == datetime(2026, 11, 21, 2, tzinfo=UTC)
