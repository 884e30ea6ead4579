"""valkey.sh leave: a primary that ends hands over without a lost write."""

import subprocess
import time

import pytest
from redis import Redis
from redis.exceptions import TimeoutError as RedisTimeout

from flockmq_operator.resources.context import SENTINEL_PORT
from integration.operator.pods import FAILOVER_S, HERE, Cluster, Pod, holds, write


def test_a_primary_that_leaves_hands_over_without_a_lost_write(running: Cluster) -> None:
    old = running.pods[0]
    assert write(old, "before") >= 1
    started = time.monotonic()
    old.leave()
    assert time.monotonic() - started < FAILOVER_S
    old.kill()
    new = running.wait(lambda: (found := running.primary()) and found is not old and found, "handed over")
    assert holds(new, "before")
    old.start()
    assert running.wait(running.settled, "settled again") is new
    assert old.role() == "slave"
    assert write(new, "after") >= 1


def test_a_primary_that_leaves_asks_again_while_nobody_may_succeed_it_yet(running: Cluster) -> None:
    old, *replicas = running.pods
    for pod in replicas:
        set_priority(pod, 0)
    running.wait(lambda: all(known_priorities(pod) == {"0"} for pod in running.pods), "known to the Sentinels")
    leaving = subprocess.Popen(
        old.script("leave"), env=old.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert leaving.stderr is not None
    assert b"no Sentinel makes another one the primary yet" in leaving.stderr.readline()
    for pod in replicas:
        set_priority(pod, 100)
    assert leaving.wait(FAILOVER_S) == 0
    leaving.stderr.close()
    old.kill()
    assert running.wait(running.primary, "handed over") is not old


FAILOVER_IN_VAIN = """#!/bin/sh
# A Sentinel that is asked for a failover is at it for longer than the primary waits.
case "$*" in *"sentinel failover"*) date +%s >>"$DATA/asked"; {answer} ;; esac
exec {cli} "$@"
"""


@pytest.mark.parametrize("answer", ["echo OK; exit", "exec sleep 9"], ids=["at once", "late"])
@pytest.mark.parametrize("cluster", [FAILOVER_S * 1000], indirect=True)  # nobody takes it for dead
def test_a_primary_that_leaves_takes_no_write_once_a_sentinel_was_asked(running: Cluster, answer: str) -> None:
    old = running.pods[0]
    leave_s, succession_s = 15, 10
    script = running.folder / "valkey.sh"
    script.write_text(script.read_text().replace("LEAVE_S=25", f"LEAVE_S={leave_s}"))
    cli = running.folder / "valkey-cli"
    cli.unlink()
    cli.write_text(FAILOVER_IN_VAIN.format(cli=HERE / "valkey-cli", answer=answer))
    cli.chmod(0o755)
    started = time.time()
    old.leave()
    asked = [int(line) for line in (old.volume / "asked").read_text().split()]
    assert asked
    assert max(asked) - started < leave_s - succession_s + 2
    assert old.role() == "master"
    with old.redis("core", "core") as redis, pytest.raises(RedisTimeout):
        redis.set("flockmq:late", "x")


def set_priority(pod: Pod, priority: int) -> None:
    with pod.redis() as redis:
        redis.config_set("replica-priority", priority)


def known_priorities(pod: Pod) -> set[str]:
    """Of the replicas, by this pod's Sentinel."""
    with Redis(pod.host, SENTINEL_PORT, username="operator", password="admin", decode_responses=True) as sentinel:
        return {str(replica["slave-priority"]) for replica in sentinel.sentinel_slaves("flockmq")}
