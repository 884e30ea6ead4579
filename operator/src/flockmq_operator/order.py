"""One thing at a time: whose pods take their new template now, where an edit changes several parts. Pure.

Cores, then replicants, then Redis; each when the one before is whole again, and while no other is being rolled out. A
part that is broken comes first, so that a mended spec gets through. Each is a condition on what exists: nothing
remembers what an edit was.

A Redis that grows from 3 to 5 is no exception: nodes must wait for two replicas before there are five pods, or a write
could be acknowledged that a majority of the five doesn't have.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple

from flockmq_operator.manifest import Manifest
from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component
from flockmq_operator.status.workload import (
    is_unchanged_for,
    is_unready_for,
    ordinal,
    outdated_pods,
    pod_ready,
    pod_there,
    template_seen,
)
from flockmq_operator.workloads import CALLED, workload

ORDER: tuple[Component, ...] = ("core", "replicant", "redis")
BROKEN = timedelta(minutes=1)
"""How long a pod that isn't ready may just be starting."""
PATIENCE = timedelta(minutes=10)
"""How long a pod that isn't ready holds up others, unless its part is being rolled out."""


class State(NamedTuple):
    rolling: bool = False
    """Whether there are pods of another template than the newest."""
    broken: bool = False
    """Whether pods are missing, or haven't been ready for a while."""
    awaited: bool = False
    """Whether it is worth waiting for those that aren't ready."""

    @property
    def whole(self) -> bool:
        return not self.rolling and not self.awaited

    @property
    def given_up(self) -> bool:
        """Whether what isn't ready isn't waited for any more."""
        return self.broken and not self.awaited


class Turn(NamedTuple):
    component: Component | None = None
    """Who takes its new template; None: nobody does now."""
    waiting_for: str = ""


def whose_turn(
    context: Context, observed: Observed, changing: Collection[Component], blocked: Collection[Component], now: datetime
) -> Turn:
    """`changing`: whose template is to change; `blocked`: who isn't waited for, since somebody has to act first."""
    states = {component: state_of(context, observed, component, now) for component in ORDER}
    for component in ORDER:
        if component in changing and states[component].broken:
            return Turn(component)
    first = next((component for component in ORDER if component in changing), None)
    if first is None:
        return Turn()
    waits = [other for other in ORDER if other not in (first, *blocked) and holds_up(other, first, states[other])]
    if waits:
        whom = " and ".join(CALLED[other] for other in waits)
        return Turn(None, f"{whom} to be rolled out and ready before {CALLED[first]} are changed")
    return Turn(first)


def holds_up(other: Component, component: Component, state: State) -> bool:
    return state.rolling or (ORDER.index(other) < ORDER.index(component) and not state.whole)


def state_of(context: Context, observed: Observed, component: Component, now: datetime) -> State:
    live = observed.objects.get(workload(context, component))
    if live is None:
        return State()
    if component == "replicant":
        return state_of_replicants(live, observed.replicant_pods, now)
    pods = observed.core_pods if component == "core" else observed.redis_pods
    replicas: int = live["spec"]["replicas"]
    stays = context.spec.cores.replicas if component == "core" else replicas  # those that go aren't restarted
    outdated = [pod for pod in outdated_pods(live, pods) if ordinal(pod) < stays] if template_seen(live) else pods
    absent = len(pods) < replicas
    unready = [pod for pod in pods if not pod_there(pod)]
    broken = absent or any(is_unready_for(BROKEN, pod, now) for pod in unready)
    awaited = any(not is_unready_for(PATIENCE, pod, now) for pod in unready)
    comes = absent and not is_unchanged_for(PATIENCE, live, now)  # else something refuses it, such as a quota
    return State(bool(outdated), broken, awaited or comes)


def state_of_replicants(live: Manifest, pods: list[Manifest], now: datetime) -> State:
    status, replicas = live.get("status", {}), live["spec"]["replicas"]
    there, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    rolling = not template_seen(live) or there > updated
    unready = status.get("readyReplicas", 0) < replicas
    missing = [pod for pod in pods if not pod_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
    waits = there < replicas or not missing or any(not is_unready_for(PATIENCE, pod, now) for pod in missing)
    # Something refuses pods; or one of very many isn't ready.
    halted = template_seen(live) and is_unchanged_for(PATIENCE, live, now)
    # Those that come and go, as an autoscaler asks, are no broken part, unless a rollout of them is stuck. Those of
    # before stay ready beside it.
    stuck = halted or any(is_unready_for(BROKEN, pod, now) for pod in missing)
    return State(rolling, rolling and stuck, unready and waits and not halted)
