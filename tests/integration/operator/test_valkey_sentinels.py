"""valkey.sh on real servers: Sentinels that lost what they knew, are slow, or have another secret."""

import contextlib

from redis.exceptions import RedisError

from flockmq_operator.resources.context import REDIS_PORT
from flockmq_operator.resources.redis_users import Passwords
from integration.operator.pods import HERE, PASSWORDS, Cluster, Pod, connected_replicas


def test_a_sentinel_that_lost_its_volume_asks_the_others(running: Cluster) -> None:
    running.pods[0].kill()
    new = running.wait(running.primary, "succeeded")
    lost = running.pods[0]
    lost.lose_volume()
    lost.start()
    assert running.wait(running.settled, "settled") is new


def test_a_replica_that_no_sentinel_knows_finds_the_primary_by_itself(running: Cluster) -> None:
    first, second, third = running.pods
    with third.redis() as redis:
        redis.execute_command("REPLICAOF", second.host, REDIS_PORT)
    for pod in running.pods:
        with pod.operators_sentinel() as sentinel:
            sentinel.execute_command("SENTINEL RESET", "flockmq")
    running.wait(lambda: connected_replicas(first) == 1, "left")
    assert running.wait(running.settled, "settled again") is first


def hears_a_majority(pod: Pod) -> bool:
    """Whether this pod's Sentinel and those that it hears are enough to name another primary."""
    with contextlib.suppress(RedisError), pod.operators_sentinel() as sentinel:
        sentinel.sentinel_ckquorum("flockmq")  # refused: NOQUORUM
        return True
    return False


def test_sentinels_trust_one_another_again_after_the_secret_was_made_anew(running: Cluster) -> None:
    old = running.pods[0]
    running.wait(lambda: all(hears_a_majority(pod) for pod in running.pods), "heard by one another")
    for pod in running.pods:
        pod.kill()
    running.fill_secret(Passwords(*(f"new-{password}" for password in PASSWORDS)))
    for pod in running.pods:
        pod.start()
    assert running.wait(running.settled, "settled") is old
    running.wait(lambda: all(hears_a_majority(pod) for pod in running.pods), "heard by one another again")
    old.kill()
    running.wait(lambda: (found := running.primary()) and found is not old and found, "succeeded")


SLOW_TO_MONITOR = """#!/bin/sh
# The first call to monitor is lost on its way, the second is taken, but its answer comes too late.
case "$*" in *"sentinel monitor"*)
  echo >>"$DATA/monitors"
  case $(wc -l <"$DATA/monitors") in
    1) exec sleep 9 ;;
    2) {cli} "$@"; exec sleep 9 ;;
  esac ;;
esac
exec {cli} "$@"
"""


def test_a_sentinel_that_answers_late_is_told_all_the_same_whom_to_watch(cluster: Cluster) -> None:
    cli = cluster.folder / "valkey-cli"
    cli.unlink()
    cli.write_text(SLOW_TO_MONITOR.format(cli=HERE / "valkey-cli"))
    cli.chmod(0o755)
    for pod in cluster.pods:
        pod.start()
    assert cluster.wait(cluster.settled, "settled") is cluster.pods[0]
