"""What wakes the passes over MqttUsers, and that one of them keeps no other back."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from flockmq.rlog.schema import USERS
from flockmq_operator import passes
from flockmq_operator.kube import Refused
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.passes import RESYNC_S
from flockmq_operator.users import reconcile
from unit.operator.users.harness import CORE, JO, Town, core, mqtt_user
from unit.operator.world import NAMESPACE

ANN = Ref("MqttUser", "ann")
SECRET = Ref("Secret", "jo-password")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((passes, "GATHER_MIN_S"), (passes, "RETRY_MIN_S"), (reconcile, "GATHER_MAX_S")):
        monkeypatch.setattr(module, name, 0.001)


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not probe():  # noqa: ASYNC110 (the world has no events of its own)
            await asyncio.sleep(0.005)


async def test_a_secret_that_changes_wakes_those_who_name_it_and_a_cluster_those_it_has(town: Town) -> None:
    town.world.put(mqtt_user())
    reconciler = town.reconciler
    reconciler.cluster_changed(NAMESPACE, "demo")
    assert not reconciler.busy_with(), "it has none that is known"
    reconciler.wake(NAMESPACE, "demo")
    await until(lambda: "status" in town.world.objects[JO])
    town.put_password("secret-1")
    reconciler.named_changed("elsewhere", SECRET)
    reconciler.named_changed(NAMESPACE, Ref("Secret", "another"))
    reconciler.named_changed(NAMESPACE, Ref("PersistentVolumeClaim", "jo-password"))
    reconciler.named_changed(NAMESPACE, SECRET)
    await until(lambda: town.lets_in("jo", "secret-1"))
    await until(lambda: town.reason() == "Applied")
    del town.world.objects[CORE]
    reconciler.cluster_changed(NAMESPACE, "demo")
    await until(lambda: town.reason() == "ClusterNotReady")
    town.world.put(core())
    town.delete()
    reconciler.cluster_changed(NAMESPACE, "demo")
    await until(lambda: JO not in town.world.objects)
    reconciler.wake(NAMESPACE, "demo")
    await until(lambda: not reconciler.busy_with())
    assert town.metrics.users == {}


async def test_what_somebody_else_changes_is_set_right_and_the_api_server_is_not_asked_until_then(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "RESYNC_S", 0.001)
    lists = 0
    listed = town.world.list

    async def counted(*what: Any, **how: Any) -> list[Manifest]:
        nonlocal lists
        lists += 1
        return await listed(*what, **how)

    monkeypatch.setattr(town.world, "list", counted)
    town.put_password("secret-1")
    town.world.put(mqtt_user())
    town.reconciler.wake(NAMESPACE, "demo")
    await until(lambda: looks(town) > 10)
    before = lists
    await until(lambda: looks(town) > 20)
    assert lists == before
    town.told()
    town.log.put([USERS.delete("jo")])
    await until(lambda: town.lets_in("jo", "secret-1"))
    assert town.told() == ["Mended"]


def looks(town: Town) -> int:
    """Passes, and looks at the cluster alone, that found nothing to do."""
    found = re.search(r'passes_total{result="unchanged"} (\d+)', town.metrics.text())
    assert found
    return int(found[1])


async def test_a_core_is_not_asked_where_it_was_once_something_has_changed(town: Town) -> None:
    town.put_password("secret-1")
    town.world.put(mqtt_user())
    assert (await town.look()).look_again_s == RESYNC_S, "it was made just now"
    key = (NAMESPACE, "demo")
    changes: list[Callable[[], object]] = [
        lambda: town.reconciler.wake(*key),
        lambda: town.reconciler.cluster_changed(*key),
        lambda: town.reconciler.named_changed(NAMESPACE, SECRET),
        lambda: town.reconciler.wake_all(None),
    ]
    for change in changes:
        assert (await town.look()).look_again_s > RESYNC_S
        assert key in town.reconciler._right
        change()
        assert key not in town.reconciler._right


async def test_one_that_fails_keeps_no_other_back(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.put_password("secret-1")
    patch = town.world.patch

    async def refuse(manifest: Manifest) -> Manifest:
        if manifest["metadata"]["name"] == "ann":
            raise Refused(409, "the object has been modified")
        return await patch(manifest)

    monkeypatch.setattr(town.world, "patch", refuse)
    town.world.put(mqtt_user("ann", "2026-11-26T11:00:00Z"))
    town.world.put(mqtt_user())
    with pytest.raises(Refused, match="has been modified"):
        await town.look()
    assert town.reason() == "Applied"
    assert town.log.tables.users.get("ann") is None
    monkeypatch.undo()


async def test_a_spec_that_is_of_another_definition_is_told(town: Town) -> None:
    town.put_password("secret-1")
    town.world.put(mqtt_user("ann", rules=[{"permit": "perhaps"}]))
    town.world.put(mqtt_user())
    await town.look()
    assert (town.reason(ANN), town.reason()) == ("InvalidSpec", "Applied")
    assert "spec.rules[0].permit" in town.ready(ANN)["message"]
    assert town.metrics.users["fleet", "demo"] == {"InvalidSpec": 1, "Applied": 1}


async def test_many_are_made_in_one_pass(town: Town) -> None:
    town.put_password("secret-1")
    for number in range(20):
        town.world.put(mqtt_user(f"user-{number}"))
    await town.look()
    assert len(town.log.tables.users) == 20
    town.written()
    assert not (await town.look()).changed
    assert town.written() == []
