"""Decoding specs, and the digest by which pods are held."""

import pytest

from flockmq_operator.spec import NODE_RESOURCES, Part, SpecError, decode, pods_digest, said
from unit.operator.schema import SCHEMA, with_defaults
from unit.operator.world import mqtt_cluster


def digest(spec: dict[str, object], component: str = "core") -> str:
    return pods_digest(decode(mqtt_cluster(spec)).spec, component)


def test_a_wrong_type_is_refused_naming_the_field() -> None:
    with pytest.raises(SpecError, match=r"spec\.cores\.replicas: Expected `int`, got `str`"):
        decode(mqtt_cluster({"cores": {"replicas": "three"}}))


def test_the_defaults_that_the_api_server_writes_change_no_digest() -> None:
    defaulted = with_defaults(mqtt_cluster({"mqtt": {"maxInflight": 5}}), SCHEMA)["spec"]
    assert digest(defaulted) == digest({"mqtt": {"maxInflight": 5}})


@pytest.mark.parametrize(
    "spec",
    [
        {"replicants": {"replicas": 9}},
        {"autoscaling": {"maxReplicas": 9}},
        {"service": {"type": "LoadBalancer"}},
        {"cores": {"storage": {"size": "9Gi"}}},
        {"report": {"enabled": False}},
        {"redis": {"tls": False}},
        {"update": "Automatic"},
    ],
)
@pytest.mark.parametrize("component", ["core", "replicant", "redis"])
def test_what_shows_in_no_pod_changes_no_digest(spec: dict[str, object], component: str) -> None:
    assert digest(spec, component) == digest({}, component)


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        ({"image": "broker:9"}, {"core", "replicant"}),
        ({"mqtt": {"maxInflight": 5}}, {"core", "replicant"}),
        ({"cores": {"resources": {"limits": {"memory": "9Gi"}}}}, {"core"}),
        ({"replicants": {"resources": {"limits": {"memory": "9Gi"}}}}, {"replicant"}),
        ({"redis": {"image": "r:9"}}, {"redis"}),
        ({"redis": {"replicas": 3}}, {"core", "replicant", "redis"}),
        ({"redis": {"tls": True}}, {"core", "replicant", "redis"}),
        ({"cores": {"replicas": 5}}, {"core"}),
        ({"forwarding": "via-core"}, {"core", "replicant"}),
        ({"imagePullSecrets": [{"name": "x"}]}, {"core", "replicant", "redis"}),
        ({"terminationGracePeriodSeconds": 9}, {"core", "replicant"}),
    ],
)
def test_what_shows_in_pods_changes_their_digest_and_no_others(spec: dict[str, object], changed: set[str]) -> None:
    assert {
        component for component in ("core", "replicant", "redis") if digest(spec, component) != digest({}, component)
    } == changed


def test_the_default_resources_have_a_cpu_request_for_the_autoscaler() -> None:
    assert "cpu" in NODE_RESOURCES.requests


RICH: dict[str, object] = {
    "image": "b:9",
    "mqtt": {"maxInflight": 5},
    "cores": {"replicas": 5, "resources": {"limits": {"memory": "9Gi"}}},
    "replicants": {"resources": {"requests": {"cpu": "1"}}},
    "imagePullSecrets": [{"name": "x"}],
    "redis": {"replicas": 3, "image": "r:9", "tls": True},
    "listeners": [
        {
            "name": "mqtts",
            "port": 8883,
            "type": "ssl",
            "tls": {"secretName": "t", "sni": [{"host": "h", "secretName": "s"}]},
        }
    ],
}
EXTERNAL: dict[str, object] = {
    "redis": {"external": {"url": "redis://r", "passwordSecretRef": {"name": "p"}}},
    "authorization": {"rules": [{"permit": "allow", "topics": ["#"]}]},
    "config": "[zones.a]",
}


REBALANCED: dict[str, object] = {
    "rebalance": {"relativeThresholdPercent": 110, "absoluteThreshold": 100, "waitSeconds": 30}
}


@pytest.mark.parametrize(
    ("spec", "core", "replicant", "redis"),
    [
        ({}, "cdf19f2db063ee81", "cdf19f2db063ee81", "cdf19f2db063ee81"),
        (RICH, "b4c8711defae2e68", "bc9bbc8ea9e11c7a", "bc207390f3873cf7"),
        (EXTERNAL, "0b9f792873f81257", "0b9f792873f81257", "d141c8e11cefef18"),
        (REBALANCED, "cdf19f2db063ee81", "df15a8d9038dbde9", "cdf19f2db063ee81"),
        ({"rebalance": {}}, "cdf19f2db063ee81", "df15a8d9038dbde9", "cdf19f2db063ee81"),
    ],
)
def test_the_digests_of_earlier_operators_are_found(
    spec: dict[str, object], core: str, replicant: str, redis: str
) -> None:
    """Another digest restarts every pod of every cluster when the operator is upgraded: never change these."""
    assert [digest(spec, component) for component in ("core", "replicant", "redis")] == [core, replicant, redis]


class Newer(Part, frozen=True):
    known: int = 1
    text: str = ""
    names: list[str] = []  # noqa: RUF012 (msgspec copies it)
    table: dict[str, str] = {}  # noqa: RUF012
    part: Part = Part()


def test_a_field_that_is_added_is_not_said_at_its_default() -> None:
    assert said(Newer(known=2)) == {"known": 2}
    assert said(Newer(table={"a": "b"})) == {"table": {"a": "b"}}
