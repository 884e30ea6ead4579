"""The nightly report, run once by hand as its CronJob would: it counts the connections that nodes recorded in Redis,
and the cluster's status has its headline."""

from harness import MqttCluster, until

CLIENTS = 5


def test_the_cron_job_run_once_reports_the_connections(demo: MqttCluster) -> None:
    replicant = demo.wait_ready_pods("replicant", 2)[0]
    with demo.namespace.forward(replicant, 1883) as port:
        for _ in range(CLIENTS):
            demo.client(port).close()
    until(lambda: stored_events(demo) > 0, "Redis holds connection events", 60)

    ingested = said_by_job(demo, "ingest")
    assert "ingested" in ingested, ingested
    report = said_by_job(demo, "report")

    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if replicant in line]
    assert sum(int(row[2]) for row in rows) >= CLIENTS, report
    assert "route" in report.partition("## Replication lag by shard")[2], report
    until(lambda: "connections at the peak" in demo.condition("ReportSucceeded")["message"], "the status says so", 60)
    told = demo.namespace.get("mqc", "demo")["status"]["report"]
    assert told["clients"] >= CLIENTS, told
    until(lambda: "Reported" in demo.namespace.kubectl("describe", "mqc/demo"), "an event tells it", 60)


def stored_events(demo: MqttCluster) -> int:
    return int(demo.redis_cli("demo-redis-0", "XLEN", "flockmq:events:connections"))


def said_by_job(demo: MqttCluster, kind: str) -> str:
    """What a job says that is made now from the CronJob; it succeeds."""
    job = f"{kind}-now"
    demo.namespace.kubectl("create", "job", job, f"--from=cronjob/demo-{kind}")
    until(lambda: ended(demo, job), f"{job} ended", 600, lambda: demo.namespace.list("pods", f"job-name={job}"))
    said = demo.namespace.kubectl("logs", f"job/{job}")
    assert demo.namespace.get("job", job)["status"].get("succeeded") == 1, said
    return said


def ended(demo: MqttCluster, job: str) -> bool:
    """Whether the job has succeeded, or failed for good."""
    status = demo.namespace.get("job", job)["status"]
    return any(condition["type"] in ("Complete", "Failed") for condition in status.get("conditions", []))
