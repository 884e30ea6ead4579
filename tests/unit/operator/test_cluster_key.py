"""The cluster's key is replaced in steps that leave nodes the time to read each; all know each other at any time."""

import itertools
import json
from datetime import UTC, datetime, timedelta

import pytest

from flockmq_operator.certificates import Unreadable
from flockmq_operator.cluster_key import OVERLAP, fresh_key, next_key_step
from flockmq_operator.manifest import Ref
from unit.operator.test_plan import converge, running
from unit.operator.world import context

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def made(asked: str = "") -> dict[str, bytes]:
    return {name: content.encode() for name, content in fresh_key(asked).items()}


def test_it_stays_until_it_is_asked_for_and_then_again() -> None:
    assert next_key_step(None, "1", START) is None
    assert next_key_step(made(), "", START) is None
    assert next_key_step(made("1"), "1", START) is None
    assert next_key_step(made("1"), "", START) is None
    assert next_key_step(made("1"), "2", START)


def test_it_is_replaced_in_three_steps_that_leave_time_to_read() -> None:
    files = made()
    held: list[list[bytes]] = [files["key"].split()]
    at = []
    now = START
    while now < START + timedelta(hours=5):
        if step := next_key_step(files, "1", now):
            files = step.files
            held.append(files["key"].split())
            at.append(now - START)
        now += timedelta(minutes=5)
    assert at == [timedelta(), OVERLAP, 2 * OVERLAP]
    (old,), (new,) = held[0], held[-1]
    assert held == [[old], [old, new], [new, old], [new]]
    for earlier, later in itertools.pairwise(held):  # who has read it, and who hasn't yet
        assert earlier[0] in later
        assert later[0] in earlier
    assert next_key_step(files, "1", now) is None


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [({"rotation": b"{"}, "rotation isn't as"), ({"key": b"a b c"}, "key holds 3 keys"), ({"key": b""}, "0 keys")],
)
def test_what_somebody_else_wrote_is_a_problem(spoil: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(Unreadable, match=sentence):
        next_key_step({**made(), **spoil}, "1", START)


def test_one_that_an_earlier_operator_made_is_replaced_too() -> None:
    assert next_key_step({"key": b"0123456789abcdef"}, "1", START)


async def test_the_spec_has_it_replaced_and_nothing_rolls() -> None:
    world = await running()
    secret = world.objects[Ref("Secret", "demo-cluster-key")]
    before = secret["data"]["key"]
    spec = {"clusterKeyRotation": "2026-11-23"}
    world.writes.clear()
    for _ in range(3):
        await converge(world, context(spec))
        world.now += OVERLAP
    assert world.writes == ["apply Secret demo-cluster-key"] * 3
    after = world.objects[Ref("Secret", "demo-cluster-key")]["data"]["key"]
    assert after != before
    assert after not in json.dumps([item for name, item in world.objects.items() if name.kind != "Secret"])
