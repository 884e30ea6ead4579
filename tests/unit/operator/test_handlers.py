"""What kopf is given to do: watch, and nothing for which it would write to an object."""

import kopf

from flockmq_operator.handlers import (
    WATCHED,
    cluster_changed,
    configure,
    part_changed,
    rebalance_changed,
    registry,
    user_changed,
)
from flockmq_operator.kube import RESOURCES
from flockmq_operator.resources.labels import INSTANCE


def test_no_handler_makes_kopf_add_a_finalizer_or_an_annotation() -> None:
    assert registry._changing.get_all_handlers() == []
    assert registry._spawning.get_all_handlers() == []
    assert len(registry._watching.get_all_handlers()) == len(WATCHED) + 3


def test_secrets_are_not_watched() -> None:
    assert "Secret" not in WATCHED


def test_everything_but_our_own_kinds_is_watched_by_label() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    selectors = settings.watching.label_selectors
    for kind in WATCHED:
        resource = RESOURCES[kind]
        key = (resource.group, resource.version, resource.plural)
        assert selectors[key].startswith("app.kubernetes.io/managed-by=flockmq-operator")
    assert len(selectors) == len(WATCHED)


class Woken:
    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []

    def wake(self, namespace: str, name: str) -> None:
        self.keys.append((namespace, name))

    cluster_changed = wake


async def test_a_change_of_a_part_wakes_its_mqtt_cluster() -> None:
    memo = kopf.Memo(reconciler=Woken(), users=Woken())
    await part_changed(namespace="ns", labels={INSTANCE: "demo"}, memo=memo)
    await cluster_changed(namespace="ns", name="other", memo=memo)
    await part_changed(namespace="ns", labels={}, memo=memo)
    assert memo.reconciler.keys == [("ns", "demo"), ("ns", "other")]


async def test_a_change_of_a_mqtt_user_and_of_its_cluster_wakes_the_users_of_that_cluster() -> None:
    memo = kopf.Memo(reconciler=Woken(), users=Woken())
    await user_changed(namespace="ns", spec={"cluster": "demo"}, memo=memo)
    await user_changed(namespace="ns", spec={}, memo=memo)
    assert memo.users.keys == [("ns", "demo")]
    await cluster_changed(namespace="ns", name="demo", memo=memo)
    assert memo.users.keys == [("ns", "demo")] * 2


async def test_a_change_of_a_mqtt_rebalance_wakes_those_of_its_cluster() -> None:
    memo = kopf.Memo(rebalances=Woken())
    await rebalance_changed(namespace="ns", spec={"cluster": "demo"}, memo=memo)
    await rebalance_changed(namespace="ns", spec={}, memo=memo)
    assert memo.rebalances.keys == [("ns", "demo")]
