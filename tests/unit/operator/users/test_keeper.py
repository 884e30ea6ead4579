"""What becomes of a MqttUser: its user in the cluster, its condition, its end. Against the broker's own API."""

import json
from typing import Any

import pytest

from flockmq.auth.rule_sources import decoded
from flockmq.auth.user_revocation import is_disabled
from flockmq.quotas import INFINITE
from flockmq.rlog.schema import AUDIT, QUOTAS, RULES, USERS, OwnQuotas, User
from flockmq_operator.manifest import Ref
from flockmq_operator.users.api import SeenUser, UserApi
from unit.operator.users.harness import CORE, DEMO, JO, Town, core, living, mqtt_user
from unit.operator.world import mqtt_cluster

OTHER = User("$2b$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW")


async def made(town: Town, **spec: object) -> None:
    town.put_password("secret-1")
    town.world.put(mqtt_user(**spec))
    await town.look()
    town.written()
    town.told()


async def test_an_object_becomes_a_user_who_can_log_in(town: Town) -> None:
    town.put_password("secret-1")
    town.world.put(mqtt_user(superuser=True, rules=[{"permit": "allow", "topics": ["a/#"], "qos": [0, 1]}]))
    done = await town.look()
    assert done.changed
    assert town.lets_in("jo", "secret-1")
    user = town.log.tables.users.get("jo")
    assert user is not None
    assert user.is_superuser
    raw = town.log.tables.rules.get(("username", "jo"))
    assert raw is not None
    assert [(rule.permit, rule.topics, rule.qos) for rule in decoded(raw)] == [("allow", ("a/#",), (0, 1))]
    assert (town.ready()["status"], town.reason()) == ("True", "Applied")
    status = town.world.objects[JO]["status"]
    assert (status["observedGeneration"], status["username"]) == (1, "jo")
    assert town.told() == ["Created", "Ready"]
    assert town.metrics.users["fleet", "demo"] == {"Applied": 1}


async def test_what_is_as_it_should_be_is_not_written_again(town: Town) -> None:
    await made(town, rules=[{"permit": "deny", "action": "publish"}])
    for _ in range(3):
        done = await town.look()
        assert not done.changed
    assert town.written() == []
    assert town.told() == []


async def test_the_password_is_nowhere_but_in_its_secret(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    await made(town)
    town.put_password("secret-2", version=2)
    await town.look()
    del town.world.objects[Ref("Secret", "jo-password")]
    everything = json.dumps([list(map(str, town.world.objects.values())), town.world.told]) + caplog.text
    assert "secret-" not in everything


async def test_a_user_name_may_be_another_than_the_objects(town: Town) -> None:
    await made(town, username="Jo Ö/#?%")
    assert town.lets_in("Jo Ö/#?%", "secret-1")
    assert town.world.objects[JO]["status"]["username"] == "Jo Ö/#?%"
    town.delete()
    await town.look()
    assert len(town.log.tables.users) == 0


# Changes.


async def test_another_password_in_the_secret_is_set(town: Town) -> None:
    await made(town)
    town.put_password("secret-2", version=2)
    await town.look()
    assert town.lets_in("jo", "secret-2")
    assert town.told() == ["Updated"]
    town.written()
    await town.look()
    assert town.written() == []


async def test_the_same_password_in_another_version_of_the_secret_leaves_the_hash(town: Town) -> None:
    await made(town)
    before = town.log.tables.users.get("jo")
    town.put_password("secret-1", version=2)
    await town.look()
    assert town.log.tables.users.get("jo") == before, "so that its clients stay"


async def test_a_password_that_somebody_else_set_is_set_right(town: Town) -> None:
    await made(town)
    town.log.put([USERS.put("jo", OTHER)])
    await town.look()
    assert town.lets_in("jo", "secret-1")
    assert town.told() == ["Mended"]


async def test_a_user_that_somebody_else_removed_is_made_again_with_its_rules(town: Town) -> None:
    await made(town, rules=[{"permit": "deny"}])
    town.log.put([USERS.delete("jo"), RULES.delete(("username", "jo"))])
    await town.look()
    assert town.lets_in("jo", "secret-1")
    assert town.log.tables.rules.get(("username", "jo"))
    assert town.told() == ["Mended"]


async def test_rights_and_rules_follow_the_spec(town: Town) -> None:
    await made(town, rules=[{"permit": "deny"}])
    town.edit(enabled=False, superuser=True, rules=[])
    await town.look()
    user = town.log.tables.users.get("jo")
    assert user is not None
    assert (user.is_superuser, is_disabled(user)) == (True, True)
    assert town.log.tables.rules.get(("username", "jo")) is None
    assert town.ready()["message"] == "user jo is in MqttCluster demo, and can't log in"
    assert town.told() == ["Updated"]
    town.edit(enabled=True, superuser=False)
    await town.look()
    assert town.lets_in("jo", "secret-1")


async def test_quotas_follow_the_spec(town: Town) -> None:
    await made(town, quotas={"maxSessions": 5, "maxQueuedBytes": "1MB"})
    assert town.log.tables.quotas.get("jo") == OwnQuotas(max_sessions=5, max_queued_bytes=1024 * 1024)
    for _ in range(2):
        assert not (await town.look()).changed
    town.edit(quotas={"maxRetainedBytes": "infinity"})
    await town.look()
    assert town.log.tables.quotas.get("jo") == OwnQuotas(max_retained_bytes=INFINITE)
    assert town.told() == ["Updated"]
    town.log.put([QUOTAS.put("jo", OwnQuotas(max_sessions=1))])
    await town.look()
    assert town.log.tables.quotas.get("jo") == OwnQuotas(max_retained_bytes=INFINITE)
    assert town.told() == ["Mended"]
    town.edit(quotas={})
    await town.look()
    assert town.log.tables.quotas.get("jo") is None
    town.written()
    await town.look()
    assert town.written() == []


async def test_quotas_that_cant_be_set_yet_are_told_and_no_user_is_made_before(town: Town) -> None:
    town.log.version = 1
    await made(town, quotas={"maxSessions": 5})
    assert town.reason() == "ClusterNotReady"
    assert "some nodes know of no quotas of single users yet" in town.ready()["message"]
    assert len(town.log.tables.users) == 0
    town.log.version = 2
    await town.look()
    assert town.reason() == "Applied"


async def test_a_user_is_disabled_though_its_secret_is_gone(town: Town) -> None:
    await made(town)
    del town.world.objects[Ref("Secret", "jo-password")]
    town.edit(enabled=False)
    await town.look()
    user = town.log.tables.users.get("jo")
    assert user is not None
    assert is_disabled(user)
    assert town.reason() == "SecretMissing"
    town.put_password("secret-1")
    town.edit(enabled=True)
    await town.look()
    assert town.lets_in("jo", "secret-1")
    assert town.reason() == "Applied"


# What is wrong, in plain words.


async def test_a_secret_or_a_key_that_is_missing_is_told_and_its_coming_noticed(town: Town) -> None:
    town.world.put(mqtt_user(passwordSecretRef={"name": "jo-password", "key": "pw"}))
    await town.look()
    assert town.ready()["message"] == "Secret jo-password in namespace fleet doesn't exist: create it, with the key pw"
    assert town.told() == ["SecretMissing"]
    town.put_password("secret-1")
    await town.look()
    assert town.reason() == "KeyMissing"
    assert not town.owns()
    town.edit(passwordSecretRef={"name": "jo-password"})
    await town.look()
    assert town.reason() == "Applied"


async def test_a_cluster_that_is_missing_or_not_up_is_told(town: Town) -> None:
    town.put_password("secret-1")
    town.world.put(mqtt_user())
    for missing, reason, looks_again_s in ((CORE, "ClusterNotReady", 10), (DEMO, "ClusterMissing", 30)):
        del town.world.objects[missing]
        done = await town.look()
        assert (town.ready()["status"], town.reason(), done.look_again_s) == ("False", reason, looks_again_s)
    assert town.told() == ["ClusterMissing"]
    assert not town.owns()


async def test_rules_that_the_broker_refuses_are_told_with_its_sentence_and_no_user_is_made(town: Town) -> None:
    town.put_password("secret-1")
    town.world.put(mqtt_user(rules=[{"permit": "allow", "ipaddr": ["nonsense"]}]))
    await town.look()
    assert town.reason() == "Refused"
    assert "MqttCluster demo refuses user jo: rules: " in town.ready()["message"]
    assert "nonsense" in town.ready()["message"]
    assert len(town.log.tables.users) == 0


async def test_a_password_that_was_set_before_rules_were_refused_is_set_once(town: Town) -> None:
    await made(town)
    town.put_password("secret-2", version=2)
    town.edit(rules=[{"permit": "allow", "ipaddr": ["nonsense"]}])
    await town.look()
    assert town.lets_in("jo", "secret-2")
    town.written()
    await town.look()
    assert town.reason() == "Refused"
    assert town.written() == []


async def test_a_key_that_the_cluster_refuses_is_told(town: Town) -> None:
    await made(town)
    town.world.objects[Ref("Secret", "demo-api-key")]["data"]["key"] = "eHh4"
    await town.look()
    assert town.reason() == "KeyRefused"


async def test_a_paused_cluster_is_left_alone(town: Town) -> None:
    await made(town)
    town.world.put(mqtt_cluster({"pause": True}))
    town.edit(superuser=True)
    await town.look()
    assert town.reason() == "ClusterPaused"
    assert town.written() == []


async def test_a_cluster_that_asks_nobody_in_the_log_refuses_users_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with living(monkeypatch, users_matter=False) as town:
        await made(town)
        assert town.reason() == "Refused"
        assert 'add "password_based:built_in_database"' in town.ready()["message"]


# Whose a user is.


async def test_a_user_that_is_there_is_left_alone_unless_it_is_to_be_adopted(town: Town) -> None:
    town.log.put([USERS.put("jo", OTHER), RULES.put(("username", "jo"), b'[{"permit":"deny"}]')])
    town.log.put([QUOTAS.put("jo", OwnQuotas(max_sessions=1))])
    await made(town)
    assert town.reason() == "UserExists"
    assert town.log.tables.users.get("jo") == OTHER
    town.delete()
    await town.look()
    assert town.log.tables.users.get("jo") == OTHER
    assert town.log.tables.quotas.get("jo") == OwnQuotas(max_sessions=1)
    town.world.put(mqtt_user(adopt=True))
    await town.look()
    assert town.reason() == "Applied"
    assert town.told() == ["Adopted", "Ready"]
    assert town.lets_in("jo", "secret-1")
    assert town.log.tables.rules.get(("username", "jo")) is None
    assert town.log.tables.quotas.get("jo") is None


async def test_a_user_that_somebody_else_makes_at_the_same_time_stays_theirs(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = UserApi.create

    async def create_late(api: UserApi, *of: Any, **how: Any) -> SeenUser:
        town.log.put([USERS.put("jo", OTHER)])
        return await create(api, *of, **how)

    monkeypatch.setattr(UserApi, "create", create_late)
    await made(town)
    assert town.reason() == "ClusterNotReady"
    await town.look()
    assert town.reason() == "UserExists"
    assert town.log.tables.users.get("jo") == OTHER
    assert not town.owns()


async def test_of_two_that_claim_a_name_the_older_has_it_and_the_other_says_so(town: Town) -> None:
    town.put_password("secret-1")
    town.put_password("secret-2", name="other")
    young = mqtt_user("ann", "2026-11-26T13:00:00Z", username="jo", passwordSecretRef={"name": "other"}, adopt=True)
    town.world.put(young)
    town.world.put(mqtt_user())
    ann = Ref("MqttUser", "ann")
    for _ in range(2):
        await town.look()
        assert (town.reason(), town.reason(ann)) == ("Applied", "NameClaimed")
        assert "MqttUser jo" in town.ready(ann)["message"]
        assert town.lets_in("jo", "secret-1")
    town.delete()
    await town.look()
    await town.look()
    assert town.reason(ann) == "Applied"
    assert town.lets_in("jo", "secret-2")


async def test_who_has_the_user_keeps_it(town: Town) -> None:
    """Of two of one second, the first letters don't count any more when one of them was first."""
    await made(town)
    town.world.put(mqtt_user("ann", username="jo"))
    await town.look()
    assert (town.reason(), town.reason(Ref("MqttUser", "ann"))) == ("Applied", "NameClaimed")


async def test_a_user_of_no_object_is_never_touched(town: Town) -> None:
    town.log.put([USERS.put("eve", OTHER), RULES.put(("username", "eve"), b"[]")])
    await made(town)
    town.edit(superuser=True)
    await town.look()
    town.delete()
    await town.look()
    assert town.log.tables.users.get("eve") == OTHER
    assert town.log.tables.rules.get(("username", "eve")) == b"[]"
    assert JO not in town.world.objects


# The end.


async def test_a_deleted_object_removes_its_user_and_goes(town: Town) -> None:
    await made(town, rules=[{"permit": "deny"}], quotas={"maxSessions": 5})
    town.delete()
    await town.look()
    assert JO not in town.world.objects
    assert town.log.tables.users.get("jo") is None
    assert town.log.tables.rules.get(("username", "jo")) is None
    assert town.log.tables.quotas.get("jo") is None
    assert (await town.look()).gone


async def test_it_goes_though_its_user_is_gone_already(town: Town) -> None:
    await made(town)
    town.log.put([USERS.delete("jo")])
    town.delete()
    await town.look()
    assert JO not in town.world.objects


@pytest.mark.parametrize("is_going", [True, False])
async def test_it_goes_with_its_cluster(town: Town, is_going: bool) -> None:
    await made(town)
    town.delete()
    if is_going:
        town.world.objects[DEMO]["metadata"]["deletionTimestamp"] = "now"
    else:
        del town.world.objects[DEMO]
    await town.look()
    assert JO not in town.world.objects


async def test_while_its_cluster_cannot_be_asked_it_says_how_to_let_it_go(town: Town) -> None:
    await made(town)
    town.delete()
    del town.world.objects[CORE]
    await town.look()
    assert town.reason() == "ClusterNotReady"
    assert "kubectl patch mqttuser jo --type=merge" in town.ready()["message"]
    town.world.put(core())
    await town.look()
    assert JO not in town.world.objects


async def test_one_that_never_had_a_user_needs_nobody_to_go(town: Town) -> None:
    await made(town, passwordSecretRef={"name": "none"})
    assert not town.owns()


async def test_each_change_is_in_the_audit_log_once(town: Town) -> None:
    await made(town)
    town.put_password("secret-2", version=2)
    for _ in range(3):
        await town.look()
    audited = [op for op in town.written() if op[0] == AUDIT.number]
    assert len(audited) == 1
