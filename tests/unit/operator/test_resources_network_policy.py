"""Who may connect to what."""

from flockmq_operator.manifest import Manifest, Ref
from unit.operator.built import EXTERNAL, admitted, built, components


def test_who_may_connect_to_what() -> None:
    assert admitted("demo-replicant", 1883) == []
    assert admitted("demo-core", 1883) is None
    assert (
        components(admitted("demo-core", 4370)) == components(admitted("demo-replicant", 4370)) == ["core", "replicant"]
    )
    assert components(admitted("demo-redis", 6379)) == ["core", "replicant", "report"]
    assert built()[Ref("NetworkPolicy", "demo-report")]["spec"]["ingress"] == []


PROMETHEUS: Manifest = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
}


def test_management_is_for_the_operator_and_whom_the_spec_names() -> None:
    """A pod that calls itself Prometheus anywhere isn't let in."""
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "flockmq"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "flockmq-operator"}},
    }
    spec: Manifest = {"networkPolicy": {"managementFrom": [PROMETHEUS]}}
    for policy in ("demo-core", "demo-replicant"):
        assert admitted(policy, 18083) == [operator]
        assert admitted(policy, 18083, spec) == [operator, PROMETHEUS]


def reached(policy: str, spec: Manifest | None = None) -> dict[int, list[str]] | None:
    """Port → components of this cluster to which the policy's pods may connect; None: to anything."""
    rules = built(spec)[Ref("NetworkPolicy", policy)]["spec"]
    if "Egress" not in rules["policyTypes"]:
        assert "egress" not in rules
        return None
    own = [rule for rule in rules["egress"] if "to" in rule]
    return {entry["port"]: components(rule["to"]) for rule in own for entry in rule["ports"]}


def test_redis_and_the_report_connect_to_redis_alone() -> None:
    replicated: Manifest = {"redis": {"replicas": 3}}
    assert reached("demo-redis") == {}
    assert reached("demo-redis", replicated) == {6379: ["redis"], 26379: ["redis"]}
    assert reached("demo-report") == {6379: ["redis"]}
    assert reached("demo-report", EXTERNAL) is None


S3: Manifest = {"report": {"storage": {"s3": {"bucket": "events"}}}}
WITH_EXECUTORS: Manifest = {"report": {**S3["report"], "executors": {"replicas": 2}}}


def test_a_report_with_s3_connects_to_anything_until_the_spec_says_to_what() -> None:
    somewhere = {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"protocol": "TCP", "port": 443}]}
    bounded: Manifest = {"networkPolicy": {"egress": [somewhere]}}
    assert reached("demo-report", S3) is None
    egress = built({**S3, **bounded})[Ref("NetworkPolicy", "demo-report")]["spec"]["egress"]
    assert egress[-1] == somewhere
    assert components(egress[1]["to"]) == ["redis"]
    assert Ref("NetworkPolicy", "demo-report-executor") not in built(S3)


def test_a_driver_and_its_executors_connect_to_one_another_and_nobody_else_to_them() -> None:
    assert components(admitted("demo-report", 7078, WITH_EXECUTORS)) == ["executor"]
    assert components(admitted("demo-report", 7079, WITH_EXECUTORS)) == ["executor"]
    assert components(admitted("demo-report-executor", 7079, WITH_EXECUTORS)) == ["report", "executor"]
    assert admitted("demo-report-executor", 7078, WITH_EXECUTORS) is None
    spec: Manifest = {**WITH_EXECUTORS, "networkPolicy": {"egress": []}}
    assert reached("demo-report", spec) == {6379: ["redis"], 7079: ["executor"]}
    egress = built(spec)[Ref("NetworkPolicy", "demo-report-executor")]["spec"]["egress"]
    assert [(components(rule["to"]), [entry["port"] for entry in rule["ports"]]) for rule in egress[1:]] == [
        (["report"], [7078, 7079]),
        (["executor"], [7079]),
    ]


def test_nodes_connect_to_one_another_and_redis_once_the_spec_says_where_else() -> None:
    nowhere: Manifest = {"networkPolicy": {"egress": []}}
    assert reached("demo-core") is None
    for policy in ("demo-core", "demo-replicant"):
        assert reached(policy, nowhere) == {4370: ["core", "replicant"], 6379: ["redis"]}
    somewhere = {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"protocol": "TCP", "port": 6379}]}
    spec = EXTERNAL | {"networkPolicy": {"egress": [somewhere]}}
    for policy in ("demo-core", "demo-replicant", "demo-report"):
        assert built(spec)[Ref("NetworkPolicy", policy)]["spec"]["egress"][-1] == somewhere
