"""A node's configuration file: the broker's own loader reads from it what the spec says."""

import tomllib
from pathlib import Path
from typing import get_args

import pytest

from flockmq.config.auth_settings import Authenticator, HttpSettings, HttpSourceSettings, Source
from flockmq.config.conversion import field_types
from flockmq.config.listener_settings import named_listeners
from flockmq.config.load import load
from flockmq.config.schema import Config
from flockmq.config.schema import MqttSettings as BrokersMqtt
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import SECRETS_DIR
from flockmq_operator.resources.node_config import node_config
from flockmq_operator.resources.secret_files import node_files, resolved
from flockmq_operator.spec import Mqtt, SpecError
from unit.operator.world import context

MQTTS = {"name": "mqtts", "type": "ssl", "port": 8883, "tls": {"secretName": "tls"}}
JWT = {
    "mechanism": "jwt",
    "algorithm": "hmac-based",
    "secret_file": {"secretKeyRef": {"name": "issuer", "key": "hmac"}},
}


def loaded(tmp_path: Path, spec: Manifest | None = None, role: str = "replicant") -> Config:
    """What a node of that role makes of its file, with a file in place of each key of a Secret."""
    at = context(spec)
    for file in node_files(at, "core" if role == "core" else "replicant"):
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{file.secret} {file.key}")
    toml = tmp_path / "flockmq.toml"
    toml.write_text(node_config(at, role).replace(SECRETS_DIR, str(tmp_path)))
    return load(file=toml, environment={"FLOCKMQ_ROLE": role, "FLOCKMQ_NODE__NAME": "n", "FLOCKMQ_NODE__HOST": "h"})


@pytest.mark.parametrize("role", ["core", "replicant"])
def test_an_empty_spec_makes_a_node_of_a_cluster(tmp_path: Path, role: str) -> None:
    config = loaded(tmp_path, role=role)
    assert config.role == role
    assert [str(seed) for seed in config.cluster.seeds] == ["demo-core:4370"]
    assert str(config.management.listen) == "[::]:18083"
    assert config.management.api_key is not None
    assert config.management.api_key.reveal() == "demo-api-key key"
    assert config.redis.url == "rediss://demo-redis:6379/0"
    assert config.redis.cacertfile
    assert config.redis.cacertfile.read_text() == "demo-redis-tls ca.crt"
    assert config.redis.password is not None
    assert config.redis.password.reveal() == f"demo-redis {role}-password"
    assert (config.redis.username, config.redis.min_replicas) == (role, 0)
    assert config.cluster.cores == (3 if role == "core" else 0)
    links = (config.cluster.certfile, config.cluster.keyfile, config.cluster.cacertfile)
    assert [file.read_text() for file in links if file] == [
        f"demo-links {key}" for key in (f"{role}.crt", f"{role}.key", "ca.crt")
    ]
    listeners = {str(listener): str(listener.settings.bind) for listener in named_listeners(config.listeners)}
    assert listeners == ({} if role == "core" else {"tcp:mqtt": "[::]:1883"})


@pytest.mark.parametrize("forwarding", ["direct", "via-core"])
def test_how_messages_reach_other_nodes(tmp_path: Path, forwarding: str) -> None:
    assert loaded(tmp_path, {"forwarding": forwarding}).cluster.forwarding == forwarding


@pytest.mark.parametrize(("replicas", "needed"), [(3, 1), (5, 2)])
def test_nodes_ask_sentinels_for_a_redis_with_replicas(tmp_path: Path, replicas: int, needed: int) -> None:
    redis = loaded(tmp_path, {"redis": {"replicas": replicas}}).redis
    hosts = ",".join(f"demo-redis-{number}:26379" for number in range(replicas))
    assert redis.url == f"rediss+sentinel://{hosts}/flockmq"
    assert redis.min_replicas == needed
    assert redis.sentinel_password_file
    assert redis.sentinel_password_file.read_text() == "demo-redis sentinel-password"


EXTERNAL: Manifest = {
    "url": "rediss+sentinel://a:26379,b:26379/main",
    "username": "fleet",
    "passwordSecretRef": {"name": "r"},
    "sentinelPasswordSecretRef": {"name": "r", "key": "sentinel"},
    "caSecretRef": {"name": "ca"},
    "tlsSecretRef": {"name": "client"},
    "replicants": {"username": "reader", "passwordSecretRef": {"name": "r", "key": "reader"}},
    "minReplicas": 1,
}


@pytest.mark.parametrize(
    ("role", "username", "password"), [("core", "fleet", "r password"), ("replicant", "reader", "r reader")]
)
def test_an_external_redis_by_tls_and_users(tmp_path: Path, role: str, username: str, password: str) -> None:
    redis = loaded(tmp_path, {"redis": {"external": EXTERNAL}}, role).redis
    assert (redis.url, redis.username, redis.min_replicas) == (EXTERNAL["url"], username, 1)
    assert redis.password
    assert redis.password.reveal() == password
    files = (redis.sentinel_password_file, redis.cacertfile, redis.certfile, redis.keyfile)
    assert [file.read_text() for file in files if file] == [
        "r sentinel", "ca ca.crt", "client tls.crt", "client tls.key",
    ]  # fmt: skip


def test_cores_say_whose_an_external_redis_is(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"redis": {"external": EXTERNAL}}, "core").cluster.name == "fleet/demo"
    assert loaded(tmp_path, {"redis": {"external": EXTERNAL}}, "replicant").cluster.name == "", "it may only read logs"
    assert loaded(tmp_path, {}, "core").cluster.name == "", "the operator's own is nobody else's"


def test_each_limit_of_the_broker_can_be_said_by_its_name_in_camel_case() -> None:
    assert set(Mqtt.__struct_fields__) == field_types(BrokersMqtt).keys()


def test_limits_take_units(tmp_path: Path) -> None:
    limits = {
        "maxPacketSize": "256KB", "idleTimeout": "1m", "sessionExpiryInterval": "2d", "keepaliveMultiplier": 2,
        "messagesRate": "100/s", "bytesRate": "1MB/s", "maxInflight": 7, "retainAvailable": False,
    }  # fmt: skip
    mqtt = loaded(tmp_path, {"mqtt": limits}).mqtt
    assert (mqtt.max_packet_size, mqtt.idle_timeout, mqtt.session_expiry_interval) == (256 * 1024, 60, 172_800)
    assert (mqtt.keepalive_multiplier, mqtt.messages_rate, mqtt.bytes_rate) == (2, 100, 1024 * 1024)
    assert (mqtt.max_inflight, mqtt.retain_available) == (7, False)


def test_a_listener_has_its_certificates_as_files(tmp_path: Path) -> None:
    tls = {
        "secretName": "tls", "verify": "peer", "failIfNoPeerCert": True, "caSecret": {"name": "ca"},
        "crlSecret": {"name": "ca"}, "versions": ["tlsv1.3"], "sni": [{"host": "b.example", "secretName": "b"}],
    }  # fmt: skip
    limits = {"maxConnections": 9, "maxConnRate": "5/s"}
    listener = {
        "name": "wss", "type": "wss", "port": 443, "tls": tls, "path": "/ws", "allowedOrigins": ["https://app.example"],
        "proxyProtocol": True, "proxyProtocolFrom": ["10.1.0.0/16"], "proxyProtocolCommonName": True,
        "zone": "devices", "allow": ["10.0.0.0/8"], "deny": ["10.9.0.0/16"], "limits": limits,
    }  # fmt: skip
    config = loaded(tmp_path, {"listeners": [listener], "config": "[zones.devices]\nmax_inflight = 3"})
    assert [str(each) for each in named_listeners(config.listeners)] == ["wss:wss"]
    wss = config.listeners.wss["wss"]
    files = (wss.certfile, wss.keyfile, wss.cacertfile, wss.crlfile, wss.sni[0].certfile, wss.sni[0].keyfile)
    assert [file.read_text() for file in files if file] == [
        "tls tls.crt", "tls tls.key", "ca ca.crt", "ca ca.crl", "b tls.crt", "b tls.key",
    ]  # fmt: skip
    assert (wss.verify, wss.fail_if_no_peer_cert, wss.versions) == ("peer", True, ("tlsv1.3",))
    assert (wss.path, wss.allowed_origins) == ("/ws", ("https://app.example",))
    assert (wss.proxy_protocol, wss.zone) == (True, "devices")
    assert (str(wss.proxy_protocol_from[0]), wss.proxy_protocol_common_name) == ("10.1.0.0/16", True)
    assert (str(wss.allow[0]), str(wss.deny[0])) == ("10.0.0.0/8", "10.9.0.0/16")
    assert (wss.max_connections, wss.max_conn_rate) == (9, 5)
    assert config.zones["devices"].max_inflight == 3


@pytest.mark.parametrize("role", ["core", "replicant"])
def test_anonymous_clients_are_refused_and_the_first_user_is_read_by_cores(tmp_path: Path, role: str) -> None:
    authentication = loaded(tmp_path, role=role).authentication
    assert authentication.allow_anonymous is False
    assert [type(entry).__name__ for entry in authentication.chain] == ["BuiltInSettings"]
    file = authentication.bootstrap_file
    assert (file and file.read_text()) == ("demo-mqtt-user users.csv" if role == "core" else None)
    assert authentication.bootstrap_replace is (role == "core")
    assert role == "replicant" or authentication.bootstrap_type == "plain"


def test_users_come_from_the_secret_that_the_spec_names(tmp_path: Path) -> None:
    users = {"secretName": "fleet", "key": "fleet.json"}
    authentication = loaded(tmp_path, {"authentication": {"users": users}}, "core").authentication
    assert authentication.bootstrap_file
    assert authentication.bootstrap_file.read_text() == "fleet fleet.json"
    assert authentication.bootstrap_file.suffix == ".json"
    assert authentication.bootstrap_type == "hash"


def test_users_that_no_authenticator_asks_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"spec\.authentication\.users: nothing in the chain asks for them"):
        loaded(tmp_path, {"authentication": {"users": {"secretName": "fleet"}, "chain": [JWT]}}, "core")


def test_an_authenticators_secret_is_a_file(tmp_path: Path) -> None:
    chain = loaded(tmp_path, {"authentication": {"chain": [JWT], "allowAnonymous": True}}).authentication.chain
    secret = getattr(chain[0], "secret", None)
    assert secret is not None
    assert secret.reveal() == "issuer hmac"


@pytest.mark.parametrize("section", ["authentication", "authorization"])
def test_a_services_secret_header_is_a_file(tmp_path: Path, section: str) -> None:
    key = {"secretKeyRef": {"name": "users", "key": "api-key"}}
    http = {"url": "http://users/", "headers": {"X-User": "${username}"}, "headers_file": {"X-Api-Key": key}}
    spec: Manifest = {
        "authentication": {"chain": [{"mechanism": "password_based:http", **http}]},
        "authorization": {"sources": [{"type": "http", **http}]},
    }
    found = loaded(tmp_path, {section: spec[section]})
    (service,) = found.authentication.chain if section == "authentication" else found.authorization.sources
    assert isinstance(service, HttpSettings | HttpSourceSettings)
    assert service.headers == {"X-User": "${username}"}
    assert [(name, file.read_text()) for name, file in service.headers_file.items()] == [("X-Api-Key", "users api-key")]


@pytest.mark.parametrize("kind", [*get_args(Authenticator), *get_args(Source)])
def test_a_reference_may_stand_where_the_broker_has_a_path(kind: type) -> None:
    key: Manifest = {"secretKeyRef": {"name": "a", "key": "b"}}
    for name, of in field_types(kind).items():
        if of == Path | None:
            resolved({name: key}, "here", [])
        else:
            with pytest.raises(SpecError, match=rf"here\.{name}: secretKeyRef stands where a file is expected"):
                resolved({name: key}, "here", [])


def test_rules_are_the_first_source(tmp_path: Path) -> None:
    rule = {
        "permit": "allow", "action": "publish", "topics": ["devices/${username}/#"], "qos": [0, 1], "retain": False,
        "username": "d-*", "clientid": "c-?", "ipaddr": ["10.0.0.0/8"],
    }  # fmt: skip
    authorization = {
        "noMatch": "deny", "denyAction": "disconnect", "revokedSubscriptions": "disconnect",
        "rules": [rule, {"permit": "deny"}],
        "sources": [{"type": "built_in_database"}],
    }  # fmt: skip
    found = loaded(tmp_path, {"authorization": authorization}).authorization
    assert (found.no_match, found.deny_action, found.revoked_subscriptions) == ("deny", "disconnect", "disconnect")
    assert [type(source).__name__ for source in found.sources] == ["FileSourceSettings", "BuiltInSourceSettings"]
    first, second = getattr(found.sources[0], "rules", ())
    assert (first.permit, first.action, first.topics) == ("allow", "publish", ("devices/${username}/#",))
    assert (first.qos, first.retain, first.username, first.clientid) == ((0, 1), False, "d-*", "c-?")
    assert first.ipaddr == ("10.0.0.0/8",)
    assert (second.permit, second.action, second.topics) == ("deny", "all", ())


def test_free_toml_is_merged_key_by_key(tmp_path: Path) -> None:
    text = """
        log.level = "debug"
        node.max_connections = 7
        cluster.version_settle = "1h"
        [listeners.unix.local]
        bind = "/tmp/mqtt.sock"
    """
    spec = {"config": text, "mqtt": {"maxInflight": 9}}
    config = loaded(tmp_path, spec)
    assert (config.log.level, config.log.format) == ("debug", "json")
    assert (config.node.max_connections, config.mqtt.max_inflight) == (7, 9)
    assert (config.cluster.version_settle, config.cluster.forwarding) == (3600.0, "direct")
    assert [str(each) for each in named_listeners(config.listeners)] == ["tcp:mqtt", "unix:local"]
    assert list(named_listeners(loaded(tmp_path, spec, "core").listeners)) == []


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("[mqtt]\nx =", r"spec\.config: not valid TOML: .*"),
        ("mqtt.max_inflight = 3", r"spec\.config: mqtt\.max_inflight is said by another field .*: remove it here"),
        ("listeners.tcp.mqtt.bind = ':1'", r"spec\.config: listeners\.tcp\.mqtt\.bind is said by another field"),
        ("mqtt = 3", r"spec\.config: mqtt is said by another field"),
        ("role = 'single'", r"spec\.config: role is the operator's to set: remove it"),
        (
            "management.certfile = '/tls/tls.crt'",
            r"spec\.config: management\.certfile: set spec\.management\.tls instead",
        ),
        ("cluster.seeds = ['a:1']", r"spec\.config: cluster\.seeds\[0\] is the operator's to set"),
        ("[[plugins.mine.servers]]\npassword = 'x'", r"spec\.config: plugins\.mine\.servers\[0\]\.password: a secret"),
        ("plugins.mine.url = 'redis://:x@h'", r"spec\.config: plugins\.mine\.url holds a URL with a password"),
    ],
)
def test_free_toml_that_cannot_be_merged_is_refused_by_a_sentence(config: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        node_config(context({"config": config, "mqtt": {"maxInflight": 7}}), "replicant")


def test_listeners_in_free_toml_that_are_no_table_are_refused_by_a_sentence() -> None:
    with pytest.raises(SpecError, match=r"spec\.config: listeners\.tcp must be a table"):
        node_config(context({"listeners": [MQTTS], "config": "listeners.tcp = 'x'"}), "replicant")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"secret": "x"}, r"spec\.authentication\.chain\[0\]\.secret: a secret must not stand .* write secret_file: "),
        ({"password": "${password}"}, r"chain\[0\]\.password: a secret must not stand .* write password_file: "),
        ({"body": {"password": "x"}}, r"chain\[0\]\.body\.password: a secret must not stand"),
        ({"headers": {"Authorization": "x"}}, r"chain\[0\]\.headers\.Authorization: a secret must not stand"),
        (
            {"headers": {"X-Api-Key": "x"}},
            r"headers\.X-Api-Key: a secret .* write headers_file: \{X-Api-Key: \{secretKeyRef: ",
        ),
        ({"url": "https://me:pw@host/auth"}, r"chain\[0\]\.url holds a URL with a password.* authorization_file: "),
        ({"mirrors": ["HTTPS://:pw@host"]}, r"chain\[0\]\.mirrors\[0\] holds a URL with a password"),
        ({"headers": {"x": JWT["secret_file"]}}, r"headers\.x: secretKeyRef stands where a file is expected: "),
        ({"headers": {"x": None}}, r"chain\[0\]\.headers\.x: null is no value here"),
        (
            {"secret_file": {"secretKeyRef": {"name": "x"}}},
            r"chain\[0\]\.secret_file: .*`key`.* Write \{secretKeyRef: ",
        ),
    ],
)
def test_a_null_a_secret_in_the_open_and_a_bad_reference_are_refused(entry: Manifest, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        node_config(context({"authentication": {"chain": [{"mechanism": "jwt", **entry}]}}), "replicant")


def test_what_is_a_clients_own_is_no_secret(tmp_path: Path) -> None:
    """In headers, and in the body, where a password stands by default."""
    said = {"headers": {"Authorization": "Bearer ${password}"}, "body": {"password": "${password}"}}
    http = {"mechanism": "password_based:http", "url": "http://users/", **said}
    chain = loaded(tmp_path, {"authentication": {"chain": [http]}}).authentication.chain
    assert (getattr(chain[0], "headers", None), getattr(chain[0], "body", None)) == tuple(said.values())


def test_the_same_spec_makes_the_same_file() -> None:
    spec = {"listeners": [MQTTS], "authentication": {"chain": [JWT]}}
    assert node_config(context(spec), "replicant") == node_config(context(spec), "replicant")
    assert tomllib.loads(node_config(context(spec), "replicant"))["listeners"]["tcp"]["default"]["bind"] == ""


@pytest.mark.parametrize("role", ["core", "replicant"])
def test_the_management_port_has_tls_where_the_spec_names_a_secret(tmp_path: Path, role: str) -> None:
    assert loaded(tmp_path, role=role).management.certfile is None
    management = loaded(tmp_path, {"management": {"tls": {"secretName": "cert"}}}, role).management
    assert management.certfile is not None
    assert management.keyfile is not None
    assert management.certfile.read_text() == "cert tls.crt"
    assert management.keyfile.read_text() == "cert tls.key"


@pytest.mark.parametrize("role", ["core", "replicant"])
@pytest.mark.parametrize(("grace_s", "drain_s"), [(540, 510.0), (90, 60.0), (60, 40.0), (30, 20.0), (1, 0.0)])
def test_a_node_has_sent_its_clients_away_when_its_pods_grace_is_nearly_over(
    tmp_path: Path, role: str, grace_s: int, drain_s: float
) -> None:
    config = loaded(tmp_path, {"terminationGracePeriodSeconds": grace_s}, role)
    assert config.node.drain_timeout == drain_s


def test_nodes_that_take_clients_rebalance_where_the_spec_says_so(tmp_path: Path) -> None:
    thresholds = {"relativeThresholdPercent": 120, "absoluteThreshold": 50, "waitSeconds": 60}
    rebalance = {**thresholds, "weights": {"connections": 0, "messages": 5}}
    said = loaded(tmp_path, {"rebalance": rebalance}, "replicant").cluster.rebalance
    assert (said.enabled, said.relative_threshold, said.absolute_threshold, said.wait) == (True, 1.2, 50, 60.0)
    assert (said.connections_weight, said.sessions_weight, said.messages_weight) == (0.0, 1.0, 5.0)
    assert loaded(tmp_path, {"rebalance": {}}, "replicant").cluster.rebalance.absolute_threshold is None
    assert loaded(tmp_path, {"rebalance": {}}, "replicant").cluster.rebalance.enabled
    assert not loaded(tmp_path, {}, "replicant").cluster.rebalance.enabled
    assert not loaded(tmp_path, {"rebalance": {}}, "core").cluster.rebalance.enabled
    three_pods = {"rebalance": {}, "replicants": {"replicas": 0}}
    assert loaded(tmp_path, three_pods, "core").cluster.rebalance.enabled


def test_how_fast_clients_are_sent_away_is_free_and_when_is_not(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"config": "[cluster]\neviction_rate = 50"}, "core").cluster.eviction_rate == 50.0
    with pytest.raises(SpecError, match=r"node\.drain_timeout"):
        node_config(context({"config": "[node]\ndrain_timeout = 5"}), "core")
