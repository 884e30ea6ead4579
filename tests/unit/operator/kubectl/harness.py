"""`kubectl flockmq` with all its parts but Kubernetes: a kubeconfig, an API server over HTTP with a World's objects,
and pods in which the broker's own `flockmq ctl` asks the broker's own management server."""

import asyncio
import copy
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from flockmq.management.view import AlarmRow, ClusterState, Evacuated, LogState, Member, NodeLog
from flockmq_operator.kube import RESOURCES, Refused
from flockmq_operator.kubectl.ctl import API_KEY
from flockmq_operator.kubectl.execute import PROTOCOL
from flockmq_operator.kubectl.main import parser, run
from flockmq_operator.manifest import Manifest, Ref
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.operator.world import NAMESPACE, World, mqtt_cluster, pod

CREATED = "2026-11-26T00:00:00Z"
NODE_OF = {"core": "flockmq", "replicant": "flockmq", "redis": "redis"}
"""Component → container."""


def labels(component: str) -> dict[str, str]:
    instance = {"app.kubernetes.io/name": "flockmq", "app.kubernetes.io/instance": "demo"}
    return {**instance, "app.kubernetes.io/component": component, "app.kubernetes.io/managed-by": "flockmq-operator"}


def part(name: str, component: str, *, tls: bool = False) -> Manifest:
    """A pod of `demo` that is ready."""
    made = pod(name, labels(component), "1")
    probe = {"httpGet": {"path": "/readyz", "port": "management", "scheme": "HTTPS" if tls else "HTTP"}}
    container = {"name": NODE_OF[component], "image": f"{component}:1", "readinessProbe": probe}
    made["metadata"]["creationTimestamp"] = CREATED
    made["spec"] = {"containers": [container], "nodeName": "worker-1"}
    state = {"name": container["name"], "ready": True, "restartCount": 0, "state": {"running": {}}}
    made["status"] |= {"phase": "Running", "containerStatuses": [state]}
    return made


def waiting(made: Manifest, reason: str = "CrashLoopBackOff", restarts: int = 7, said: str = "") -> Manifest:
    """The same pod, whose container can't run."""
    changed = copy.deepcopy(made)
    state = changed["status"]["containerStatuses"][0]
    state |= {"ready": False, "restartCount": restarts, "state": {"waiting": {"reason": reason}}}
    if said:
        state["lastState"] = {"terminated": {"message": said}}
    changed["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": CREATED}]
    return changed


def conditions(**statuses: tuple[str, str, str]) -> Manifest:
    """A status: type → (status, reason, message)."""
    return {
        "observedGeneration": 1,
        "endpoint": "demo.fleet.svc:1883",
        "conditions": [
            {"type": kind, "status": said[0], "reason": said[1], "message": said[2], "lastTransitionTime": CREATED}
            for kind, said in statuses.items()
        ],
    }


WELL = conditions(
    Ready=("True", "AllReady", "all parts are ready"),
    Available=("True", "Serving", "clients are served"),
    Reconciling=("False", "UpToDate", "nothing is left to do"),
    Stalled=("False", "NotStalled", "nothing is wrong"),
    CoresReady=("True", "AllReady", "3 of 3 ready"),
    ReplicantsReady=("True", "AllReady", "2 of 2 ready"),
    RedisReady=("True", "Answers", "it answers"),
    ReportSucceeded=("Unknown", "NotRunYet", "its schedule is '17 2 * * *'"),
)


def member(name: str, role: str, connections: int, **more: object) -> Member:
    reported = {"version": "0.1.0", "host": "h", "slots": 0, "heard": True, "ready": True} | more
    return Member(name=name, incarnation=f"{name}@1", role=role, connections=connections, **reported)  # type: ignore[arg-type]


class Node:
    """All parts of a node that management asks, with answers that a test sets."""

    def __init__(self) -> None:
        self.alarms: list[AlarmRow] = []
        self.nodes = [
            *(member(f"demo-core-{number}", "core", 0, leads=number == 1) for number in range(3)),
            *(member(f"demo-replicant-{name}", "replicant", 20) for name in "ab"),
        ]
        self.is_evacuated, self.clients, self.rate, self.takes_away = False, 20, 500.0, 0

    async def members(self) -> ClusterState:
        return ClusterState(
            told_by="demo-core-0", stale=False, leader="demo-core-1", slots_without_owner=0, nodes=self.nodes
        )

    async def logs(self) -> list[NodeLog]:
        def log_of(node: Member) -> NodeLog:
            shards = {shard: LogState(applied="1-7", digests={}, lag_seconds=lag) for shard, lag in LAGS.items()}
            return NodeLog(name=node.name, incarnation=node.incarnation, role=node.role, shards=shards)

        return [log_of(node) for node in self.nodes if node.heard]

    def rows(self) -> list[AlarmRow]:
        return self.alarms

    def start(self) -> None:
        self.is_evacuated = True

    def stop(self) -> None:
        self.is_evacuated = False

    def status(self) -> Evacuated:
        """Some clients leave each time that it is asked."""
        told = Evacuated(is_on=self.is_evacuated, clients=self.clients, evicted=0, rate=self.rate)
        self.clients = max(self.clients - self.takes_away, 0)
        return told


LAGS = {"cluster": 0.1, "route": 0.3}


class Town:
    """MqttCluster `demo` of three cores, two replicants and a Redis, and whoever asks for it."""

    def __init__(self, folder: Path) -> None:
        cores = [part(f"demo-core-{number}", "core") for number in range(3)]
        replicants = [part(f"demo-replicant-{name}", "replicant") for name in "ab"]
        self.world = World(mqtt_cluster(status=WELL), *cores, *replicants, part("demo-redis-0", "redis"))
        self.node = Node()
        self.silent: set[str] = set()
        """Pods in which no command can be run."""
        self.commands: list[tuple[str, list[str]]] = []
        """(pod, command), of those that were run."""
        self.folder = folder
        self.management_port = 0
        self._key_file = folder / "api-key"
        self._key_file.write_text(KEY)

    async def run(self, *arguments: str) -> None:
        """The command, to its end. Raises Failed, Refused and Unreachable."""
        await run(parser().parse_args([*arguments, "--kubeconfig", str(self.folder / "kubeconfig")]))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        for kind, resource in RESOURCES.items():
            match request.path.removeprefix(f"{resource.base}/").split("/"):
                case [resource.plural]:
                    return await self._listed(kind, request)
                case ["namespaces", str(), resource.plural]:
                    return await self._listed(kind, request)
                case ["namespaces", str(), resource.plural, name]:
                    return await self._one(kind, name, request)
                case ["namespaces", str(), resource.plural, name, "exec"]:
                    return await self._executed(name, request)
        return web.json_response({"message": f"nothing at {request.path}"}, status=404)

    async def _listed(self, kind: str, request: web.Request) -> web.Response:
        wanted = [pair.partition("=") for pair in request.query.get("labelSelector", "").split(",") if pair]
        return web.json_response(
            {"items": await self.world.list(kind, NAMESPACE, {key: value for key, _, value in wanted})}
        )

    async def _one(self, kind: str, name: str, request: web.Request) -> web.Response:
        try:
            if request.method == "PATCH":
                return web.json_response(await self.world.patch(await request.json()))
            if request.method == "PUT":
                return web.json_response(await self.world.replace(await request.json()))
            found = await self.world.get(kind, NAMESPACE, name)
        except Refused as refused:
            return web.json_response({"message": str(refused)}, status=refused.status)
        if found is None:
            return web.json_response({"message": f"{name} not found"}, status=404)
        return web.json_response(found)

    async def _executed(self, name: str, request: web.Request) -> web.StreamResponse:
        if name in self.silent:
            return web.json_response({"message": "container not found"}, status=500)
        assert Ref("Pod", name) in self.world.objects
        stream = web.WebSocketResponse(protocols=(PROTOCOL,))
        await stream.prepare(request)
        self.commands.append((name, request.query.getall("command")))
        code, *texts = await self._ctl(request.query.getall("command"))
        for channel, text in enumerate(texts, start=1):
            await stream.send_bytes(bytes([channel]) + text)
        cause = {"details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
        status = {"status": "Failure", "reason": "NonZeroExitCode", **cause} if code else {"status": "Success"}
        await stream.send_bytes(bytes([3]) + str(status).replace("'", '"').encode())
        await stream.close()
        return stream

    async def _ctl(self, command: Sequence[str]) -> tuple[int, bytes, bytes]:
        """`flockmq ctl` as the pod has it, but at this machine's port and with this machine's file."""
        assert command[:2] == ["flockmq", "ctl"]
        words = [str(self._key_file) if word == API_KEY else word for word in command[2:]]
        url = ("--url", f"http://127.0.0.1:{self.management_port}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "flockmq", "ctl", *url, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        assert process.returncode is not None
        return process.returncode, stdout, stderr


def write_kubeconfig(folder: Path, port: int) -> None:
    (folder / "kubeconfig").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nusers: [{name: u, user: {token: t}}]\n"
        f"clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n"
        f"contexts: [{{name: c, context: {{cluster: k, user: u, namespace: {NAMESPACE}}}}}]\n"
    )


@asynccontextmanager
async def living(folder: Path) -> AsyncIterator[Town]:
    town = Town(folder)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", town.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    write_kubeconfig(folder, runner.addresses[0][1])
    async with managed(town.node, FakeLog()) as town.management_port:
        yield town
    await runner.cleanup()
