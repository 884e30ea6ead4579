"""Which pods leave the Service, and which come back."""

import pytest

from flockmq_operator.donors.choice import NOBODY, Case, Kept, case_of, kept_of, relabelled, soon_begins
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.nodes import Node
from flockmq_operator.resources.labels import TAKES_CLIENTS
from unit.operator.test_plan import running
from unit.operator.world import context, pod

LABELS = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/managed-by": "flockmq-operator"}


def replicant(name: str, *, takes: bool = True, ready: bool = True, component: str = "replicant") -> Manifest:
    labels = {**LABELS, "app.kubernetes.io/component": component, TAKES_CLIENTS: "true" if takes else "false"}
    made = pod(name, labels, "1")
    made["metadata"]["uid"] = f"uid of {name}"
    made["status"]["conditions"][0]["status"] = "True" if ready else "False"
    return made


def node(name: str, connections: int = 0, *, rebalancing: bool = False, draining: bool = False) -> Node:
    return Node(name, "replicant", connections, heard=True, rebalancing=rebalancing, draining=draining)


def labelled(pods: list[Manifest], *donors: str, nodes: tuple[Node, ...] = ()) -> list[tuple[str, str]]:
    """(pod, its new label), of those that change."""
    case = Case("replicant", frozenset(donors), len(pods))
    changes = relabelled(case, pods, nodes)
    assert all(change["metadata"]["uid"] == f"uid of {change['metadata']['name']}" for change in changes)
    return [(change["metadata"]["name"], change["metadata"]["labels"][TAKES_CLIENTS]) for change in changes]


def test_a_donor_leaves_and_comes_back_when_it_is_none_any_more() -> None:
    assert labelled([replicant("a"), replicant("b")], "a") == [("a", "false")]
    assert labelled([replicant("a", takes=False), replicant("b")], "a") == []
    assert labelled([replicant("a", takes=False), replicant("b")]) == [("a", "true")]


def test_one_comes_back_before_another_one_leaves() -> None:
    assert labelled([replicant("a"), replicant("b", takes=False)], "a") == [("b", "true"), ("a", "false")]


@pytest.mark.parametrize(("ready", "leave"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_at_most_half_of_the_ready_ones_leave(ready: int, leave: int) -> None:
    names = [f"r-{number}" for number in range(ready)]
    assert len(labelled([*map(replicant, names), replicant("starts", ready=False)], *names)) == leave


def test_those_with_the_most_clients_leave_and_those_that_have_left_stay_out() -> None:
    nodes = node("a", 10, rebalancing=True), node("b", 30, rebalancing=True), node("c", 0)
    assert labelled([replicant("a"), replicant("b"), replicant("c")], "a", "b", nodes=nodes) == [("b", "false")]
    assert labelled([replicant("a", takes=False), replicant("b"), replicant("c")], "a", "b", nodes=nodes) == []


def test_a_donor_that_is_not_ready_or_ends_is_left_alone() -> None:
    ends = replicant("ends")
    ends["metadata"]["deletionTimestamp"] = "now"
    assert labelled([ends, replicant("starts", ready=False), replicant("b"), replicant("c")], "ends", "starts") == []


def test_a_pod_without_the_label_or_of_another_part_is_none_of_them() -> None:
    redis = pod("demo-redis-0", {**LABELS, "app.kubernetes.io/component": "redis"}, "1")
    core = replicant("core-0", component="core")
    assert labelled([redis, core, replicant("a"), replicant("b")], "demo-redis-0", "core-0") == []
    assert labelled([replicant("core-0", component="core", takes=False)]) == [("core-0", "true")]


def test_donors_are_nodes_of_the_part_that_the_service_leads_to() -> None:
    kept = Kept(context(), "replicant", 2)
    core = Node("core-0", "core", rebalancing=True)
    assert case_of(kept, [node("a", rebalancing=True), node("b"), core]) == Case("replicant", frozenset({"a"}), 2)
    assert case_of(kept, [node("a"), core]) == NOBODY
    assert case_of(kept._replace(ready=1), [node("a", rebalancing=True)]) == NOBODY
    assert case_of(kept._replace(component=None), [node("a", rebalancing=True)]) == NOBODY
    assert case_of(kept, []) == NOBODY, "no node tells"


def test_a_node_of_the_part_that_the_service_leads_to_begins_soon_when_it_has_too_much() -> None:
    busy = Node("r-0", "replicant", heard=True, has_too_much=True)
    kept = Kept(context(), "replicant", 2)
    assert soon_begins(kept, [busy, node("r-1")])
    assert not soon_begins(kept, [node("r-0", 500), node("r-1")])
    assert not soon_begins(kept, [Node("core-0", "core", heard=True, has_too_much=True)])
    assert not soon_begins(kept._replace(ready=1), [busy]), "no pod may leave"


async def test_pods_may_leave_where_the_service_selects_by_the_label_and_nothing_is_paused() -> None:
    spec = {"replicants": {"replicas": 4}}
    world = await running(spec)
    at = context(spec)
    observed = await world.observe(at)
    assert kept_of(at, observed) == Kept(at, "replicant", 4)
    fewer = context({"replicants": {"replicas": 1}})
    assert kept_of(fewer, observed) == Kept(fewer, "replicant", 1), "the others are about to end"
    paused = context({"pause": True})
    assert kept_of(paused, observed) == Kept(paused, None)
    del observed.objects[Ref("Service", "demo")]["spec"]["selector"][TAKES_CLIENTS]
    assert kept_of(at, observed) == Kept(at, None)


async def test_cores_that_take_clients_may_leave() -> None:
    spec: Manifest = {"replicants": {"replicas": 0}}
    world = await running(spec)
    at = context(spec)
    assert kept_of(at, await world.observe(at)) == Kept(at, "core", 3)
