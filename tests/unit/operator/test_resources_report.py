"""The report: a password of its own, one server that it drains, and two jobs that share a volume."""

import json

import pytest

from flockmq_operator.manifest import Manifest, Ref
from unit.operator.built import built

OURS = "ssl_ca_certs=/etc/flockmq/secrets/redis-tls/ca.crt"


def cron_job(name: str, spec: Manifest | None = None) -> Manifest:
    return built(spec)[Ref("CronJob", name)]["spec"]


def args_of(job: Manifest) -> list[str]:
    return job["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("name", ["demo-ingest", "demo-report"])
def test_both_have_a_password_of_their_own_and_not_the_cluster_key(name: str) -> None:
    job = json.dumps(cron_job(name))
    assert "report-password" in job
    assert "core-password" not in job
    assert "cluster-key" not in job


@pytest.mark.parametrize(
    ("redis", "url"),
    [
        ({}, f"rediss://report@demo-redis:6379/0?{OURS}"),
        ({"replicas": 3}, f"rediss://report@demo-redis:6379/0?{OURS}"),
        ({"tls": False}, "redis://report@demo-redis:6379/0"),
        ({"external": {"url": "redis://r:6379/2"}}, "redis://r:6379/2"),
        (
            {"external": {"url": "rediss://r", "username": "u", "caSecretRef": {"name": "ca"}}},
            f"rediss://u@r?{OURS}",
        ),
    ],
)
def test_events_are_drained_from_one_server(redis: Manifest, url: str) -> None:
    args = args_of(cron_job("demo-ingest", {"redis": redis}))
    assert args[0] == "ingest"
    assert args[args.index("--redis-url") + 1] == url
    assert "--release" in args


def test_the_report_and_the_ingest_share_a_volume_and_wait_for_each_other() -> None:
    jobs = [cron_job(name) for name in ("demo-ingest", "demo-report")]
    claims = [job["jobTemplate"]["spec"]["template"]["spec"]["volumes"][-1]["persistentVolumeClaim"] for job in jobs]
    assert claims == [{"claimName": "demo-report"}] * 2
    for job in jobs:
        args = args_of(job)
        wait_s = int(args[args.index("--wait") + 1])
        assert 0 < wait_s < job["jobTemplate"]["spec"]["activeDeadlineSeconds"]


def test_schedules_are_of_the_time_zone() -> None:
    own = {"report": {"schedule": "0 3 * * *", "ingestSchedule": "*/2 * * * *", "timeZone": "Europe/Berlin"}}
    for name, schedule in (("demo-ingest", "*/2 * * * *"), ("demo-report", "0 3 * * *")):
        job = cron_job(name, own)
        assert (job["schedule"], job["timeZone"]) == (schedule, "Europe/Berlin")
        assert cron_job(name)["timeZone"] == "Etc/UTC"


def test_the_report_is_made_as_the_spec_says() -> None:
    said = {"keepDays": 7, "timeZone": "Europe/Berlin", "lagObjectiveMs": 250}
    args = args_of(cron_job("demo-report", {"report": said}))
    for option, value in (("--keep-days", "7"), ("--time-zone", "Europe/Berlin"), ("--lag-objective-ms", "250")):
        assert args[args.index(option) + 1] == value
