"""What wakes the passes over MqttRebalances, and how long they go on."""

import asyncio
from collections.abc import Callable

import pytest

from flockmq_operator import passes
from flockmq_operator.rebalances import reconcile
from unit.operator.rebalances.harness import MOVE, Town, mqtt_rebalance
from unit.operator.world import NAMESPACE


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((passes, "GATHER_MIN_S"), (passes, "RETRY_MIN_S"), (reconcile, "PROGRESS_S")):
        monkeypatch.setattr(module, name, 0.001)


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not probe():  # noqa: ASYNC110 (the world has no events of its own)
            await asyncio.sleep(0.005)


async def test_one_is_looked_at_by_itself_until_it_is_over(town: Town) -> None:
    town.world.put(mqtt_rebalance())
    town.reconciler.wake(NAMESPACE, "demo")
    await until(lambda: "status" in town.world.objects[MOVE])
    for node in town.nodes.rows:
        town.nodes.tell(node, "balanced")
    await until(lambda: town.how() == ("Succeeded", "Balanced"))
    town.reconciler.wake(NAMESPACE, "demo")
    await until(lambda: not town.is_held())
    town.delete()
    town.reconciler.wake(NAMESPACE, "demo")
    await until(lambda: not town.reconciler.busy_with())


async def test_a_spec_that_is_of_another_definition_is_told(town: Town) -> None:
    town.world.put(mqtt_rebalance(rate="fast"))
    await town.look()
    assert town.how() == ("Failed", "InvalidSpec")
    assert "spec.rate" in town.condition()["message"]


async def test_those_of_another_cluster_are_left_alone(town: Town) -> None:
    town.world.put(mqtt_rebalance(cluster="other"))
    assert (await town.look()).gone
    assert "status" not in town.world.objects[MOVE]


async def test_it_is_told_in_which_cluster_one_runs(town: Town) -> None:
    town.world.put(mqtt_rebalance(dryRun=True))
    await town.look()
    assert town.running == []
    town.world.put(mqtt_rebalance())
    await town.look()
    assert town.running == [(NAMESPACE, "demo")]
    for node in town.nodes.rows:
        town.nodes.tell(node, "balanced")
    await town.look()
    assert town.running == [(NAMESPACE, "demo")]
