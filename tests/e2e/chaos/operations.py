"""What operators of a cluster do to it, and what Kubernetes does, one after the other, and how each is looked on.

Each operation is a change, after which the cluster is Ready again. What always holds while one runs: of a kind that
keeps its number at most one pod isn't ready, unless the operation is that pods are lost.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, NamedTuple

from conftest import SYSTEM
from harness import Json, KubectlError, MqttCluster, Namespace, is_ready

from load.history import Acknowledged, AnyEvent, Closed

READY_MAX_S: Final = 600.0
REDIS_AWAY_S: Final = 60.0
KILLED_EVERY_S: Final = 5.0
SESSION_TAKEN_OVER: Final = 0x8E


class Operation(NamedTuple):
    """`resting`: kinds of pods of which two are never unready; `gap_max_s`: without any message acknowledged, at most;
    `keeps_connections`: no node closes a connection, no pod is restarted."""

    do: Callable[[MqttCluster], None]
    resting: tuple[str, ...] = ()
    gap_max_s: float = float("inf")
    keeps_connections: bool = False


def _scale_cores(cluster: MqttCluster) -> None:
    for count in (5, 3, 1, 3):
        cluster.patch({"cores": {"replicas": count}})
        _become_ready(cluster)
        cluster.wait_ready_pods("core", count, READY_MAX_S)


def _scale_replicants(cluster: MqttCluster) -> None:
    for count in (5, 2, 3):
        cluster.patch({"replicants": {"replicas": count}})
        _become_ready(cluster)
        cluster.wait_ready_pods("replicant", count, READY_MAX_S)


def _change_everything(cluster: MqttCluster) -> None:
    """New pods of every kind, and new settings of nodes and of Redis."""
    now = {"metadata": {"annotations": {"e2e.example/changed": str(time.time())}}}
    cluster.patch(
        {
            "cores": {"podTemplate": now},
            "replicants": {"podTemplate": now},
            "redis": {"podTemplate": now},
            "config": "[sys_topics]\nsys_msg_interval = 59\n",  # which nodes read when they start
        }
    )
    _become_ready(cluster)


def _delete_all_pods(cluster: MqttCluster) -> None:
    """Without the time to hand anything over."""
    selector = ("--selector", cluster.selector)
    cluster.namespace.kubectl("delete", "pods", *selector, "--grace-period=0", "--force", "--wait=false")
    _become_ready(cluster, after_s=10.0)


def _pause_redis(cluster: MqttCluster) -> None:
    """Every server of Redis answers nobody."""
    for pod in cluster.pods("redis"):
        cluster.redis_cli(pod["metadata"]["name"], "CLIENT", "PAUSE", str(int(REDIS_AWAY_S * 1000)), "ALL")
    _become_ready(cluster, after_s=REDIS_AWAY_S)


def _scale_without_operator(cluster: MqttCluster) -> None:
    with _operator_dies_again_and_again():
        _scale_cores(cluster)
        _scale_replicants(cluster)


OPERATIONS: Final[dict[str, Operation]] = {
    "cores": Operation(_scale_cores, ("replicant", "redis"), gap_max_s=5.0),
    "replicants": Operation(_scale_replicants, ("core", "redis"), gap_max_s=5.0),
    "everything": Operation(_change_everything, ("core", "replicant", "redis")),
    "pods": Operation(_delete_all_pods),
    "redis": Operation(_pause_redis, keeps_connections=True),
    "operator": Operation(_scale_without_operator, ("redis",)),
}


def _become_ready(cluster: MqttCluster, after_s: float = 0.0) -> None:
    time.sleep(after_s)
    cluster.wait_ready(READY_MAX_S)


@contextmanager
def _operator_dies_again_and_again() -> Iterator[None]:
    over = threading.Event()

    def kill() -> None:
        while not over.wait(KILLED_EVERY_S):
            try:
                Namespace(SYSTEM).kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
            except KubectlError:
                continue  # there was none to kill

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


# --- how it is looked on ----------------------------------------------------------------------------------------------


async def done(name: str, cluster: MqttCluster, events: Sequence[AnyEvent]) -> list[str]:
    """Do it; what was wrong, in a sentence each."""
    operation, before, since = OPERATIONS[name], _restarts(cluster), len(events)
    with _Watch(cluster, operation.resting) as watch:
        await asyncio.to_thread(operation.do, cluster)
    during = events[since:]
    gap_s = _longest_gap_s(during)
    print(f"{name}: longest time without an acknowledgement {gap_s:.1f} s; unready at once {watch.worst}", flush=True)
    wrong = [f"{count} {kind} pods weren't ready at once" for kind, count in watch.worst.items() if count > 1]
    if gap_s > operation.gap_max_s:
        wrong.append(f"nothing was acknowledged for {gap_s:.1f} s")
    if operation.keeps_connections:
        closed = sum(
            isinstance(event, Closed) and event.by_server and event.reason != SESSION_TAKEN_OVER for event in during
        )
        if closed:
            wrong.append(f"{closed} connections were closed")
        if _restarts(cluster) != before:
            wrong.append("pods were restarted")
    return wrong


class _Watch:
    """`worst`: of each kind, how many pods were missing at once of the number that it has when the watch begins."""

    def __init__(self, cluster: MqttCluster, kinds: Sequence[str]) -> None:
        self.worst = dict.fromkeys(kinds, 0)
        self._wanted = {kind: len(cluster.ready_pods(kind)) for kind in kinds}
        self._pods: dict[str, Json] = {}
        self._is_whole = False
        """All pods were told of that there were when it began."""
        namespace, watch = cluster.namespace.name, ("--watch", "--output-watch-events", "--output=json")
        command = ("kubectl", "--namespace", namespace, "get", "pods", "--selector", cluster.selector, *watch)
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> _Watch:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._reader.join()
        assert self._is_whole, "the pods weren't seen: what wasn't ready isn't known"

    def _read(self) -> None:
        """A line a change; the first ones are of the pods that there are."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            change = json.loads(line)
            self._changed(change["type"], change["object"])

    def _changed(self, change: str, pod: Json) -> None:
        name = pod["metadata"]["name"]
        if change == "DELETED":
            self._pods.pop(name, None)
        else:
            self._pods[name] = pod
        ready = Counter(_kind_of(pod) for pod in self._pods.values() if is_ready(pod))
        missing = {kind: wanted - ready[kind] for kind, wanted in self._wanted.items()}
        self._is_whole = self._is_whole or max(missing.values(), default=0) <= 0
        for kind in missing if self._is_whole else ():
            self.worst[kind] = max(self.worst[kind], missing[kind])


def _kind_of(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/component"])


def _longest_gap_s(events: Sequence[AnyEvent]) -> float:
    """Without any message acknowledged."""
    times = [event.at for event in events if isinstance(event, Acknowledged)]
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def _restarts(cluster: MqttCluster) -> dict[str, int]:
    """Of each pod that there is."""
    return {
        pod["metadata"]["uid"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))
        for pod in cluster.namespace.list("pods", cluster.selector)
    }
