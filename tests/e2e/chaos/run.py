"""`make chaos MINUTES=10`: pods of a cluster are killed at random under load, and each message is accounted for.

What tests/faults/ does with processes, on a real Kubernetes: its clients and its judge, with pods that are killed (no
time to hand anything over) or drained. Clients come by the Service's NodePort. At most one core, one replicant and one
pod of Redis are away at a time; faults of different components overlap. Kinds and moments come from SEED. The last line
is

    faults=… acked=… lost=… duplicated=… reordered=…

With --operations nothing is killed at random: what operators do to a cluster is done under the same load, one operation
after the other (operations.py).

and it ends with 1 unless the last three are 0 and nothing else was found. The history is left in --out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import operations
import uvloop
from conftest import SYSTEM, install
from harness import ROOT, SERVICE_HOST, SERVICE_PORT, MqttCluster, Namespace, helm, is_ready, kubectl

from faults.campaign import say
from faults.tally import Tally
from judges import judge as checker
from judges.judge import Rules, judge
from load import history
from load.clients import SESSIONS, Load
from load.history import AnyEvent, FaultBegan, FaultEnded
from load.stage import Node, Stage

HERE: Final = pathlib.Path(__file__).resolve().parent
SERVICE: Final = tuple(Node(f"service-{way}", (SERVICE_HOST, int(SERVICE_PORT))) for way in "ab")
"""Who it leads to isn't known from outside, so any fault may touch either. Two, for clients that rove."""
EVERYBODY: Final = tuple(node.name for node in SERVICE)
READY_MAX_S: Final = 240.0
CALM_S: Final = (2.0, 12.0)
"""Between a fault's end and the next one of its component."""
CHURNERS: Final = 2
"""Clients of each kind of session that subscribe and unsubscribe all the time."""
CHAPTER_S: Final = 120.0
SETTLE_MAX_S: Final = 60.0


class Kind(NamedTuple):
    name: str
    component: str
    do: Callable[[MqttCluster, str], Awaitable[None]]


async def kill(cluster: MqttCluster, pod: str) -> None:
    await asyncio.to_thread(cluster.kill, pod)


async def drain(cluster: MqttCluster, pod: str) -> None:
    await asyncio.to_thread(cluster.namespace.kubectl, "delete", "pod", pod, "--wait=false")


KINDS: Final = (
    Kind("core killed", "core", kill),
    Kind("core drained", "core", drain),
    Kind("replicant killed", "replicant", kill),
    Kind("replicant drained", "replicant", drain),
    Kind("redis killed", "redis", kill),
    Kind("redis drained", "redis", drain),
)


async def torment(cluster: MqttCluster, component: str, dice: random.Random, stage: Stage, until: float) -> None:
    """One fault after another to the pods of a component, each when all of them are ready again."""
    while (await asyncio.sleep(dice.uniform(*CALM_S)), time.monotonic())[1] < until:
        kind = dice.choice([kind for kind in KINDS if kind.component == component])
        pods = await all_ready(cluster, component)
        victim = pods[dice.randrange(len(pods))]
        say(f"{stage.now():9.1f} s  {kind.name}: {victim['metadata']['name']}")
        stage.record(FaultBegan(stage.now(), kind.name, EVERYBODY))
        await kind.do(cluster, victim["metadata"]["name"])
        await all_ready(cluster, component, without=victim["metadata"]["uid"])
        stage.record(FaultEnded(stage.now(), kind.name, EVERYBODY))


async def all_ready(cluster: MqttCluster, component: str, without: str = "") -> list[dict[str, dict[str, str]]]:
    """The component's pods, once three are ready and no other is left."""
    deadline = time.monotonic() + READY_MAX_S
    while True:
        pods = await asyncio.to_thread(cluster.pods, component)
        uids = [pod["metadata"]["uid"] for pod in pods]
        if len(pods) == 3 and all(map(is_ready, pods)) and without not in uids:
            return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
        assert time.monotonic() < deadline, f"after {READY_MAX_S} s not three {component} pods are ready"
        await asyncio.sleep(1)


async def campaign(options: argparse.Namespace, cluster: MqttCluster) -> int:
    events: list[AnyEvent] = []
    dice = random.Random(options.seed)
    stage = Stage(events.append, lambda: SERVICE, random.Random(options.seed))
    tally = Tally()
    ends = time.monotonic() + options.minutes * 60
    sessions = SESSIONS if options.sessions == "both" else (options.sessions,)
    number = 0
    while (left := ends - time.monotonic()) > 0:
        number += 1
        events.clear()
        load = Load(stage, number, "base", options.rate, sessions=sessions, churners=CHURNERS)
        await load.start()
        until = time.monotonic() + min(left, CHAPTER_S)
        await asyncio.gather(
            *(
                torment(cluster, component, random.Random(dice.random()), stage, until)
                for component in options.components
            )
        )
        await load.settle(SETTLE_MAX_S)
        verdict = await judged(events)
        tally.add(events, verdict)
        say(f"chapter {number}: {verdict.acknowledged} acked, {dict(verdict.by_kind()) or 'nothing found'}")
        if verdict.findings:
            say(*(f"  {finding}" for finding in verdict.findings[:20]))
            history.save(events, options.out / f"chapter-{number}.jsonl")
            (options.out / f"chapter-{number}.logs").write_text(logs(cluster))
        await load.leave(SETTLE_MAX_S)
    say(*tally.table(), tally.last_line())
    return int(tally.found.total() > 0)


async def operate(options: argparse.Namespace, cluster: MqttCluster) -> int:
    events: list[AnyEvent] = []
    stage = Stage(events.append, lambda: SERVICE, random.Random(options.seed))
    tally, wrong = Tally(), 0
    for number, name in enumerate(options.operations or operations.OPERATIONS, 1):
        events.clear()
        load = Load(stage, number, "base", options.rate, churners=CHURNERS)
        await load.start()
        say(f"{stage.now():9.1f} s  {name}")
        stage.record(FaultBegan(stage.now(), name, EVERYBODY))
        found = await operations.done(name, cluster, events)
        stage.record(FaultEnded(stage.now(), name, EVERYBODY))
        await load.settle(SETTLE_MAX_S)
        verdict = await judged(events)
        tally.add(events, verdict)
        say(f"{name}: {verdict.acknowledged} acked, {dict(verdict.by_kind()) or 'nothing found'}")
        say(*(f"  {text}" for text in [*found, *map(str, verdict.findings[:20])]))
        wrong += len(found)
        if verdict.findings:
            history.save(events, options.out / f"{name}.jsonl")
            (options.out / f"{name}.logs").write_text(logs(cluster))
        await load.leave(SETTLE_MAX_S)
    say(*tally.table(), tally.last_line())
    return int(wrong + tally.found.total() > 0)


async def judged(events: Sequence[AnyEvent]) -> checker.Verdict:
    """What is late isn't lost."""
    rules = Rules(takeover_max_s=10.0)
    deadline = time.monotonic() + SETTLE_MAX_S
    while True:
        verdict = judge(events, rules)
        if not verdict.count(checker.LOST) or time.monotonic() > deadline:
            return verdict
        await asyncio.sleep(1)


def logs(cluster: MqttCluster) -> str:
    return cluster.namespace.kubectl(
        "logs", "--selector", cluster.selector, "--all-containers", "--prefix", "--tail=300", "--max-log-requests=30"
    )


def installed(options: argparse.Namespace) -> MqttCluster:
    """The operator, and the cluster, Ready. What is there already is used."""
    if "flockmq" not in helm("list", "--namespace", SYSTEM, "--short").split():
        install("--set=clusterWide=true")
    namespace = Namespace("flockmq-chaos")
    namespace.create()
    manifest = (HERE / "cluster.yaml").read_text()
    namespace.apply(manifest)
    cluster = MqttCluster(namespace, "chaos")
    cluster.wait_ready(timeout_s=READY_MAX_S * 2)
    say(
        f"Kubernetes {json.loads(kubectl('version', '--output=json'))['serverVersion']['gitVersion']}; cluster is Ready"
    )
    return cluster


def main() -> int:
    parser = argparse.ArgumentParser(description="Pods are killed at random under load.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", choices=("clean", "durable", "both"), default="both")
    parser.add_argument("--rate", type=float, default=100.0, help="messages published a second (default: 100)")
    parser.add_argument("--components", nargs="*", default=["core", "replicant", "redis"])
    parser.add_argument("--operations", nargs="*", choices=operations.OPERATIONS, help="these, or all (default: none)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/chaos")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cluster = installed(options)
    try:
        return uvloop.run((campaign if options.operations is None else operate)(options, cluster))
    finally:
        if not os.environ.get("E2E_KEEP"):
            cluster.namespace.delete()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
