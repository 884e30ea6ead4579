"""The nightly report, run once by hand as its CronJob would: it counts the connections that nodes recorded in Redis."""

from harness import MqttCluster, until

CLIENTS = 5


def test_the_cron_job_run_once_reports_the_connections(demo: MqttCluster) -> None:
    replicant = demo.wait_ready_pods("replicant", 2)[0]
    with demo.namespace.forward(replicant, 1883) as port:
        for _ in range(CLIENTS):
            demo.client(port).close()
    until(lambda: stored_events(demo) > 0, "Redis holds connection events", 60)

    demo.namespace.kubectl("create", "job", "report-now", "--from=cronjob/demo-report")
    until(lambda: ended(demo), "the job ended", 300, lambda: demo.namespace.list("pods", "job-name=report-now"))
    report = demo.namespace.kubectl("logs", "job/report-now")
    assert demo.namespace.get("job", "report-now")["status"].get("succeeded") == 1, report

    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if replicant in line]
    assert sum(int(row[2]) for row in rows) >= CLIENTS, report
    assert "route" in report.partition("## Replication lag by shard")[2], report
    until(lambda: demo.condition("ReportSucceeded")["status"] == "True", "the status says so", 60)


def stored_events(demo: MqttCluster) -> int:
    return int(demo.redis_cli("demo-redis-0", "XLEN", "flockmq:events:connections"))


def ended(demo: MqttCluster) -> bool:
    """Whether the job has succeeded, or failed for good."""
    status = demo.namespace.get("job", "report-now")["status"]
    return any(condition["type"] in ("Complete", "Failed") for condition in status.get("conditions", []))
