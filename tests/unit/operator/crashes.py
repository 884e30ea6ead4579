"""An operator that is killed after any of its writes, and the next one, which goes on with what Kubernetes holds.

A road is what an operator that isn't killed does, pass by pass, until nothing is left to do. A killed one's successor
must come back to that road: a state that the road has, too, leads to the same end, for an operator remembers nothing.
On the way `Guard` judges after each write.
"""

import copy
import json
from base64 import b64decode
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

import pytest

from flockmq_operator.certificates import Family, Held, of_links, of_redis, read
from flockmq_operator.management_api import ManagementApi
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import Node
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import COMPONENT, RESTORES
from flockmq_operator.settings import Settings
from flockmq_operator.workloads import needs, template_of
from unit.operator.world import NAMESPACE, SETTINGS, World, copied

KEY = (NAMESPACE, "demo")
DEMO = Ref("MqttCluster", "demo")
CORES, REDIS = Ref("StatefulSet", "demo-core"), Ref("StatefulSet", "demo-redis")
REPLICANTS = Ref("Deployment", "demo-replicant")
ROUNDS_MAX = 60
PASSES_MAX = 12

T = TypeVar("T")


class Killed(BaseException):
    """The operator's process is gone: nothing catches this."""


class Operated(Protocol):
    """What one operator after the other looks at."""

    reconciler: Any

    async def look(self) -> object: ...


async def all_passes(town: Operated, another_operator: Callable[[], object]) -> None:
    """More passes than there is to do. Behind a killed operator another one goes on."""
    for _ in range(PASSES_MAX):
        try:
            await town.look()
        except Killed:
            town.reconciler = another_operator()


class Mortality:
    """Kills an operator after so many of the things that it says: to Kubernetes, and to a core."""

    def __init__(self, dies_after: int, judge: Callable[[], None] = lambda: None) -> None:
        """`judge` is called after each."""
        self.has_killed = False
        self._left = dies_after
        self._judge = judge

    def watch(self, monkeypatch: pytest.MonkeyPatch, world: World, core: type[ManagementApi]) -> None:
        for name in ("apply", "patch", "replace", "create", "delete"):
            monkeypatch.setattr(world, name, self._counted(getattr(world, name)))
        ask = core.ask

        async def asked(api: ManagementApi, method: str, path: str, body: object = None) -> tuple[bytes, str]:
            answer = await ask(api, method, path, body)
            if method != "GET":
                self._said()
            return answer

        monkeypatch.setattr(core, "ask", asked)

    def _counted(self, write: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def counted(*arguments: object) -> T:
            found = await write(*arguments)
            self._said()
            return found

        return counted

    def _said(self) -> None:
        self._judge()
        self._left -= 1
        if not self._left:
            self.has_killed = True
            raise Killed


class Guard:
    """What holds after each write of an operator."""

    def __init__(self, least_replicants: int = 0, *, is_whole: bool = True) -> None:
        """`least_replicants`: there are never fewer. `is_whole`: no pod ends but one at a time."""
        self._least = least_replicants
        self._is_whole = is_whole
        self._passwords: dict[tuple[str, str], str] = {}
        self._keys: frozenset[str] = frozenset()
        self._cores = 0

    def judge(self, world: "MortalWorld") -> None:
        if self._is_whole:
            assert len(world.ended) <= 1, f"two pods end at a time: {world.ended}"
            assert len(world.rolling) <= 1, f"two parts are rolled out at a time: {world.rolling}"
        for name, item in world.objects.items():
            template = template_of(item) if name.kind in ("StatefulSet", "Deployment", "CronJob") else None
            for needed in needs(template["spec"]) if template else ():
                assert needed in world.objects, f"{name} has pods that need {needed}"
        for pod in (*world.pods("core"), *world.pods("redis")):
            lacking = {needed for needed in needs(pod["spec"]) if needed.kind != "PersistentVolumeClaim"}
            assert lacking <= world.objects.keys(), f"{ref(pod)} couldn't start again"
        if REPLICANTS in world.objects:
            assert world.objects[REPLICANTS]["spec"]["replicas"] >= self._least, "fewer replicants than there may be"
        cores = world.objects[CORES]["spec"]["replicas"] if CORES in world.objects else 0
        assert cores >= self._cores - 1 or not cores, "two cores go at a time"
        self._cores = cores
        self._judge_secrets(world)

    def _judge_secrets(self, world: "MortalWorld") -> None:
        """What nodes authenticate with never becomes another thing at once."""
        for name in ("demo-redis", "demo-api-key"):
            for key, value in (world.objects.get(Ref("Secret", name), {}).get("data") or {}).items():
                assert self._passwords.setdefault((name, key), value) == value, f"{name} has another {key}"
        keys = frozenset(decoded(world.objects.get(Ref("Secret", "demo-cluster-key")), "key").split())
        assert not self._keys or not keys or keys & self._keys, "nodes don't know one another any more"
        self._keys = keys or self._keys


class MortalWorld(World):
    """`dies_after`: the operator's writes until it is killed; None: it isn't."""

    def __init__(self, guard: Guard, *objects: Manifest) -> None:
        super().__init__(*objects)
        self.guard = guard
        self.count = 0
        self.dies_after: int | None = None
        self.ended: list[Ref] = []
        """Pods that the operator has deleted, and that haven't come back."""
        self.rolling: set[Ref] = set()
        """Workloads whose pods aren't of its newest template yet."""

    def fork(self) -> "MortalWorld":
        other = MortalWorld(copy.deepcopy(self.guard))
        other.objects, other.now = copied(self.objects), self.now
        other.ended, other.rolling = list(self.ended), set(self.rolling)
        return other

    async def apply(self, manifest: Manifest, subresource: str = "") -> Manifest:
        before = self.objects.get(ref(manifest))
        former = template_of(before) if before and not subresource else None
        live = await super().apply(manifest, subresource)
        if former and ref(manifest).kind in ("StatefulSet", "Deployment") and former != template_of(live):
            self.rolling.add(ref(manifest))
        self._wrote()
        return live

    async def patch(self, manifest: Manifest) -> Manifest:
        live = await super().patch(manifest)
        self._wrote()
        return live

    async def create(self, manifest: Manifest) -> Manifest:
        live = await super().create(manifest)
        self._wrote()
        return live

    async def delete(self, live: Manifest) -> None:
        await super().delete(live)
        if live["kind"] == "Pod":
            self.ended.append(ref(live))
        self._wrote()

    def _wrote(self) -> None:
        self.count += 1
        self.guard.judge(self)
        if self.dies_after is not None and self.count >= self.dies_after:
            raise Killed

    def settle(self) -> None:
        """Kubernetes has done all that was asked of it."""
        for name in (CORES, REDIS):
            if name in self.objects:
                self._end_pods(self.objects[name])
        super().settle()
        self.ended.clear()
        for name in list(self.rolling):
            pods = [pod for pod in self.pods("core" if name == CORES else "redis") if name != REPLICANTS]
            newest = self.objects[name]["status"]["updateRevision"]
            if all(pod["metadata"]["labels"]["controller-revision-hash"] == newest for pod in pods):
                self.rolling.discard(name)
        for name, item in self.objects.items():
            if name.kind == "Job" and "status" not in item and RESTORES in item["metadata"].get("annotations", {}):
                item["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}

    def _end_pods(self, live: Manifest) -> None:
        """Those that the StatefulSet has no more, the volumes of cores with them."""
        retention = live["spec"].get("persistentVolumeClaimRetentionPolicy", {})
        for pod in list(self.pods(live["metadata"]["labels"][COMPONENT])):
            name = pod["metadata"]["name"]
            if int(name.rpartition("-")[2]) >= live["spec"]["replicas"]:
                del self.objects[ref(pod)]
                if retention.get("whenScaled") == "Delete":
                    self.objects.pop(Ref("PersistentVolumeClaim", f"data-{name}"), None)

    def edit(self, spec: Manifest) -> None:
        body = self.objects[DEMO]
        body["spec"] = spec
        body["metadata"]["generation"] += 1


# Roads


class Stage(NamedTuple):
    world: MortalWorld
    """Before a pass."""
    writes: int
    """Of that pass."""


class Road(NamedTuple):
    stages: list[Stage]
    states: set[str]
    """After each pass."""
    end: str


class Walk:
    """`step`: how much time passes between two passes; `clock` has the operator see the time of a world."""

    def __init__(
        self, clock: Callable[[datetime], None], step: timedelta = timedelta(), settings: Settings = SETTINGS
    ) -> None:
        self._clock = clock
        self._step = step
        self._settings = settings

    async def road(self, world: MortalWorld) -> Road:
        stages: list[Stage] = []
        states: list[str] = []
        operator = new_operator(world, self._settings)
        for _ in range(ROUNDS_MAX):
            before, count = world.fork(), world.count
            await self._pass(world, operator)
            stages.append(Stage(before, world.count - count))
            states.append(state_of(world))
            if not stages[-1].writes and len(states) > 1 and states[-1] == states[-2]:
                return Road(stages, set(states), states[-1])
            self._go_on(world)
        raise AssertionError("it doesn't settle")

    async def killed_anywhere(self, road: Road) -> int:
        """Kill an operator after each write of the road. Returns how often that was."""
        times = 0
        for stage in road.stages:
            for writes in range(1, stage.writes + 1):
                world = stage.world.fork()
                world.dies_after = writes
                try:
                    await self._pass(world, new_operator(world, self._settings))
                except Killed:
                    times += 1
                world.dies_after = None
                await self._rejoin(world, road)
        return times

    async def taken_back_anywhere(self, road: Road, spec: Manifest, end: str) -> None:
        """Have somebody write `spec` again before each pass of the road: all is as in the state `end` then."""
        for stage in road.stages[1:]:
            world = stage.world.fork()
            world.edit(spec)
            await self.road(world)
            assert asked_for(state_of(world)) == asked_for(end), difference(end, state_of(world))

    async def _rejoin(self, world: MortalWorld, road: Road) -> None:
        """The next operator begins before Kubernetes has done what the last one asked of it."""
        operator = new_operator(world, self._settings)
        for _ in range(ROUNDS_MAX):
            await self._pass(world, operator)
            if state_of(world) in road.states:
                return
            self._go_on(world)
        raise AssertionError(f"it ends otherwise: {difference(road.end, state_of(world))}")

    async def _pass(self, world: MortalWorld, operator: Reconciler) -> None:
        self._clock(world.now)
        try:
            await operator._pass(KEY)
        finally:
            await operator.stop()

    def _go_on(self, world: MortalWorld) -> None:
        world.settle()
        world.now += self._step


def new_operator(world: World, settings: Settings) -> Reconciler:
    async def nobody(_: Context) -> list[Node] | None:
        return None

    return Reconciler(world, settings, nobody, Metrics())


# States


def state_of(world: MortalWorld) -> str:
    """All that an operator's next pass may go by, but for what is random, and when a condition changed."""
    found = {str(name): plain(item) for name, item in sorted(world.objects.items()) if name.kind != "Secret"}
    found |= {str(name): secret_state(item) for name, item in sorted(world.objects.items()) if name.kind == "Secret"}
    return json.dumps(found, sort_keys=True)


def asked_for(state: str) -> Any:
    """What a state has but for history: former settings and specs, what the MqttCluster says."""
    kept = ("ConfigMap", "ReplicaSet", "ControllerRevision", "MqttCluster")
    return {name: item for name, item in json.loads(state).items() if not name.startswith(kept)}


def plain(item: Manifest) -> Any:
    live = copied(item)
    generation = live["metadata"].pop("generation", None)
    status = live.get("status") or {}
    if ref(live) != DEMO and "observedGeneration" in status:
        status["observedGeneration"] = status["observedGeneration"] == generation
    for condition in status.get("conditions", ()):
        condition.pop("lastTransitionTime", None)
    return live


def secret_state(item: Manifest) -> Any:
    name, files = item["metadata"]["name"], {key: b64decode(text) for key, text in (item.get("data") or {}).items()}
    families: dict[str, Family] = {"demo-links": of_links("demo"), "demo-redis-tls": of_redis("demo")}
    if name in families and files:
        held: Held = read(files, families[name])
        said = [held.before is not None, held.moved, sorted(held.shown), str(held.oldest.not_valid_after_utc)]
        return [*said, str(held.newest.certificate.not_valid_after_utc), item["metadata"].get("ownerReferences")]
    keys = {key: len(content.split()) for key, content in files.items()}
    return [keys, files.get("rotation", b"").decode(), item["metadata"]]


def decoded(secret: Manifest | None, key: str) -> str:
    return b64decode(((secret or {}).get("data") or {}).get(key, "")).decode()


def difference(one: str, other: str) -> str:
    """Of two states: the first object that differs."""
    left, right = json.loads(one), json.loads(other)
    return next(
        (
            f"{name}: {left.get(name)} and {right.get(name)}"
            for name in {**left, **right}
            if left.get(name) != right.get(name)
        ),
        "nothing",
    )
