"""The report's user at the Redis that the operator runs: it drains through Sentinels, with no more than it may."""

from pathlib import Path

from flockmq_operator.manifest import Ref
from flockmq_operator.resources.context import SENTINEL_PORT
from integration.operator.pods import PASSWORDS, Cluster
from pyspark_flockmq.options import redis_config
from pyspark_flockmq.plan import IdRange, StreamId
from pyspark_flockmq.reading import COMMITTED_KEY, entries, last_ids, release, replicated_last_ids
from pyspark_flockmq.servers import Primaries
from unit.operator.built import built

LAG = "flockmq:events:lag"


def options(running: Cluster, folder: Path) -> dict[str, str]:
    """As the ingest is given them, with the addresses and files of these pods."""
    job = built({"redis": {"replicas": 3, "tls": False}})[Ref("CronJob", "demo-ingest")]["spec"]["jobTemplate"]
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    args.remove("--release")
    given = dict(zip(args[1::2], args[2::2], strict=True))
    _, _, name = given["--redis-url"].rpartition("/")
    files = {"password_file": PASSWORDS.report, "sentinel_password_file": PASSWORDS.sentinel}
    for option, password in files.items():
        assert given[f"--{option.replace('_', '-')}"].startswith("/etc/flockmq/secrets/")
        (folder / option).write_text(password)
    sentinels = ",".join(f"{host}:{SENTINEL_PORT}" for host in running.hosts)
    told = {"url": f"redis+sentinel://{sentinels}/{name}", "username": given["--username"]}
    return told | {option: str(folder / option) for option in files}


def test_it_drains_through_the_sentinels_before_and_after_a_failover(running: Cluster, tmp_path: Path) -> None:
    old = running.wait(running.settled, "settled")
    with old.redis("core", PASSWORDS.core) as core:
        for number in range(1, 201):
            core.xadd(LAG, {"events": str(number)}, id=f"{number}-1")
    with Primaries(redis_config(options(running, tmp_path))) as redis:
        assert replicated_last_ids(redis, [LAG], 1) == {LAG: StreamId(200, 1)}
        draining = entries(redis, LAG, IdRange(StreamId(0, 1), StreamId(200, 1)))
        read = [next(draining)]
        old.kill()
        read += draining
        assert [int(fields[b"events"]) for _, fields in read] == list(range(1, 201))
        assert release(redis, {"lag": "200-1"}) == ""
        assert last_ids(redis, [LAG]) == {LAG: StreamId(200, 1)}
    new = running.wait(running.primary, "succeeded")
    with new.redis("core", PASSWORDS.core) as core:
        assert core.hget(COMMITTED_KEY, "lag") == "200-1"
