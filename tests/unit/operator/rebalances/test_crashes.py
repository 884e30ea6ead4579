"""An operator may be killed after anything that it says for a MqttRebalance: the next one brings the same about."""

from collections.abc import Awaitable, Callable

import pytest

from flockmq_operator.management_api import ManagementApi
from unit.operator.crashes import Mortality, all_passes
from unit.operator.rebalances.harness import MOVE, NAME, Town, living, mqtt_rebalance

Prepare = Callable[[Town], Awaitable[None]]


async def begun(town: Town) -> None:
    town.world.put(mqtt_rebalance())


async def ended(town: Town) -> None:
    await begun(town)
    await town.look()
    for name in town.nodes.rows:
        town.nodes.tell(name, "balanced", moved=150)


async def deleted(town: Town) -> None:
    await begun(town)
    await town.look()
    town.delete()


@pytest.mark.parametrize("prepare", [begun, ended, deleted])
async def test_it_begins_once_and_ends_the_same(monkeypatch: pytest.MonkeyPatch, prepare: Prepare) -> None:
    ends = set()
    for dies_after in range(1, 10):
        async with living(monkeypatch) as town:
            await prepare(town)
            mortality = Mortality(dies_after)
            with monkeypatch.context() as patched:
                mortality.watch(patched, town.world, ManagementApi)
                await all_passes(town, town.another_operator)
            assert [asked.name for asked in town.nodes.started] == [NAME], "once"
            ends.add(end_of(town))
            if not mortality.has_killed:
                break
    assert dies_after > 1
    assert len(ends) == 1


def end_of(town: Town) -> tuple[object, ...]:
    stopped = set(town.nodes.stopped)
    if MOVE not in town.world.objects:
        return "gone", stopped == {NAME}
    return town.how(), town.is_held(), stopped == set(), town.status()["nodes"] != []
