"""Who may write a MqttCluster doesn't thereby choose what runs beside the cluster's Secrets."""

import pytest
from msgspec.structs import replace

from flockmq_operator.images import is_allowed, repository_of
from flockmq_operator.manifest import Manifest, Ref, ref
from unit.operator.test_plan import CORES, REDIS, REPLICANTS, running
from unit.operator.world import SETTINGS, context

REPORT = Ref("CronJob", "demo-report")
TOLD = replace(SETTINGS, flockmq_image_registries="registry.example/team, other.example:5000")


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("broker", "docker.io/library/broker"),
        ("broker:1", "docker.io/library/broker"),
        ("somebody/broker:1", "docker.io/somebody/broker"),
        ("docker.io/valkey/valkey:8.1-alpine", "docker.io/valkey/valkey"),
        ("localhost/broker", "localhost/broker"),
        ("r.example:5000/a/b:1@sha256:00", "r.example:5000/a/b"),
        ("r.example/a@sha256:00", "r.example/a"),
    ],
)
def test_a_repository_is_the_whole_name_without_tag_and_digest(image: str, repository: str) -> None:
    assert repository_of(image) == repository


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("registry.example/team/flockmq-broker:2", True),
        ("registry.example/team/deeper/broker", True),
        ("other.example:5000/broker", True),
        ("broker:2", True),  # another version of the operator's own
        ("broker@sha256:00", True),
        ("registry.example/teams/broker", False),
        ("registry.example/evil", False),
        ("registry.example.evil.example/team/broker", False),
        ("other.example/broker", False),
        ("evil/broker:1", False),
        ("evil.example/broker:1", False),
        ("evil.example/registry.example/team/broker", False),
    ],
)
def test_images_come_from_where_the_operator_allows_it(image: str, allowed: bool) -> None:
    assert is_allowed(TOLD, image) is allowed


def test_a_star_allows_them_all() -> None:
    assert is_allowed(replace(SETTINGS, flockmq_image_registries="*"), "evil.example/broker")


@pytest.mark.parametrize(
    ("spec", "field", "kept"),
    [
        ({"image": "evil.example/b:1"}, "spec.image", [CORES, REPLICANTS]),
        ({"redis": {"image": "evil.example/b:1"}}, "spec.redis.image", [REDIS]),
        ({"report": {"image": "evil.example/b:1"}}, "spec.report.image", [REPORT]),
    ],
)
async def test_pods_of_another_image_are_not_made_and_it_is_said_what_is_allowed(
    spec: Manifest, field: str, kept: list[Ref]
) -> None:
    world = await running()
    plan = await world.plan(context(spec))
    assert not plan.changes
    assert plan.problems[0].reason == "ImageRefused"
    sentence = f"{field}: evil.example/b:1: the operator takes images only from docker.io/"
    assert plan.problems[0].message.startswith(sentence)
    for name in kept:
        del world.objects[name]
    assert not {ref(manifest) for manifest in (await world.plan(context(spec))).apply} & set(kept)
