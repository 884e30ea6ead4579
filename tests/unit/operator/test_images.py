"""Who may write a MqttCluster doesn't thereby choose what runs beside the cluster's Secrets."""

import pytest
from msgspec.structs import replace

from flockmq_operator.images import is_allowed, repository_of
from flockmq_operator.manifest import Manifest
from unit.operator.world import SETTINGS, World, context

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
    ("spec", "field"),
    [
        ({"image": "evil.example/b:1"}, "spec.image"),
        ({"redis": {"image": "evil.example/b:1"}}, "spec.redis.image"),
        ({"report": {"image": "evil.example/b:1"}}, "spec.report.image"),
    ],
)
async def test_another_image_stops_the_plan_and_says_what_is_allowed(spec: Manifest, field: str) -> None:
    plan = await World().plan(context(spec))
    assert not plan.changes
    assert plan.problem
    assert plan.problem.reason == "ImageRefused"
    assert plan.problem.message.startswith(f"{field}: evil.example/b:1: the operator takes images only from docker.io/")
