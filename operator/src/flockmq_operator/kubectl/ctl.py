"""`flockmq ctl` in a pod: what the broker itself knows of the cluster.

Any node answers for the whole cluster; a replicant asks a core, and tells what it knows itself if it reaches none. The
ready cores are asked first, one after the other, until one answers; then a ready replicant, then the other cores.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from flockmq_operator.kube import Refused, Unreachable
from flockmq_operator.kubectl.execute import Ended
from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import MANAGEMENT_PORT, SECRETS_DIR
from flockmq_operator.resources.labels import COMPONENT
from flockmq_operator.status.workload import ordinal, pod_there

CONTAINER = "flockmq"
API_KEY = f"{SECRETS_DIR}/api-key"
"""The file with an admin's key in each node's pod, so that whoever may run commands there needs no other."""
CERTIFICATE = f"{SECRETS_DIR}/management/tls.crt"
ASKED_MAX = 4
"""Pods that are asked, one after the other, until one answers; each may take COMMAND_S."""

Row = dict[str, Any]
Execute = Callable[[str, str, Sequence[str]], Awaitable[Ended]]
"""(pod, container, command): runs it; raises Refused and Unreachable."""


class Told(NamedTuple):
    """What a node tells of the cluster."""

    by: str
    """The pod that was asked."""
    nodes: dict[str, Row]
    """Pod → its node's row of `flockmq ctl cluster status`."""
    lag_s: dict[str, float]
    """Pod → how far its node's tables are behind the log, in the shard in which that is most."""
    alarms: list[Row]
    """Rows of `flockmq ctl alarms list`."""
    unowned_slots: int
    is_stale: bool
    """Whether the node that tells may not know the newest."""


class Silent(NamedTuple):
    """No node tells anything."""

    why: tuple[str, ...]
    """What came of asking each pod; empty: none runs."""


async def ask_cluster(execute: Execute, pods: Iterable[Manifest]) -> Told | Silent:
    """What the first of these pods that answers tells."""
    silent = []
    for pod in asked_pods(pods):
        try:
            return await _ask_node(execute, pod)
        except Failed as failed:
            silent.append(str(failed))
    return Silent(tuple(silent))


async def _ask_node(execute: Execute, pod: Manifest) -> Told:
    """Raises Failed."""
    *nodes, cluster = await ask(execute, pod, "cluster", "status")
    alarms = await ask(execute, pod, "alarms", "list")
    logs = await ask(execute, pod, "rlog", "status")
    lags: dict[str, float] = {}
    for row in logs:
        if "lag_seconds" in row:
            lags[row["node"]] = max(lags.get(row["node"], 0.0), row["lag_seconds"])
    heard_last = sorted(nodes, key=lambda row: row["state"] != "unheard")  # a former incarnation may still be listed
    return Told(
        by=name_of(pod),
        nodes={row["node"]: row for row in heard_last},
        lag_s=lags,
        alarms=alarms,
        unowned_slots=cluster["slots_without_owner"],
        is_stale=cluster["stale"],
    )


async def ask(execute: Execute, pod: Manifest, *words: str, key: bool = False) -> list[Row]:
    """The rows that `flockmq ctl WORDS` prints in this pod; `key`: with the API key. Raises Failed."""
    try:
        ended = await execute(name_of(pod), CONTAINER, command(pod, *words, key=key))
    except (Refused, Unreachable) as error:
        raise Failed(str(error)) from None
    if ended.code:
        said = ended.stderr.strip().splitlines() or [f"it ended with {ended.code}"]
        raise Failed(f"pod {name_of(pod)}: flockmq ctl {' '.join(words)}: {said[-1]}")
    try:
        return [json.loads(line) for line in ended.stdout.splitlines()]
    except ValueError:
        raise Failed(f"pod {name_of(pod)}: flockmq ctl {' '.join(words)} printed no JSON: is it FlockMQ?") from None


def command(pod: Manifest, *words: str, key: bool = False) -> list[str]:
    """`flockmq ctl` for the management port of this very pod."""
    pinned = ["--url", f"https://127.0.0.1:{MANAGEMENT_PORT}", "--pin", CERTIFICATE] if has_tls(pod) else []
    keyed = ["--api-key-file", API_KEY] if key else []
    return ["flockmq", "ctl", "--json", *pinned, *keyed, *words]


def has_tls(pod: Manifest) -> bool:
    """Whether its management port speaks TLS, by its probe: the spec may have changed since the pod was made."""
    for container in pod["spec"].get("containers", ()):
        if container["name"] == CONTAINER:
            return bool(container.get("readinessProbe", {}).get("httpGet", {}).get("scheme") == "HTTPS")
    return False


def asked_pods(pods: Iterable[Manifest]) -> list[Manifest]:
    """Those in which a node may answer, the best first."""
    running = [pod for pod in pods if is_running(pod)]
    cores = sorted((pod for pod in running if component_of(pod) == "core"), key=ordinal)
    ready = [pod for pod in cores if pod_there(pod)]
    replicants = [pod for pod in running if component_of(pod) == "replicant" and pod_there(pod)]
    unready = [pod for pod in cores if not pod_there(pod)]
    return [*ready[: ASKED_MAX - 1], *sorted(replicants, key=name_of)[:1], *unready][:ASKED_MAX]


def is_running(pod: Manifest) -> bool:
    for container in pod.get("status", {}).get("containerStatuses") or ():
        if container["name"] == CONTAINER:
            return "running" in container.get("state", {})
    return False


def component_of(pod: Manifest) -> str:
    component: str = pod["metadata"]["labels"].get(COMPONENT, "")
    return component


def name_of(item: Manifest) -> str:
    name: str = item["metadata"]["name"]
    return name
