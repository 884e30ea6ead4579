"""`kubectl flockmq rollback`: what it goes back to, what it shows, and whom it asks."""

import copy
import os
import pty
import subprocess
import sys

import pytest

from flockmq_operator.kube import Refused
from flockmq_operator.kubectl import rollback
from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.kubectl.rollback import changes
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.revisions import digest_of, revision_of
from flockmq_operator.spec import decode
from unit.operator.kubectl.harness import Town
from unit.operator.world import NAMESPACE, mqtt_cluster

DEMO = Ref("MqttCluster", "demo")
GOOD: Manifest = {"image": "broker:1", "config": "[log]\nlevel = 'info'\n", "replicants": {"replicas": 2}}
BAD: Manifest = {"image": "broker:2", "config": "[log]\nlevel = 'loud'\n", "replicants": {"replicas": 4}}


def put(town: Town, spec: Manifest, generation: int) -> None:
    """The MqttCluster is so now."""
    town.world.objects[DEMO]["spec"] = copy.deepcopy(spec)
    town.world.objects[DEMO]["metadata"]["generation"] = generation


def was_whole(town: Town, spec: Manifest, generation: int) -> None:
    body = mqtt_cluster(spec, generation)
    town.world.put(revision_of(body, f"demo-{digest_of(decode(body).spec)}"))


def spec_of(town: Town) -> Manifest:
    found: Manifest = town.world.objects[DEMO]["spec"]
    return found


async def test_the_last_other_spec_comes_back_and_what_changes_is_shown(
    town: Town, capsys: pytest.CaptureFixture[str]
) -> None:
    was_whole(town, {"image": "broker:0"}, 3)
    was_whole(town, GOOD, 5)
    put(town, BAD, 7)
    await town.run("rollback", "demo", "--yes")
    assert spec_of(town) == GOOD | {"replicants": {"replicas": 4}}
    lines = capsys.readouterr().out.splitlines()
    assert lines[:7] == [
        "MqttCluster demo in namespace fleet: from generation 7 to the spec of generation 5:",
        "  spec.config:",
        "    - level = 'loud'",
        "    + level = 'info'",
        '  spec.image: "broker:2" → "broker:1"',
        "! an older release can't be started any more once the cluster has settled on a newer: docs/upgrades.md",
        "MqttCluster demo in namespace fleet has that spec now; the operator rolls it out: "
        "kubectl flockmq status demo --namespace fleet",
    ]


async def test_a_spec_that_is_whole_itself_goes_back_to_the_one_before(town: Town) -> None:
    was_whole(town, GOOD, 5)
    was_whole(town, BAD, 7)
    put(town, BAD, 7)
    await town.run("rollback", "demo", "--yes")
    assert spec_of(town)["image"] == "broker:1"


async def test_a_spec_that_cannot_be_read_is_gone_back_from(town: Town) -> None:
    was_whole(town, GOOD, 5)
    put(town, {"cores": {"replicas": "many"}}, 6)
    await town.run("rollback", "demo", "--yes")
    assert spec_of(town)["image"] == "broker:1"


async def test_without_another_spec_it_says_so(town: Town) -> None:
    was_whole(town, GOOD, 5)
    put(town, GOOD | {"replicants": {"replicas": 9}, "pause": True}, 8)
    with pytest.raises(Failed, match="MqttCluster demo in namespace fleet: the operator has kept no other spec"):
        await town.run("rollback", "demo", "--yes")
    assert spec_of(town)["pause"] is True


async def test_where_nobody_can_be_asked_it_stays_as_it_is(town: Town) -> None:
    was_whole(town, GOOD, 5)
    put(town, BAD, 7)
    with pytest.raises(Failed, match="say --yes") as failed:
        await town.run("rollback", "demo")
    assert failed.value.code == 2
    assert spec_of(town) == BAD


async def go_back(town: Town, answer: bool, meanwhile: Manifest | None = None) -> None:
    def agree() -> bool:
        if meanwhile:
            put(town, meanwhile, 8)
        return answer

    await rollback.rollback(town.world, NAMESPACE, "demo", print, agree)


@pytest.mark.parametrize(
    ("typed", "agrees"), [(b"y\n", "True"), (b"\n", "False"), (b"no\n", "False"), (b"\x04", "False")]
)
def test_whoever_is_at_the_terminal_is_asked(typed: bytes, agrees: str) -> None:
    """The last one types Ctrl-D."""
    ours, theirs = pty.openpty()
    program = "from flockmq_operator.kubectl.rollback import agree_at_terminal; print(agree_at_terminal())"
    try:
        os.write(ours, typed)
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.split("] ")[-1].strip() == agrees


async def test_a_no_leaves_it_as_it_is(town: Town) -> None:
    was_whole(town, GOOD, 5)
    put(town, BAD, 7)
    with pytest.raises(Failed, match="stays as it is"):
        await go_back(town, answer=False)
    assert spec_of(town) == BAD


async def test_what_somebody_else_wrote_in_the_meantime_stays(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    was_whole(town, GOOD, 5)
    put(town, BAD, 7)
    other = {"image": "broker:3"}
    with pytest.raises(Failed, match="was changed in the meantime"):
        await go_back(town, answer=True, meanwhile=other)
    assert spec_of(town) == other

    async def conflict(_: Manifest) -> Manifest:
        raise Refused(409, "the object has been modified")

    monkeypatch.setattr(town.world, "replace", conflict)
    with pytest.raises(Failed, match="was changed in the meantime"):
        await go_back(town, answer=True)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1, "c": True}}, {"a": {"b": 2}}, ["  s.a.b: 1 → 2", "  s.a.c: true → (not set)"]),
        ([{"n": 1}], [{"n": 2}], ["  s[0].n: 1 → 2"]),
        ([1], [1, 2], ["  s: [1] → [1, 2]"]),
        (None, "a\nb", ["  s:", "    + a", "    + b"]),
        ("a\nb", None, ["  s:", "    - a", "    - b"]),
        ("a", {"b": "ä"}, ['  s: "a" → {"b": "ä"}']),
    ],
)
def test_each_change_is_a_line(old: object, new: object, lines: list[str]) -> None:
    assert list(changes(old, new, "s")) == lines
