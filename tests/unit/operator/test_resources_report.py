"""The report: a password of its own, and one server that it reads from."""

import json

import pytest

from flockmq_operator.manifest import Manifest
from unit.operator.built import templates

OURS = "ssl_ca_certs=/etc/flockmq/secrets/redis-tls/ca.crt"


def test_the_report_has_a_password_of_its_own_and_not_the_cluster_key() -> None:
    report = json.dumps(templates()["report"])
    assert "report-password" in report
    assert "core-password" not in report
    assert "cluster-key" not in report


@pytest.mark.parametrize(
    ("redis", "url"),
    [
        ({}, f"rediss://report@demo-redis:6379/0?{OURS}"),
        ({"replicas": 3}, f"rediss://report@demo-redis:6379/0?{OURS}"),
        ({"tls": False}, "redis://report@demo-redis:6379/0"),
        ({"external": {"url": "redis://r:6379/2"}}, "redis://r:6379/2"),
        (
            {"external": {"url": "rediss://r", "username": "u", "caSecretRef": {"name": "ca"}}},
            f"rediss://u@r?{OURS}",
        ),
    ],
)
def test_the_report_reads_from_one_server(redis: Manifest, url: str) -> None:
    args = templates({"redis": redis})["report"]["spec"]["containers"][0]["args"]
    assert args[args.index("--redis-url") + 1] == url
