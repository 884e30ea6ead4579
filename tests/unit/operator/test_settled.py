"""When a MqttCluster is left alone for a while, and what is watched of it by name."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from flockmq_operator.certificates import CERTIFICATE_LIFE
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.passes import SETTLED_RESYNC_S
from flockmq_operator.resources import build
from flockmq_operator.settled import is_empty, is_settled, named_objects
from flockmq_operator.status import make_status
from flockmq_operator.status.condition import Situation
from unit.operator.test_plan import running
from unit.operator.world import context

AT = context()


async def test_it_is_settled_when_nothing_is_left_to_do() -> None:
    world = await running({})
    observed = await world.observe(AT)
    status = make_status(Situation(1, AT, observed), {}, world.now)
    assert is_settled(AT, observed, status)
    assert not is_settled(replace(AT, kept_files={"node.toml": ""}), observed, status), "a core is asked about them"
    assert not is_settled(AT, observed._replace(left_out=frozenset({Ref("Pod", "a")})), status)
    situation = Situation(1, AT, observed)
    for another in (Situation(1), situation._replace(changed=True), situation._replace(waiting_for="x")):
        assert not is_settled(AT, observed, make_status(another, {}, world.now))
    world.objects[Ref("StatefulSet", "demo-core")]["status"]["readyReplicas"] = 2
    observed = await world.observe(AT)
    assert not is_settled(AT, observed, make_status(Situation(1, AT, observed), {}, world.now))


async def test_a_certificate_that_is_due_before_it_would_be_looked_at_again_is_no_surprise() -> None:
    world = await running({})
    due = world.now + CERTIFICATE_LIFE * 2 / 3
    world.now = due - timedelta(seconds=SETTLED_RESYNC_S + 60)
    assert is_empty(await world.plan(AT))
    world.now += timedelta(seconds=SETTLED_RESYNC_S)
    assert is_empty(await world.plan(AT))
    world.now += timedelta(seconds=120)
    assert not is_empty(await world.plan(AT))


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({}, ["demo-api-key", "demo-cluster-key", "demo-links", "demo-mqtt-user", "demo-redis", "demo-redis-tls"]),
        ({"listeners": [{"name": "a", "port": 8883, "tls": {"secretName": "others"}}]}, ["others"]),
        ({"management": {"tls": {"secretName": "others"}}}, ["others"]),
    ],
)
def test_its_own_secrets_and_those_that_its_spec_names_are_watched(spec: Manifest, names: list[str]) -> None:
    at = context(spec)
    found = named_objects(at, [ref(manifest) for manifest in build(at)])
    assert {Ref("Secret", name) for name in names} <= found


def test_the_claims_that_its_spec_names_are_watched() -> None:
    at = context({"backup": {"schedule": "0 3 * * *", "claimName": "a"}, "restore": {"claimName": "b", "backup": "c"}})
    found = named_objects(at, [])
    assert {name for name in found if name.kind == "PersistentVolumeClaim"} == {
        Ref("PersistentVolumeClaim", "a"),
        Ref("PersistentVolumeClaim", "b"),
    }
