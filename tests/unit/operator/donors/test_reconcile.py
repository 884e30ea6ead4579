"""When nodes are asked, and what becomes of their pods' labels."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from flockmq_operator import passes
from flockmq_operator.donors import reconcile
from flockmq_operator.donors.choice import Kept
from flockmq_operator.donors.reconcile import DonorReconciler
from flockmq_operator.kube import Refused, Unreachable
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import Node
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import TAKES_CLIENTS
from unit.operator.donors.test_choice import node, replicant
from unit.operator.world import NAMESPACE, World, context

KEY = (NAMESPACE, "demo")
KEPT = Kept(context(), "replicant", 2)


class Town(World):
    """Two replicants, and what their nodes do. `asked` and `listed` count the requests."""

    def __init__(self) -> None:
        pods = [replicant("a"), replicant("b")]
        for each in pods:
            each["metadata"]["labels"]["app.kubernetes.io/name"] = "flockmq"
        super().__init__(*pods)
        self.nodes: list[Node] | None = [node("a", 5), node("b", 5)]
        self.asked = self.listed = 0
        self.heard: list[int] = []
        self.failure: Exception | None = None
        self.metrics = Metrics()

    async def ask(self, _: Context) -> list[Node] | None:
        self.asked += 1
        return self.nodes

    def hear(self, _: Context, nodes: Sequence[Node]) -> None:
        self.heard.append(sum(node.connections for node in nodes))

    async def patch(self, manifest: Manifest) -> Manifest:
        if self.failure:
            raise self.failure
        return await super().patch(manifest)

    def donate(self, *names: str) -> None:
        self.nodes = [node(name, 5, rebalancing=name in names) for name in ("a", "b")]

    def label(self, name: str) -> str:
        said: str = self.objects[Ref("Pod", name)]["metadata"]["labels"][TAKES_CLIENTS]
        return said

    def out(self) -> list[str]:
        return [name for name in ("a", "b") if Ref("Pod", name) in self.objects and self.label(name) == "false"]

    async def list(self, kind: str, namespace: str | None, labels: dict[str, str], **how: object) -> list[Manifest]:
        self.listed += 1
        return await super().list(kind, namespace, labels)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((passes, "GATHER_MIN_S"), (passes, "RETRY_MIN_S"), (reconcile, "LOOK_S")):
        monkeypatch.setattr(module, name, 0.001)


@pytest.fixture
async def town() -> Town:
    return Town()


@pytest.fixture
async def donors(town: Town) -> AsyncIterator[DonorReconciler]:
    reconciler = DonorReconciler(town, town.ask, town.metrics, town.hear)
    yield reconciler
    await reconciler.stop()


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not probe():  # noqa: ASYNC110 (the town has no events of its own)
            await asyncio.sleep(0.002)


async def asked(town: Town, times: int) -> None:
    await until(lambda: town.asked >= times)


async def idle(donors: DonorReconciler) -> None:
    await until(lambda: not donors.busy_with())


async def test_a_donor_is_out_while_it_sends_clients_away(town: Town, donors: DonorReconciler) -> None:
    town.donate("a")
    donors.keep(KEY, KEPT)
    await until(lambda: town.out() == ["a"])
    asked = town.asked
    await until(lambda: town.asked > asked + 5)
    assert town.listed == 1, "the API server is asked only where something changes"
    town.donate()
    await until(lambda: town.out() == [])
    assert town.writes == ["patch Pod a", "patch Pod a"]


async def test_while_nothing_is_to_be_done_each_pass_over_the_cluster_costs_one_question_to_a_core(
    town: Town, donors: DonorReconciler
) -> None:
    for times in (1, 2, 3):
        donors.keep(KEY, KEPT)
        await asked(town, times)
    assert (town.listed, town.writes) == (1, [])
    donors.keep(KEY, KEPT._replace(ready=1))
    donors.wake(*KEY)
    await idle(donors)
    assert town.asked == 3, "nobody could leave"


async def test_they_are_asked_again_without_a_pass_over_the_cluster(
    town: Town, donors: DonorReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "RESYNC_S", 0.001)
    donors.keep(KEY, KEPT)
    await until(lambda: town.asked > 3)
    town.donate("a")
    await until(lambda: town.out() == ["a"])
    assert town.listed == 2, "the API server is asked only where something changes"


async def test_where_autoscaling_goes_by_connections_they_are_asked_and_told_though_nobody_may_leave(
    town: Town, donors: DonorReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "AUTOSCALING_LOOK_S", 0.001)
    autoscaled = context({"autoscaling": {"minReplicas": 2, "maxReplicas": 9, "connectionsPerReplicant": 100}})
    donors.keep(KEY, Kept(autoscaled, None))
    await until(lambda: town.heard[:3] == [10, 10, 10])
    town.nodes = None
    await asked(town, town.asked + 3)
    heard = len(town.heard)
    await asked(town, town.asked + 3)
    assert len(town.heard) == heard, "nobody has told anything"


async def test_nodes_are_watched_closely_when_one_soon_begins(town: Town, donors: DonorReconciler) -> None:
    town.nodes = [Node("a", "replicant", heard=True, has_too_much=True), node("b")]
    donors.keep(KEY, KEPT)
    await until(lambda: town.asked > 5)
    town.donate("a")
    await until(lambda: town.out() == ["a"])


async def test_an_operator_that_starts_puts_right_what_the_last_one_left(town: Town, donors: DonorReconciler) -> None:
    town.objects[Ref("Pod", "a")]["metadata"]["labels"][TAKES_CLIENTS] = "false"
    town.donate("b")
    donors.keep(KEY, KEPT)
    await until(lambda: town.out() == ["b"])
    assert town.writes == ["patch Pod a", "patch Pod b"]


@pytest.mark.parametrize("kept", [Kept(context(), None), KEPT._replace(ready=1), KEPT._replace(ready=0)])
async def test_all_come_back_where_nobody_may_leave_any_more(town: Town, donors: DonorReconciler, kept: Kept) -> None:
    town.donate("a")
    donors.keep(KEY, KEPT)
    await until(lambda: town.out() == ["a"])
    donors.keep(KEY, kept)
    await until(lambda: town.out() == [])
    await idle(donors)


async def test_one_comes_back_when_no_node_tells_any_more(town: Town, donors: DonorReconciler) -> None:
    town.donate("a")
    donors.keep(KEY, KEPT)
    await until(lambda: town.out() == ["a"])
    town.nodes = None
    await until(lambda: town.out() == [])


async def test_an_operator_that_is_told_to_stop_leaves_nobody_out(town: Town, donors: DonorReconciler) -> None:
    town.donate("a")
    donors.keep(KEY, KEPT)
    await until(lambda: town.out() == ["a"])
    await donors.stop()
    assert town.out() == ["a"], "who lost the Lease leaves that to the next one"
    await donors.bring_back()
    assert town.out() == []


async def test_one_that_stops_and_cannot_say_so_says_that(
    town: Town, donors: DonorReconciler, caplog: pytest.LogCaptureFixture
) -> None:
    town.donate("a")
    donors.keep(KEY, KEPT)
    await until(lambda: town.out() == ["a"])
    town.failure = Unreachable("HTTP 503")
    await donors.stop()
    await donors.bring_back()
    assert "pods may be out of their Service until another operator starts: HTTP 503" in caplog.text


async def test_a_refused_label_is_tried_again_and_said(
    town: Town, donors: DonorReconciler, caplog: pytest.LogCaptureFixture
) -> None:
    town.donate("a")
    town.failure = Refused(403, 'pods "a" is forbidden')
    donors.keep(KEY, KEPT)
    await until(lambda: 'passes_total{result="failed"} 2\n' in town.metrics.text())
    assert 'a pass over the donors of fleet/demo failed; trying again in 0 s: pods "a" is forbidden' in caplog.text
    town.failure = None
    await until(lambda: town.out() == ["a"])


async def test_a_pod_that_has_gone_since_is_no_failure(town: Town, donors: DonorReconciler) -> None:
    town.donate("a")
    town.failure = Refused(404, "not found")
    donors.keep(KEY, KEPT)
    await until(lambda: town.listed > 2)
    town.failure = None
    await until(lambda: town.out() == ["a"])
    assert 'passes_total{result="failed"} 0\n' in town.metrics.text()


async def test_a_rebalance_that_runs_wakes_those_that_are_kept(town: Town, donors: DonorReconciler) -> None:
    donors.wake(*KEY)
    assert not donors.busy_with()
    donors.keep(KEY, KEPT)
    await asked(town, 1)
    town.donate("b")
    donors.wake(*KEY)
    await until(lambda: town.out() == ["b"])
    donors.forget(KEY)
    await idle(donors)
    donors.wake(*KEY)
    assert not donors.busy_with()
