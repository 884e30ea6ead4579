"""A pass over a MqttCluster: look at it and at all it has, do what is next, say what came of it."""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from flockmq_operator import floor, report_headline, revisions, settled
from flockmq_operator.apply import carry_out, refusal_problems
from flockmq_operator.donors.choice import kept_of
from flockmq_operator.donors.reconcile import DonorReconciler
from flockmq_operator.events import MESSAGE_MAX, Event, without_refused
from flockmq_operator.hot.bring_about import HotSettings, Outcome
from flockmq_operator.hot.edit import recorded
from flockmq_operator.kube import Kube, Unreachable
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import AskNodes, Node
from flockmq_operator.observe import Observed, observe
from flockmq_operator.order import ORDER, state_of
from flockmq_operator.passes import RESYNC_S, SETTLED_RESYNC_S, Done, Key, Passes, settled_resync_s
from flockmq_operator.plan import make_plan
from flockmq_operator.problems import NODES, Problem
from flockmq_operator.report import report
from flockmq_operator.resources import build
from flockmq_operator.resources.context import Context
from flockmq_operator.settings import Settings
from flockmq_operator.spec import KIND, SpecError, decode
from flockmq_operator.status import make_status, of_failed_pass
from flockmq_operator.status.condition import Situation
from flockmq_operator.updates import Updates
from flockmq_operator.wrong_spec import without_what_is_wrong

log = logging.getLogger(__name__)

GATHER_MAX_S = 30.0
"""The longest that reasons for a pass are gathered."""


class Reconciler:
    def __init__(self, kube: Kube, settings: Settings, ask_nodes: AskNodes, metrics: Metrics) -> None:
        self.donors = DonorReconciler(kube, ask_nodes, metrics, self._nodes_told)
        self._kube = kube
        self._metrics = metrics
        self._settings = settings
        self._hot = HotSettings(kube, settings)
        self._floors: dict[Key, floor.History] = {}
        self._named: dict[Key, frozenset[Ref]] = {}
        """What the last pass looked at of which names are all that is watched."""
        self._updates = Updates()
        self._kept: dict[Key, str] = {}
        """Which spec was kept last (`revisions`)."""
        self._passes = Passes(KIND, self._pass, self._forget, metrics, GATHER_MAX_S)

    def wake(self, namespace: str, name: str) -> None:
        """There is a reason to look at this MqttCluster."""
        self._passes.wake((namespace, name))

    def wake_all(self, namespace: str | None) -> None:
        """What is watched may have changed untold; `namespace` None: in all."""
        self._passes.wake_all(namespace)

    def named_changed(self, namespace: str, what: Ref) -> list[str]:
        """The MqttClusters to which it matters."""
        keys = [key for key, named in self._named.items() if key[0] == namespace and what in named]
        for key in keys:
            self._passes.wake(key)
        return [name for _, name in keys]

    def busy_with(self) -> set[Key]:
        """The MqttClusters that are being kept."""
        return self._passes.busy_with()

    async def stop(self) -> None:
        await asyncio.gather(self._passes.stop(), self.donors.stop())

    def _forget(self, key: Key) -> None:
        self._floors.pop(key, None)
        self._named.pop(key, None)
        self._kept.pop(key, None)
        self.donors.forget(key)
        self._wake_each(self._updates.forget(key))
        self._metrics.conditions.pop(key, None)
        self._metrics.missed_backups.pop(key, None)

    async def _pass(self, key: Key) -> Done:
        body = await self._kube.get(KIND, *key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._wake_each(self._updates.looked_at(key, is_whole=True))
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
            self._wake_each(self._updates.looked_at(key, is_whole=True))
            return Done()
        try:
            done, status = await self._carry_on(key, body, context, wrong, wanted)
        except Unreachable:
            raise
        except Exception as error:  # repeated by `passes`, whose log has all of it
            why = f"a pass over this MqttCluster failed, and is tried again: {type(error).__name__}: {error}"
            previous = body.get("status") or {}
            problem = Problem("PassFailed", why)
            status = of_failed_pass(problem, body["metadata"]["generation"], previous, datetime.now(UTC))
            await self._tell(body, status, [])
            self._wake_each(self._updates.looked_at(key))
            raise
        if revisions.is_whole(status) and not context.spec.pause:
            await self._keep_spec(key, body)
        return done

    async def _carry_on(
        self, key: Key, body: Manifest, context: Context, wrong: Sequence[Problem], wanted: list[Ref]
    ) -> tuple[Done, Manifest]:
        """Look at all that it has, do what is next. Returns the status, too, as it is reported."""
        self._named[key] = settled.named_objects(context, wanted)
        observed = await observe(self._kube, context, wanted, body.get("status") or {})
        context = self._with_floor(key, context, observed.objects)
        told = Outcome(context, recorded(observed.status))
        if not any(problem.blocks >= NODES for problem in wrong):  # pods stay, and what they are to be told isn't known
            told = await self._hot.bring_about(context, observed, body)
            context = told.context
        context = self._with_turn(key, context)
        plan = make_plan(context, observed, datetime.now(UTC), wrong)
        refusals = await carry_out(self._kube, plan)
        events = [*told.events, *without_refused(plan.events, {refusal.what for refusal in refusals})]
        changed, refused = plan.changes, refusal_problems(refusals, observed, context.namespace)
        if any(plan.rolls & problem.blocks for problem in refused):  # others needn't wait for what isn't rolled out
            observed = await observe(self._kube, context, wanted, body.get("status") or {})
            plan = make_plan(context, observed, datetime.now(UTC), [*wrong, *refused])
            refusals = await carry_out(self._kube, plan)
            events += without_refused(plan.events, {refusal.what for refusal in refusals})
            refused = refusal_problems(refusals, observed, context.namespace)
        self.donors.keep(key, kept_of(context, observed))
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
            waiting_for=plan.waiting_for or told.waiting_for,
            update_pending=plan.update_pending,
            updated_first="" if context.may_update else self._updates.whose_turn(key),
            settings=told.record.as_status(),
        )
        status = await self._report(body, situation, events)
        self._note_update(key, situation, status, is_update=plan.updates)
        return Done(changed=changed, look_again_s=look_again_s(context, observed, status)), status

    def _with_floor(self, key: Key, context: Context, live: dict[Ref, Manifest]) -> Context:
        """The context to plan with."""
        autoscaling = context.spec.autoscaling
        if autoscaling is None:
            return context
        autoscaler = live.get(Ref("HorizontalPodAutoscaler", context.name))
        if key not in self._floors and autoscaler:  # this operator has just started: what the last one found counts
            self._floors[key] = floor.remember((), time.monotonic(), autoscaler["spec"].get("minReplicas", 1))
        return msgspec.structs.replace(context, floor=floor.stabilised(autoscaling, self._floors.get(key, ())))

    def _with_turn(self, key: Key, context: Context) -> Context:
        """Whether the operator may replace pods by itself in this pass."""
        may = context.spec.update == "Automatic" and self._updates.may_begin(key, self.busy_with())
        return msgspec.structs.replace(context, may_update=may)

    def _note_update(self, key: Key, situation: Situation, status: Manifest, *, is_update: bool) -> None:
        context, observed = situation.context, situation.observed
        assert context
        assert observed
        is_automatic, stands_still = context.spec.update == "Automatic", context.spec.pause or context.spec.hibernate
        is_amid = self._updates.is_new(key) and any(
            state_of(context, observed, part, datetime.now(UTC)).rolling for part in ORDER
        )
        others = self._updates.looked_at(
            key,
            is_replaced=is_automatic and not stands_still and (is_update or is_amid),
            is_whole=not is_automatic or stands_still or revisions.is_whole(status),
            waits=is_automatic and not context.may_update and situation.update_pending,
        )
        self._wake_each(others)

    def _wake_each(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._passes.wake(key)

    def _nodes_told(self, context: Context, nodes: Sequence[Node]) -> None:
        """The floor follows the connections; where nobody answers it stays. `context`: of the last pass."""
        autoscaling = context.spec.autoscaling
        if autoscaling is None:
            return
        key = context.namespace, context.name
        wanted = floor.wanted(autoscaling, sum(node.connections for node in nodes))
        self._floors[key] = floor.remember(self._floors.get(key, ()), time.monotonic(), wanted)
        if floor.stabilised(autoscaling, self._floors[key]) != context.floor:
            self._passes.wake(key)

    async def _keep_spec(self, key: Key, body: Manifest) -> None:
        """It is one that somebody can go back to."""
        digest = revisions.digest_of(decode(body).spec)
        if self._kept.get(key) != digest:
            await revisions.keep(self._kube, body)
            self._kept[key] = digest

    async def _report(self, body: Manifest, situation: Situation, events: list[Event]) -> Manifest:
        """Returns the status."""
        status = make_status(situation, body.get("status") or {}, datetime.now(UTC))
        await self._tell(body, status, events)
        return status

    async def _tell(self, body: Manifest, status: Manifest, events: list[Event]) -> None:
        """Write the status if it changed, and tell events of what changed."""
        self._metrics.conditions[key_of(body)] = status["conditions"]
        self._metrics.missed_backups.pop(key_of(body), None)
        if "backup" in status:
            self._metrics.missed_backups[key_of(body)] = status["backup"]["missed"]
        told = (*events, *transitions(body.get("status") or {}, status))
        await report(self._kube, body, status, told, self._settings.pod_name)
        body["status"] = status


def look_again_s(context: Context, observed: Observed, status: Manifest) -> float:
    """`status`: as it is reported."""
    if not settled.is_settled(context, observed, status):
        return RESYNC_S
    later = make_plan(context, observed, datetime.now(UTC) + timedelta(seconds=SETTLED_RESYNC_S))
    return settled_resync_s() if settled.is_empty(later) else RESYNC_S


def key_of(body: Manifest) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def transitions(previous: Manifest, status: Manifest) -> list[Event]:
    """Events of what changed in the status: it is stalled, and why, or no longer; it is ready; what a report says."""
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
    told, reported = (report_headline.sentence(one.get("report", {})) for one in (previous, status))
    if reported and reported != told:
        events.append(Event("Normal", "Reported", reported[:MESSAGE_MAX]))
    return events
