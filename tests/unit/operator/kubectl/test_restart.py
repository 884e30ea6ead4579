"""`kubectl flockmq restart`: what is set, and what the operator then does."""

import pytest

from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.kubectl.restart import notes
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.revisions import RESTARTED_AT
from flockmq_operator.spec import decode, pods_digest
from unit.operator.kubectl.harness import Town, conditions
from unit.operator.world import mqtt_cluster

DEMO = Ref("MqttCluster", "demo")
EXTERNAL = {"external": {"url": "redis://elsewhere:6379/0"}}


def restarted(town: Town) -> list[str]:
    """The parts whose pods have to be replaced."""
    spec = town.world.objects[DEMO]["spec"]
    found = [part for part in ("cores", "replicants", "redis") if RESTARTED_AT in str(spec.get(part))]
    before, after = decode(mqtt_cluster()).spec, decode(town.world.objects[DEMO]).spec
    digests = (("cores", "core"), ("replicants", "replicant"), ("redis", "redis"))
    assert found == [
        part for part, component in digests if pods_digest(before, component) != pods_digest(after, component)
    ]
    return found


@pytest.mark.parametrize("part", ["cores", "replicants", "redis"])
async def test_a_part_is_restarted_alone(town: Town, capsys: pytest.CaptureFixture[str], part: str) -> None:
    await town.run("restart", "demo", part)
    assert restarted(town) == [part]
    assert "Watch it:     kubectl flockmq status demo --namespace fleet" in capsys.readouterr().out


async def test_without_a_part_all_are_restarted_in_the_operators_order(
    town: Town, capsys: pytest.CaptureFixture[str]
) -> None:
    await town.run("restart", "demo")
    assert restarted(town) == ["cores", "replicants", "redis"]
    said = capsys.readouterr().out
    assert "one at a time: cores, then replicants, then Redis" in said
    assert "! there is one pod of Redis: QoS 1 and 2 aren't acknowledged while it restarts" in said


async def test_what_the_spec_says_of_pods_stays(town: Town) -> None:
    annotations = {"team": "iot", RESTARTED_AT: "2026-01-01T00:00:00Z"}
    town.world.objects[DEMO]["spec"] = {
        "cores": {"replicas": 5, "podTemplate": {"metadata": {"annotations": annotations}}}
    }
    await town.run("restart", "demo", "cores")
    cores = town.world.objects[DEMO]["spec"]["cores"]
    assert cores["replicas"] == 5
    assert cores["podTemplate"]["metadata"]["annotations"]["team"] == "iot"
    assert cores["podTemplate"]["metadata"]["annotations"][RESTARTED_AT] > "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("spec", "part", "said"),
    [
        ({"redis": EXTERNAL}, "redis", "its Redis is another's .spec.redis.external.: restart it where it runs"),
        ({"replicants": {"replicas": 0}}, "replicants", "has no replicants: restart cores or redis"),
    ],
)
async def test_a_part_that_is_not_there_is_refused(town: Town, spec: Manifest, part: str, said: str) -> None:
    town.world.objects[DEMO]["spec"] = spec
    with pytest.raises(Failed, match=f"^MqttCluster demo in namespace fleet:? {said}"):
        await town.run("restart", "demo", part)
    await town.run("restart", "demo")
    assert RESTARTED_AT not in str(town.world.objects[DEMO]["spec"].get(part))


def test_what_may_not_be_expected_is_said() -> None:
    status = conditions(Stalled=("True", "SecretMissing", "Secret tls is missing")) | {"updatePending": True}
    body = mqtt_cluster({"pause": True, "cores": {"replicas": 1}}, status=status)
    said = list(notes(body, ["cores"]))
    assert [note.split(":")[0] for note in said] == [
        "spec.pause is true",
        "the cluster is stalled",
        "pods also become as this operator makes them, which is newer than they are (status.updatePending)",
        "there is one pod of cores",
    ]
