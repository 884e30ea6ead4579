"""valkey.sh on real servers and Sentinels: who becomes the primary, and that nobody does who shouldn't."""

import shutil

import pytest
from redis.exceptions import ResponseError

from integration.operator.pods import FAILOVER_S, Cluster, connected_replicas, holds, write


def test_the_first_pod_is_the_first_primary_and_not_before_all_sentinels_are_there(cluster: Cluster) -> None:
    first, second, third = cluster.pods
    first.start()
    second.start()
    cluster.wait(lambda: "to begin, all must" in cluster.logs(), "waiting")
    assert [pod.role() for pod in cluster.pods] == ["", "", ""]
    third.start()
    assert cluster.wait(cluster.settled, "settled") is first


def test_a_killed_primary_is_succeeded_loses_nothing_acknowledged_and_comes_back_as_a_replica(running: Cluster) -> None:
    old = running.pods[0]
    assert write(old, "before") >= 1
    old.kill()
    new = running.wait(lambda: (found := running.primary()) and found.role() == "master" and found, "succeeded")
    assert new is not old
    assert holds(new, "before")
    old.start()
    assert running.wait(running.settled, "settled again") is new
    assert old.role() == "slave"
    assert write(new, "after") >= 1


def test_all_pods_that_die_at_once_find_the_last_primary_again(running: Cluster) -> None:
    running.pods[0].kill()
    new = running.wait(running.primary, "succeeded")
    running.pods[0].start()
    running.wait(running.settled, "settled")
    assert write(new, "kept") >= 1
    for pod in running.pods:
        pod.kill()
    for pod in running.pods:
        pod.start()
    assert running.wait(running.settled, "settled") is new
    assert holds(new, "kept")


def test_a_primary_that_lost_its_volume_does_not_empty_its_replicas(running: Cluster) -> None:
    old = running.pods[0]
    assert write(old, "kept") >= 1
    running.wait(lambda: all(holds(pod, "kept") for pod in running.pods), "replicated")
    old.kill("redis")  # its Sentinel names it still when it comes back at once
    shutil.rmtree(old.volume / "appendonlydir")
    old.start("redis")
    new = running.wait(lambda: (found := running.settled()) and found is not old and found, "succeeded")
    assert holds(new, "kept")
    running.wait(lambda: holds(old, "kept"), "copied back")


@pytest.mark.parametrize("cluster", [FAILOVER_S * 1000], indirect=True)  # nobody takes it for dead
def test_a_primary_whose_sentinel_lost_the_volume_too_believes_those_that_know_of_replicas(running: Cluster) -> None:
    old, *others = running.pods
    assert write(old, "kept") >= 1
    running.wait(lambda: all(holds(pod, "kept") for pod in running.pods), "replicated")
    old.kill()
    old.lose_volume()
    old.start("sentinel")
    running.wait(lambda: old.ready("sentinel"), "told whom to watch by the others")
    old.start("redis")
    running.wait(lambda: "waiting for another one" in running.logs() or old.role() == "master", "up")
    assert old.role() == ""
    assert all(holds(pod, "kept") for pod in others)


@pytest.mark.parametrize("cluster", [FAILOVER_S * 1000], indirect=True)  # nobody takes it for dead
def test_a_primary_that_restarts_takes_writes_only_when_all_sentinels_see_it(running: Cluster) -> None:
    first, _, third = running.pods
    third.kill("sentinel")  # who knows what it had begun?
    first.kill("redis")
    first.start("redis")
    running.wait(lambda: first.role() == "master" and connected_replicas(first) == 2, "up, with its replicas")
    with first.redis("core", "core") as redis, pytest.raises(ResponseError, match="NOREPLICAS"):
        redis.set("flockmq:early", "x")
    third.start("sentinel")
    assert write(first, "late") >= 1
    log = (running.folder / f"{first.host}.redis.log").read_text()
    assert "Delay next BGSAVE" not in log, "its replicas wait for one another, and writes for them"


def test_a_replica_out_of_step_is_never_made_the_primary(running: Cluster) -> None:
    first, second, third = running.pods
    assert write(first, "kept") >= 1
    for pod in running.pods:
        pod.kill()
    for pod in (second, third):
        pod.start()
    running.wait(lambda: all(pod.role() == "slave" for pod in (second, third)), "up")
    running.wait(lambda: "+odown" in running.logs(), "the primary is known to be down")
    running.wait(lambda: "no-good-slave" in running.logs(), "nobody may succeed it")
    first.start()
    assert running.wait(running.settled, "settled") is first
    assert holds(first, "kept")


def test_a_replica_is_ready_when_it_may_succeed_the_primary(running: Cluster) -> None:
    replica = running.pods[2]
    with replica.redis() as redis:
        redis.config_set("replica-priority", 0)
        assert not replica.ready()
        redis.config_set("replica-priority", 100)
    assert replica.ready()


def test_one_alone_is_no_primary(running: Cluster) -> None:
    first, second, third = running.pods
    for pod in (second, third):
        pod.kill()
    first.kill()
    first.start()
    running.wait(lambda: "2 are needed" in running.logs(), "waiting")
    assert first.role() == ""
    second.start()
    running.wait(running.primary, "a majority")
