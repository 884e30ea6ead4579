"""`kubectl flockmq drain`: a node's clients go to other nodes at the cluster's pace, while its pod runs on."""

import asyncio
import time
from collections.abc import Callable

from flockmq_operator.kube import Kube
from flockmq_operator.kubectl.ctl import Execute, Row, ask, component_of
from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.manifest import Manifest

LOOK_S = 2.0
"""Between two looks at how many are left."""
WAIT_S = 3600.0
"""How long `--wait` waits unless it is told another time."""
UNANSWERED_MAX = 5
"""Looks in a row that may fail: a node that is short of time answers the next."""

Say = Callable[[str], None]


async def drain(kube: Kube, execute: Execute, namespace: str, name: str, say: Say, wait_s: float | None) -> None:
    """Begin; `wait_s`: and wait so long until the node is empty. Raises Failed, Refused and Unreachable."""
    pod = await node_pod(kube, namespace, name)
    (state,) = await ask(execute, pod, "evacuate", "start", key=True)
    undo = f"kubectl flockmq drain {name} --namespace {namespace} --undo"
    say(f"{name} takes no clients, and sends its {state['clients']} to other nodes, until: {undo}")
    if wait_s is not None:
        await wait_until_empty(execute, pod, say, wait_s)


async def undo(kube: Kube, execute: Execute, namespace: str, name: str, say: Say) -> None:
    """Raises Failed, Refused and Unreachable."""
    pod = await node_pod(kube, namespace, name)
    await ask(execute, pod, "evacuate", "stop", key=True)
    say(f"{name} takes clients again; those that left come back when they connect anew")


async def node_pod(kube: Kube, namespace: str, name: str) -> Manifest:
    """Raises Failed, Refused and Unreachable."""
    pod = await kube.get("Pod", namespace, name)
    if pod is None:
        raise Failed(
            f"there is no pod {name} in namespace {namespace}: kubectl flockmq status NAME lists those of a cluster"
        )
    labels = pod["metadata"].get("labels") or {}
    if labels.get("app.kubernetes.io/name") != "flockmq" or component_of(pod) not in ("core", "replicant"):
        raise Failed(f"pod {name} in namespace {namespace} is no node of a MqttCluster: name a core or a replicant")
    return pod


async def wait_until_empty(execute: Execute, pod: Manifest, say: Say, wait_s: float) -> None:
    """Raises Failed."""
    name, deadline = pod["metadata"]["name"], time.monotonic() + wait_s
    before, unanswered = "", 0
    while True:
        await asyncio.sleep(LOOK_S)  # first: the node asks others whether they take clients before it begins
        try:
            (state,) = await ask(execute, pod, "evacuate", "status", key=True)
            unanswered = 0
        except Failed:
            unanswered += 1
            if unanswered == UNANSWERED_MAX:
                raise
        else:
            line = f"{name}: {progress(state)}"
            if line != before:
                say(line)
            before = line
            if not state["is_on"]:
                raise Failed(f"{name}: its evacuation has ended: the node was restarted, or somebody said --undo")
            if not state["clients"]:
                return
        if time.monotonic() > deadline:
            raise Failed(f"{name}: clients are left after {wait_s:.0f} s; it goes on. {before}")


def progress(state: Row) -> str:
    if not state["clients"]:
        return "empty"
    pace = f"{state['rate']:.0f} leave a second" if state["rate"] else "they stay while no other node takes clients"
    return f"{state['clients']} clients are left; {pace}"
