"""The CRD: bounded, in step with spec.py, and admitting every sample."""

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, get_args
from urllib.parse import quote

import msgspec
import pytest
import yaml

from flockmq.config import auth_settings as auth
from flockmq.config import schema as broker
from flockmq.config.conversion import field_types, read
from flockmq.config.values import QuotaBytes
from flockmq.ctl.api import PATH_MAX_BYTES
from flockmq.management.rebalance_rows import AskedRebalance
from flockmq.node.node_load import Weights
from flockmq_operator.manifest import Manifest
from flockmq_operator.rebalances.spec import RebalanceSpec, decode_rebalance
from flockmq_operator.spec import (
    S3,
    Backup,
    CaSecret,
    CrlSecret,
    ExternalRedis,
    Listener,
    Mqtt,
    Part,
    RedisUser,
    Restore,
    Rule,
    S3Credentials,
    SecretKey,
    ServerName,
    Spec,
    Tls,
    TlsSecret,
    Users,
    decode,
)
from flockmq_operator.users.quotas import UserQuotas
from flockmq_operator.users.spec import UserRule, UserSpec, decode_user
from unit.operator.schema import CRD, REBALANCE_SCHEMA, ROOT, SCHEMA, USER_SCHEMA, violations, with_defaults
from unit.operator.world import mqtt_cluster

SPEC = SCHEMA["properties"]["spec"]
LISTENER = SPEC["properties"]["listeners"]["items"]
USER_SPEC = USER_SCHEMA["properties"]["spec"]
REBALANCE_SPEC = REBALANCE_SCHEMA["properties"]["spec"]
READ: dict[str, tuple[Manifest, Callable[[Manifest], object]]] = {
    "MqttCluster": (SCHEMA, decode),
    "MqttUser": (USER_SCHEMA, decode_user),
    "MqttRebalance": (REBALANCE_SCHEMA, decode_rebalance),
}
SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))


def fields(schema: Manifest, path: str = "spec") -> Iterator[tuple[str, Manifest]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from fields(below, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from fields(schema[inner], f"{path}[]")


@pytest.mark.parametrize(
    ("path", "schema"), [*fields(SPEC), *fields(USER_SPEC, "user.spec"), *fields(REBALANCE_SPEC, "rebalance.spec")]
)
def test_every_field_is_bounded(path: str, schema: Manifest) -> None:
    if schema.get("x-kubernetes-int-or-string"):
        assert "maxLength" in schema
        return
    bound = {
        "string": "maxLength" in schema or "enum" in schema,
        "integer": "minimum" in schema and "maximum" in schema,
        "number": "minimum" in schema and "maximum" in schema,
        "array": "maxItems" in schema,
        "object": "properties" in schema
        or "maxProperties" in schema
        or "x-kubernetes-preserve-unknown-fields" in schema,
        "boolean": True,
    }
    assert bound[schema["type"]], path


@pytest.mark.parametrize(
    "rule",
    [
        rule
        for _, schema in (*fields(SPEC), *fields(USER_SPEC), *fields(REBALANCE_SPEC), ("", USER_SCHEMA))
        for rule in schema.get("x-kubernetes-validations", ())
    ],
)
def test_every_rule_speaks_in_a_sentence(rule: Manifest) -> None:
    assert len(rule["message"].split()) >= 4, "a sentence, not a name"


def parity(struct: type[msgspec.Struct], schema: Manifest, path: str) -> Iterator[str]:
    """Where the struct and the schema know different fields or defaults."""
    known = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    if known.keys() != schema["properties"].keys():
        yield f"{path}: {sorted(known.keys() ^ schema['properties'].keys())}"
    for name, field in known.items():
        below = schema["properties"].get(name, {})
        if isinstance(field.default, Part):
            yield from parity(type(field.default), below, f"{path}.{name}")
        elif "default" in below and not same(field.default, below["default"]):
            yield f"{path}.{name}: {field.default!r} != {below['default']!r}"


def same(default: object, said: Any) -> bool:
    if isinstance(default, tuple) and isinstance(said, list):
        return len(default) == len(said) and all(map(same, default, said))
    if isinstance(default, msgspec.Struct):
        return default == msgspec.convert(said, type(default))
    return bool(default == said)


def test_the_schema_and_the_decoder_know_the_same_fields_and_defaults() -> None:
    assert list(parity(Spec, SPEC, "spec")) == []
    assert list(parity(Listener, LISTENER, "listener")) == []
    tls = LISTENER["properties"]["tls"]["properties"]
    assert list(parity(Tls, LISTENER["properties"]["tls"], "tls")) == []
    assert list(parity(CaSecret, tls["caSecret"], "caSecret")) == []
    assert list(parity(CrlSecret, tls["crlSecret"], "crlSecret")) == []
    assert list(parity(ServerName, tls["sni"]["items"], "sni")) == []
    external = SPEC["properties"]["redis"]["properties"]["external"]
    assert list(parity(ExternalRedis, external, "external")) == []
    for struct, name in ((SecretKey, "passwordSecretRef"), (CaSecret, "caSecretRef"), (TlsSecret, "tlsSecretRef")):
        assert list(parity(struct, external["properties"][name], name)) == []
    assert list(parity(RedisUser, external["properties"]["replicants"], "replicants")) == []
    s3 = SPEC["properties"]["report"]["properties"]["storage"]["properties"]["s3"]
    assert list(parity(S3, s3, "s3")) == []
    assert list(parity(S3Credentials, s3["properties"]["credentialsSecretRef"], "credentialsSecretRef")) == []
    for part, name in ((Backup, "backup"), (Restore, "restore")):
        assert list(parity(part, SPEC["properties"][name], name)) == []
    assert list(parity(Users, SPEC["properties"]["authentication"]["properties"]["users"], "users")) == []
    assert list(parity(Rule, SPEC["properties"]["authorization"]["properties"]["rules"]["items"], "rule")) == []
    assert list(parity(UserSpec, USER_SPEC, "user")) == []
    assert list(parity(UserRule, USER_SPEC["properties"]["rules"]["items"], "user rule")) == []
    assert list(parity(SecretKey, USER_SPEC["properties"]["passwordSecretRef"], "user password")) == []
    assert list(parity(RebalanceSpec, REBALANCE_SPEC, "rebalance")) == []


@pytest.mark.parametrize("name", ["relativeThresholdPercent", "absoluteThreshold"])
def test_a_rebalances_thresholds_are_bounded_as_the_clusters(name: str) -> None:
    of_cluster = SPEC["properties"]["rebalance"]["properties"][name]
    of_rebalance = REBALANCE_SPEC["properties"][name]
    assert (of_rebalance["minimum"], of_rebalance["maximum"]) == (of_cluster["minimum"], of_cluster["maximum"])


def test_a_rebalances_weights_are_the_clusters() -> None:
    of_cluster, of_rebalance = SPEC["properties"]["rebalance"], REBALANCE_SPEC
    weights = [schema["properties"]["weights"]["properties"] for schema in (of_cluster, of_rebalance)]
    assert weights[0] == weights[1]
    assert [below["description"].split(".")[0] for below in weights[0].values()] == [
        f"Default: {default:.0f}" for default in Weights()
    ]


def test_what_a_rebalance_may_say_the_broker_takes() -> None:
    for bound in ("minimum", "maximum"):
        said = {name: below[bound] for name, below in REBALANCE_SPEC["properties"].items() if bound in below}
        weights = REBALANCE_SPEC["properties"]["weights"]["properties"]
        said["weights"] = {name: below[bound] for name, below in weights.items()}
        assert (len(said), len(weights)) == (6, 3)
        asked = msgspec.convert({"cluster": "demo", **said}, RebalanceSpec).asked()
        assert set(asked) | {"name"} == set(AskedRebalance.__struct_fields__)
        assert msgspec.convert(asked, AskedRebalance).rate == said["rate"]


def test_a_users_rules_are_bounded_as_the_clusters() -> None:
    rules = SPEC["properties"]["authorization"]["properties"]["rules"]
    of_all = {name: below for name, below in rules["items"]["properties"].items() if name != "username"}
    assert USER_SPEC["properties"]["rules"]["items"]["properties"] == of_all
    assert USER_SPEC["properties"]["rules"]["maxItems"] == rules["maxItems"]


def test_a_user_may_have_the_quotas_that_the_broker_knows() -> None:
    schema = USER_SPEC["properties"]["quotas"]
    assert list(parity(UserQuotas, schema, "user quotas")) == []
    assert UserQuotas.__struct_fields__ == broker.QuotasSettings.__struct_fields__
    kinds = field_types(broker.QuotasSettings)
    for field in msgspec.structs.fields(UserQuotas):
        below = schema["properties"][field.encode_name]
        is_size = kinds[field.name] == QuotaBytes | None
        for amount in (
            below["minimum"],
            below["maximum"],
            "infinity",
            *(("1.5KB", "64MB", "7", "9b") if is_size else ()),
        ):
            assert list(violations(amount, below)) == []
            told = msgspec.convert({field.encode_name: amount}, UserQuotas).told()[field.name]
            assert told == (amount if amount == "infinity" else read(amount, kinds[field.name], "quotas"))
        for amount in ("none", "-1", "1TB" if is_size else "1MB"):
            assert list(violations(amount, below)), amount


def test_a_user_name_fits_into_a_path_of_the_brokers_api() -> None:
    longest = quote("\U0001f600", safe="") * USER_SPEC["properties"]["username"]["maxLength"]
    assert len(f"/api/v1/quotas/{longest}") <= PATH_MAX_BYTES
    assert len(f"/api/v1/rules/username/{longest}") <= PATH_MAX_BYTES


def test_an_empty_spec_means_the_same_with_and_without_the_api_servers_defaults() -> None:
    assert decode(mqtt_cluster(with_defaults({}, SPEC))).spec == decode(mqtt_cluster()).spec


def test_scale_and_status_are_subresources() -> None:
    scale = CRD["spec"]["versions"][0]["subresources"]["scale"]
    assert scale["specReplicasPath"] == ".spec.replicants.replicas"
    assert scale["statusReplicasPath"] == ".status.replicants.replicas"
    assert scale["labelSelectorPath"] == ".status.selector"
    assert CRD["spec"]["names"]["shortNames"] == ["mqc"]


def of_ours(text: str) -> list[Manifest]:
    documents: list[Any] = list(yaml.safe_load_all(text))
    return [document for document in documents if document["kind"] in READ]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_admitted_and_decoded(sample: Any) -> None:
    found = of_ours(sample.read_text())
    assert found
    for body in found:
        schema, read = READ[body["kind"]]
        filled = with_defaults(body, schema)
        assert list(violations(filled, schema)) == []
        metadata = {"namespace": "default", "uid": "u", "generation": 1}
        read({**filled, "metadata": {**filled["metadata"], **metadata}})


@pytest.mark.parametrize(
    "spec",
    [
        {"passwordSecretRef": {"name": "s"}},
        {"cluster": "demo"},
        {"cluster": "Demo", "passwordSecretRef": {"name": "s"}},
        {"cluster": "demo", "passwordSecretRef": {"name": "s"}, "password": "p"},
        {"cluster": "demo", "passwordSecretRef": {"name": "s"}, "username": "a\0b"},
        {"cluster": "demo", "passwordSecretRef": {"name": "s"}, "username": "x" * 129},
        {"cluster": "demo", "passwordSecretRef": {"name": "s"}, "rules": [{"topics": ["#"]}]},
        {"cluster": "demo", "passwordSecretRef": {"name": "s"}, "quotas": {"maxSession": 1}},
        {"cluster": "demo", "passwordSecretRef": {"name": "s"}, "quotas": {"maxQueuedBytes": "1 MB"}},
        {"cluster": "demo", "passwordSecretRef": {"name": "s"}, "rules": [{"permit": "allow", "username": "eve"}]},
    ],
)
def test_what_the_schema_of_users_refuses(spec: Manifest) -> None:
    assert list(violations(with_defaults(spec, USER_SPEC), USER_SPEC))


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 3},
        {"cores": {"replicas": 9}},
        {"cores": {"replicas": "3"}},
        {"service": {"type": "External"}},
        {"listeners": []},
        {"listeners": [{"name": "mqtt"}]},
        {"listeners": [{"name": "mqtt", "port": 1883, "type": "udp"}]},
        {"listeners": [{"name": "mqtts", "port": 8883, "type": "ssl", "tls": {}}]},
        {"mqtt": {"maxPacketSize": "1 MB"}},
        {"mqtt": {"idleTimeout": "15"}},
        {"mqtt": {"keepaliveMultiplier": 0.5}},
        {"authentication": {"chain": [{"mechanism": "ldap"}]}},
        {"authorization": {"rules": [{"topics": ["#"]}]}},
        {"autoscaling": {}},
        {"redis": {"replicas": 7}},
        {"forwarding": "indirect"},
        {"redis": {"external": {"url": "redis://r", "replicants": {"username": "r"}}}},
        {"cores": {"resources": {"requests": {"cpu": "much"}}}},
    ],
)
def test_what_the_schema_refuses(spec: Manifest) -> None:
    assert list(violations(with_defaults(spec, SPEC), SPEC))


def holds(rule: str, value: Manifest, before: Manifest | None = None) -> bool:
    """Whether `value` keeps a rule of the little CEL that is spelled here in Python. The API server has all of it."""
    text = re.sub(r"has\(((?:self|oldSelf)(?:\.\w+)*)\.(\w+)\)", r"hasattr(\1, '\2')", rule)
    for theirs, ours in (("&&", " and "), ("||", " or "), ("!has", " not has"), ("size(", "len(")):
        text = text.replace(theirs, ours)
    return bool(eval(text, {"self": namespace(value), "oldSelf": namespace(before or {})}))


def namespace(value: Any) -> Any:
    return SimpleNamespace(**{key: namespace(below) for key, below in value.items()}) if type(value) is dict else value


IPV4, IPV6 = ["IPv4"], ["IPv6", "IPv4"]
DUAL, SINGLE = "PreferDualStack", "SingleStack"


@pytest.mark.parametrize(
    ("part", "sentence", "said", "kept"),
    [
        ("service", "service.ipFamilies", {"ipFamilies": IPV4, "ipFamilyPolicy": DUAL}, False),
        ("service", "service.ipFamilies", {"ipFamilies": IPV6, "ipFamilyPolicy": SINGLE}, False),
        ("service", "service.ipFamilies", {"ipFamilies": IPV6, "ipFamilyPolicy": DUAL}, True),
        ("service", "service.ipFamilies", {"ipFamilies": IPV4, "ipFamilyPolicy": SINGLE}, True),
        ("service", "service.ipFamilies", {"ipFamilies": IPV6}, True),
        ("service", "service.ipFamilies", {"ipFamilyPolicy": DUAL}, True),
        ("", "autoscaling needs replicants.replicas", {"autoscaling": {}, "replicants": {"replicas": 0}}, False),
        ("", "autoscaling needs replicants.replicas", {"autoscaling": {}, "replicants": {"replicas": 1}}, True),
        ("", "autoscaling needs replicants.replicas", {"replicants": {"replicas": 0}}, True),
        ("report", "report.executors needs", {"executors": {"replicas": 1}, "storage": {}}, False),
        ("report", "report.executors needs", {"executors": {"replicas": 1}, "storage": {"s3": {}}}, True),
        ("report", "report.executors needs", {"executors": {"replicas": 0}, "storage": {}}, True),
    ],
)
def test_what_a_rule_refuses(part: str, sentence: str, said: Manifest, kept: bool) -> None:
    rules = (SPEC["properties"][part] if part else SPEC)["x-kubernetes-validations"]
    (rule,) = [each["rule"] for each in rules if each["message"].startswith(sentence)]
    assert holds(rule, said) is kept


CLASS, OTHER = {"storage": {"storageClassName": "fast"}}, {"storage": {"storageClassName": "slow"}}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ({}, CLASS, False),
        (CLASS, {}, False),
        (CLASS, OTHER, False),
        ({"storage": {}}, CLASS, False),
        (CLASS, CLASS, True),
        ({}, {"storage": {}}, True),
        ({"storage": {}}, {}, True),
    ],
)
def test_the_class_of_the_volume_of_redis_cant_change(before: Manifest, after: Manifest, kept: bool) -> None:
    """Nor where a spec says nothing of the volume at first: a rule of `storage` alone doesn't see that."""
    rules = SPEC["properties"]["redis"]["x-kubernetes-validations"]
    (rule,) = [each["rule"] for each in rules if each["message"].startswith("redis.storage.storageClassName")]
    assert holds(rule, after, before) is kept


# What the CRD repeats of the broker's own configuration.


def at(*path: str) -> Manifest:
    """The schema of a field of the spec; "[]": of a list's elements."""
    schema: Manifest = SPEC
    for name in path:
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


def test_whole_numbers_and_choices_have_the_brokers_bounds() -> None:
    kinds = field_types(broker.MqttSettings)
    for field in msgspec.structs.fields(Mqtt):
        below, marks = at("mqtt", field.encode_name), get_args(kinds[field.name])
        if below.get("type") == "integer":
            bounds = next(mark for mark in marks if isinstance(mark, msgspec.Meta))
            assert (below["minimum"], below["maximum"]) == (bounds.ge, bounds.le), field.name
        if "enum" in below:
            assert tuple(below["enum"]) == marks, field.name


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        (("authentication", "chain", "[]", "mechanism"), auth.Authenticator),
        (("authorization", "sources", "[]", "type"), auth.Source),
    ],
)
def test_authenticators_and_sources_are_the_brokers(path: tuple[str, ...], kinds: Any) -> None:
    assert set(at(*path)["enum"]) == {kind.__struct_config__.tag for kind in get_args(kinds)}
