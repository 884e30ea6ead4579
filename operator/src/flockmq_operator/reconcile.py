"""The loop around each MqttCluster: wait for a reason, make one pass over the whole object, say what came of it.

Level-triggered: a reason carries no information, so any number of them is one pass, and a lost one costs no more than
RESYNC_S. One pass at a time for each object, PASSES_MAX at a time in all. A pass that fails is repeated with a growing
delay, and nothing is remembered of it: the next one looks anew. Reasons are gathered the longer the more passes in a
row changed something: a rollout takes a few, and a quarrel with another controller over a field is no busy loop.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import uuid4

import msgspec

from flockmq_operator import floor
from flockmq_operator.apply import carry_out, refusal_problems, status_manifest
from flockmq_operator.events import MESSAGE_MAX, Event, without_refused
from flockmq_operator.kube import Kube, Refused, Unreachable
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.metrics import Metrics, Result
from flockmq_operator.observe import observe
from flockmq_operator.plan import make_plan
from flockmq_operator.problems import Problem
from flockmq_operator.resources import build
from flockmq_operator.resources.context import Context
from flockmq_operator.settings import Settings
from flockmq_operator.spec import GROUP, KIND, SpecError, decode
from flockmq_operator.status import make_status
from flockmq_operator.status.condition import Situation
from flockmq_operator.wrong_spec import without_what_is_wrong

log = logging.getLogger(__name__)

RESYNC_S = 30.0
"""The longest an object is left unlooked at."""
AUTOSCALING_RESYNC_S = 10.0
"""The like, while its floor has to follow connections."""
GATHER_MIN_S, GATHER_MAX_S = 0.25, 30.0
"""How long reasons are gathered before a pass: a rollout is hundreds of them."""
RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
PASSES_MAX = 8
"""Passes at a time."""

Key = tuple[str, str]
"""(namespace, name) of a MqttCluster."""
CountConnections = Callable[[Context], Awaitable[int | None]]


class Done(NamedTuple):
    """What came of a pass."""

    gone: bool = False
    """Whether the object no longer exists."""
    changed: bool = False
    look_again_s: float = RESYNC_S


class Reconciler:
    def __init__(self, kube: Kube, settings: Settings, count_connections: CountConnections, metrics: Metrics) -> None:
        self._kube = kube
        self._metrics = metrics
        self._settings = settings
        self._count_connections = count_connections
        self._reasons: dict[Key, asyncio.Event] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._floors: dict[Key, floor.History] = {}
        self._slots = asyncio.Semaphore(PASSES_MAX)

    def wake(self, namespace: str, name: str) -> None:
        """There is a reason to look at this MqttCluster."""
        key = (namespace, name)
        if key not in self._tasks:
            self._reasons[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._keep(key), name=f"reconcile {namespace}/{name}")
        self._reasons[key].set()

    def busy_with(self) -> set[Key]:
        """The MqttClusters that are being kept."""
        return set(self._tasks)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, key: Key) -> None:
        """Make passes until the object is gone."""
        retry_s, gather_s = RETRY_MIN_S, GATHER_MIN_S
        try:
            while True:
                self._reasons[key].clear()
                try:
                    done = await self._measured_pass(key)
                    if done.gone and not self._reasons[key].is_set():  # set: there may be a new one of this name
                        return
                    gather_s = min(gather_s * 2, GATHER_MAX_S) if done.changed else GATHER_MIN_S
                    retry_s = RETRY_MIN_S
                    await self._wait(key, done.look_again_s, gather_s)
                except Exception as error:
                    unexpected = None if isinstance(error, Unreachable | Refused) else error
                    what = f"a pass over {'/'.join(key)} failed; trying again in {retry_s:.0f} s: {error}"
                    log.error(what, exc_info=unexpected)
                    await asyncio.sleep(retry_s)
                    retry_s = min(retry_s * 2, RETRY_MAX_S)
        finally:
            self._tasks.pop(key, None)
            self._reasons.pop(key, None)
            self._floors.pop(key, None)
            self._metrics.conditions.pop(key, None)

    async def _measured_pass(self, key: Key) -> Done:
        """A pass when there is room for it, counted."""
        self._metrics.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._metrics.waiting -= 1
        result: Result = "failed"
        began_s = time.monotonic()
        try:
            done = await self._pass(key)
            result = "changed" if done.changed else "unchanged"
        finally:
            self._slots.release()
            self._metrics.passed(result, time.monotonic() - began_s)
        return done

    async def _wait(self, key: Key, longest_s: float, gather_s: float) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self._reasons[key].wait()
            await asyncio.sleep(gather_s)
        except TimeoutError:
            pass

    async def _pass(self, key: Key) -> Done:
        body = await self._kube.get(KIND, *key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return Done(gone=body is None)
        try:
            context, wrong = without_what_is_wrong(Context(decode(body), self._settings))
            wanted = [ref(manifest) for manifest in build(context)]
        except Exception as error:
            why = str(error)
            if not isinstance(error, SpecError):  # what nothing has foreseen is said too, to whoever wrote the spec
                why = f"the operator can't make anything of this spec: {type(error).__name__}: {error}"
                log.exception("%s: %s", "/".join(key), why)
            situation = Situation(body["metadata"]["generation"], problems=(Problem("InvalidSpec", why),))
            await self._report(body, situation, [])
            return Done()
        observed = await observe(self._kube, context, wanted, body.get("status") or {})
        context = await self._with_floor(key, context, observed.objects)
        plan = make_plan(context, observed, datetime.now(UTC), wrong)
        refusals = await carry_out(self._kube, plan)
        events = without_refused(plan.events, {refusal.what for refusal in refusals})
        changed, refused = plan.changes, refusal_problems(refusals, observed, context.namespace)
        if any(plan.rolls & problem.blocks for problem in refused):  # others needn't wait for what isn't rolled out
            observed = await observe(self._kube, context, wanted, body.get("status") or {})
            plan = make_plan(context, observed, datetime.now(UTC), [*wrong, *refused])
            refusals = await carry_out(self._kube, plan)
            events += without_refused(plan.events, {refusal.what for refusal in refusals})
            refused = refusal_problems(refusals, observed, context.namespace)
        situation = Situation(
            generation=context.cluster.generation,
            context=context,
            observed=observed,
            problems=tuple(dict.fromkeys((*plan.problems, *refused))),
            changed=changed,
            resized=plan.resizes,
            rolls=plan.rolls,
            paused=plan.paused,
            behind=plan.behind,
            waiting_for=plan.waiting_for,
            update_pending=plan.update_pending,
        )
        await self._report(body, situation, events)
        look_again_s = AUTOSCALING_RESYNC_S if context.spec.autoscaling else RESYNC_S
        return Done(changed=changed, look_again_s=look_again_s)

    async def _with_floor(self, key: Key, context: Context, live: dict[Ref, Manifest]) -> Context:
        """The context to plan with: the floor follows the connections, and stays where nobody answers."""
        autoscaling = context.spec.autoscaling
        if autoscaling is None:
            return context
        now_s = time.monotonic()
        history = self._floors.get(key, ())
        autoscaler = live.get(Ref("HorizontalPodAutoscaler", context.name))
        if not history and autoscaler:  # this operator has just started: what the last one found still counts
            history = floor.remember(history, now_s, autoscaler["spec"].get("minReplicas", 1))
        connections = await self._count_connections(context)
        if connections is not None:
            history = floor.remember(history, now_s, floor.wanted(autoscaling, connections))
        self._floors[key] = history
        return msgspec.structs.replace(context, floor=floor.stabilised(autoscaling, history))

    async def _report(self, body: Manifest, situation: Situation, events: list[Event]) -> None:
        """Write the status if it changed, and tell events of what changed."""
        previous = body.get("status") or {}
        status = make_status(situation, previous, datetime.now(UTC))
        self._metrics.conditions[key_of(body)] = status["conditions"]
        try:
            if status != previous:
                await self._kube.apply(status_manifest(body, status), "status")
            for event in (*events, *transitions(previous, status)):
                log.info("%s: %s: %s", "/".join(key_of(body)), event.reason, event.message)
                await self._kube.create(event_manifest(body, event, self._settings.pod_name, datetime.now(UTC)))
        except Refused as refused:
            if refused.status not in (404, 409):  # gone, or being deleted, in the meantime
                raise


def key_of(body: Manifest) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def transitions(previous: Manifest, status: Manifest) -> list[Event]:
    """Events of conditions that changed: it is stalled, and why; it is no longer; it is ready."""
    before = {condition["type"]: condition for condition in previous.get("conditions", ())}
    events: list[Event] = []
    for condition in status["conditions"]:
        old = before.get(condition["type"], {"status": "Unknown", "message": ""})
        match condition["type"], old["status"], condition["status"]:
            case "Stalled", _, "True" if (old["status"], old["message"]) != ("True", condition["message"]):
                events.append(Event("Warning", condition["reason"], condition["message"][:MESSAGE_MAX]))
            case "Stalled", "True", "False":
                events.append(Event("Normal", "Resumed", "What stalled the cluster is mended"))
            case "Ready", "False" | "Unknown", "True":
                events.append(Event("Normal", "Ready", condition["message"]))
    return events


def event_manifest(body: Manifest, event: Event, instance: str, now: datetime) -> Manifest:
    metadata = body["metadata"]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{uuid4().hex[:16]}", "namespace": metadata["namespace"]},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": event.type,
        "reason": event.reason,
        "action": "Reconcile",
        "note": event.message,
        "reportingController": f"{GROUP}/operator",
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
