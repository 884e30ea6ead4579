"""The report: a password of its own, the Redis that nodes have, and two jobs that share a volume."""

import json

import pytest

from flockmq_analytics.cli import make_parser
from flockmq_operator.manifest import Manifest, Ref
from unit.operator.built import built
from unit.operator.test_plan import running
from unit.operator.world import context


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


def of_secrets(name: str) -> str:
    return f"/etc/flockmq/secrets/{name}"


CA = {"--cacertfile": of_secrets("redis-tls/ca.crt")}
OURS = {"--username": "report", "--password-file": of_secrets("redis-password")}
EXTERNAL = {
    "username": "u",
    "passwordSecretRef": {"name": "redis"},
    "sentinelPasswordSecretRef": {"name": "redis"},
    "caSecretRef": {"name": "ca"},
    "tlsSecretRef": {"name": "tls"},
    "minReplicas": 1,
}


@pytest.mark.parametrize(
    ("redis", "url", "others"),
    [
        ({}, "rediss://demo-redis:6379/0", {**OURS, **CA}),
        ({"tls": False}, "redis://demo-redis:6379/0", OURS),
        (
            {"replicas": 3},
            "rediss+sentinel://demo-redis-0:26379,demo-redis-1:26379,demo-redis-2:26379/flockmq",
            {**OURS, **CA, "--sentinel-password-file": of_secrets("redis-sentinel-password"), "--min-replicas": "1"},
        ),
        ({"external": {"url": "redis://r:6379/2"}}, "redis://r:6379/2", {}),
        (
            {"external": {"url": "rediss+sentinel://a,b,c/main", **EXTERNAL}},
            "rediss+sentinel://a,b,c/main",
            {
                **CA,
                "--username": "u",
                "--password-file": of_secrets("redis-password"),
                "--sentinel-password-file": of_secrets("redis-sentinel-password"),
                "--certfile": of_secrets("redis-tls/tls.crt"),
                "--keyfile": of_secrets("redis-tls/tls.key"),
                "--min-replicas": "1",
            },
        ),
        ({"external": {"url": "redis+cluster://a,b"}}, "redis+cluster://a,b", {}),
    ],
)
def test_events_are_drained_from_where_nodes_write_them(redis: Manifest, url: str, others: dict[str, str]) -> None:
    job = cron_job("demo-ingest", {"redis": redis})
    args = args_of(job)
    assert args[0] == "ingest"
    args.remove("--release")
    given = dict(zip(args[1::2], args[2::2], strict=True))
    assert {name: value for name, value in given.items() if name not in ("--output", "--wait", "--memory")} == {
        "--redis-url": url,
        **others,
    }
    (secrets,) = [
        volume["projected"]["sources"]
        for volume in job["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "secrets"
    ]
    paths = {of_secrets(item["path"]) for source in secrets for item in source["secret"]["items"]}
    assert paths == {value for value in others.values() if value.startswith("/")}


def test_the_ingest_takes_what_the_operator_gives_it() -> None:
    args = args_of(cron_job("demo-ingest", {"redis": {"external": {"url": "rediss+sentinel://a/b", **EXTERNAL}}}))
    assert make_parser().parse_args(args).min_replicas == 1
    assert make_parser().parse_args(args_of(cron_job("demo-report"))).command == "report"


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
    wanted = {"--keep-days": "7", "--time-zone": "Europe/Berlin", "--lag-objective-ms": "250"}
    for option, value in (wanted | {"--headline": "/dev/termination-log"}).items():
        assert args[args.index(option) + 1] == value


def pod(name: str, spec: Manifest | None = None) -> Manifest:
    found: Manifest = cron_job(name, spec)["jobTemplate"]["spec"]["template"]["spec"]
    return found


def test_java_has_half_of_the_memory_limit_and_tasks_the_cpu_limit() -> None:
    for name in ("demo-ingest", "demo-report"):
        args = args_of(cron_job(name))
        assert (args[args.index("--memory") + 1], "--cores" in args) == ("1024m", False)
        more: Manifest = {"report": {"resources": {"limits": {"memory": "6Gi", "cpu": "2500m"}}}}
        args = args_of(cron_job(name, more))
        assert (args[args.index("--memory") + 1], args[args.index("--cores") + 1]) == ("3072m", "3")
        assert "--memory" not in args_of(cron_job(name, {"report": {"resources": {"limits": {}}}}))


KEYS = {"credentialsSecretRef": {"name": "keys"}}
S3: Manifest = {"report": {"storage": {"s3": {"bucket": "events", "endpoint": "https://minio:9000", **KEYS}}}}


@pytest.mark.parametrize("name", ["demo-ingest", "demo-report"])
def test_in_s3_both_jobs_write_below_one_prefix_and_have_no_volume(name: str) -> None:
    args = args_of(cron_job(name, S3))
    assert args[args.index("--output") + 1] == "s3a://events/demo"
    assert make_parser().parse_args(args).output == "s3a://events/demo"
    assert Ref("PersistentVolumeClaim", "demo-report") not in built(S3)
    made = pod(name, S3)
    (container,) = made["containers"]
    assert {volume["name"] for volume in made["volumes"]} == {"secrets", "tmp"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {"secrets", "tmp"}
    assert {entry["name"]: entry["value"] for entry in container["env"]} == {
        "AWS_ENDPOINT_URL": "https://minio:9000",
        "AWS_SHARED_CREDENTIALS_FILE": of_secrets("s3/credentials"),
    }
    sources = made["volumes"][0]["projected"]["sources"]
    assert sources[-1]["secret"] == {"name": "keys", "items": [{"key": "credentials", "path": "s3/credentials"}]}


def test_in_s3_the_prefix_is_what_the_spec_says_and_credentials_may_be_the_clouds() -> None:
    said: Manifest = {"report": {"storage": {"s3": {"bucket": "events", "prefix": "mqtt/a", "region": "eu-north-1"}}}}
    args = args_of(cron_job("demo-ingest", said))
    assert args[args.index("--output") + 1] == "s3a://events/mqtt/a"
    assert pod("demo-ingest", said)["containers"][0]["env"] == [{"name": "AWS_REGION", "value": "eu-north-1"}]


async def test_a_secret_for_s3_that_isnt_there_is_said_and_concerns_the_report_alone() -> None:
    plan = await (await running(S3)).plan(context(S3))
    assert [(problem.reason, problem.blocks) for problem in plan.problems] == [("SecretMissing", {"report"})]
    assert "spec.report.storage.s3.credentialsSecretRef: Secret keys" in plan.problems[0].message
