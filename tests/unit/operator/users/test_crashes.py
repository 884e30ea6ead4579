"""An operator may be killed after anything that it says for a MqttUser: the next one brings the same about."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from flockmq.auth.rule_sources import decoded
from flockmq_operator.management_api import ManagementApi
from flockmq_operator.metrics import Metrics
from flockmq_operator.users.reconcile import UserReconciler
from unit.operator.crashes import Mortality, all_passes
from unit.operator.users.harness import JO, Town, living, mqtt_user
from unit.operator.world import SETTINGS

Prepare = Callable[[Town], Awaitable[None]]
RULES = [{"permit": "allow", "topics": ["a/#"]}]


async def created(town: Town) -> None:
    town.put_password("secret-1")
    town.world.put(mqtt_user(rules=RULES, quotas={"maxSessions": 7}))


async def changed(town: Town) -> None:
    await created(town)
    await town.look()
    town.put_password("secret-2", version=2)
    town.edit(superuser=True, rules=[])


async def deleted(town: Town) -> None:
    await created(town)
    await town.look()
    town.delete()


@pytest.mark.parametrize("prepare", [created, changed, deleted])
async def test_its_user_ends_the_same_and_is_never_nobodys(monkeypatch: pytest.MonkeyPatch, prepare: Prepare) -> None:
    ends = set()
    for dies_after in range(1, 20):
        async with living(monkeypatch) as town:
            await prepare(town)
            mortality = Mortality(dies_after, lambda town=town: judge(town))  # type: ignore[misc]
            with monkeypatch.context() as patched:
                mortality.watch(patched, town.world, ManagementApi)
                await all_passes(town, partial(UserReconciler, town.world, SETTINGS, Metrics()))
            ends.add(end_of(town))
            if not mortality.has_killed:
                break
    assert dies_after > 2
    assert len(ends) == 1


def judge(town: Town) -> None:
    """A user is in the cluster only while a MqttUser holds it, and never without its rules before it may do more."""
    user = town.log.tables.users.get("jo")
    assert user is None or (JO in town.world.objects and town.owns())
    has_rules = town.log.tables.rules.get(("username", "jo")) is not None
    assert user is None or user.is_superuser or has_rules


def end_of(town: Town) -> tuple[object, ...]:
    user, raw = town.log.tables.users.get("jo"), town.log.tables.rules.get(("username", "jo"))
    rules = [(rule.permit, rule.topics) for rule in decoded(raw)] if raw else []
    if JO not in town.world.objects:
        return "gone", user is None, str(rules)
    password = next(text for text in ("secret-2", "secret-1") if town.lets_in("jo", text))
    assert user
    return town.reason(), password, user.is_superuser, str(rules), str(town.log.tables.quotas.get("jo"))
