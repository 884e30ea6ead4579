"""Layers, precedence, and the one line that each mistake gets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from flockmq.bounds import CONFIG_MAX_BYTES
from flockmq.config import load, sources
from flockmq.config.listener_settings import named_listeners
from flockmq.config.sources import Setting
from flockmq.config.values import Address, Secret, parse_address
from flockmq.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    file = folder / "flockmq.toml"
    file.write_text(text)
    return file


def refusal(**layers: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load.load(**{"environment": {}, **layers})  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def test_with_no_layer_a_node_is_single_and_listens_on_loopback_only() -> None:
    settings = load.load(environment={})
    assert settings.role == "single"
    assert [(str(each), each.settings.bind) for each in named_listeners(settings.listeners)] == [
        ("tcp:default", Address("127.0.0.1", 1883))
    ]
    assert settings.cluster.listen.host == settings.management.listen.host == "127.0.0.1"
    assert settings.node.name == socket.gethostname()
    assert settings.node.data_dir is not None
    assert settings.node.data_dir.name == settings.node.name


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = write(
        tmp_path, '[mqtt]\nmax_inflight = 7\nmax_mqueue_len = 5\n[listeners.tcp.default]\nbind = "1.1.1.1:1"\n'
    )
    environment = {"FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": "2.2.2.2:2", "FLOCKMQ_MQTT__MAX_INFLIGHT": "8"}
    command_line = [Setting("listeners.tcp.default.bind", "3.3.3.3:3", "--listen")]
    settings = load.load(file=file, environment=environment, command_line=command_line)
    assert settings.listeners.tcp["default"].bind == Address("3.3.3.3", 3)
    assert settings.mqtt.max_inflight == 8
    assert settings.mqtt.max_mqueue_len == 5
    assert settings.mqtt.max_awaiting_rel == 100


def test_every_key_can_come_from_the_environment() -> None:
    keys = [key.replace("NAME", "some_name-1") for key in sources.every_key()]
    assert {"role", "node.name", "listeners.wss.some_name-1.certfile", "zones.some_name-1.max_inflight"} <= set(keys)
    for key in keys:
        assert sources.environment_name(key).removeprefix("FLOCKMQ_").lower().replace("__", ".") == key
        assert sources.kind_of(key) is not None
        assert not sources.NOT_SETTINGS.fullmatch(sources.environment_name(key))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1883", Address("127.0.0.1", 1883)),
        ("[::1]:1883", Address("::1", 1883)),
        ("demo-core.default.svc:0", Address("demo-core.default.svc", 0)),
    ],
)
def test_an_address_is_read_and_shown_alike(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "1883", ":1883", "host", "host:", "host:x", "host:65536", "::1:1883", "a b:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    message = refusal(environment={"FLOCKMQ_MANAGEMENT__LISTEN": text})
    assert message.startswith(f"FLOCKMQ_MANAGEMENT__LISTEN: {text!r} isn't HOST:PORT; for example")


def test_an_empty_text_switches_a_listener_off() -> None:
    settings = load.load(environment={"FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": ""})
    assert list(named_listeners(settings.listeners)) == []


def test_a_core_listens_for_clients_only_where_it_is_told_to() -> None:
    core = {"FLOCKMQ_ROLE": "core", "FLOCKMQ_REDIS__URL": "redis://h:1", "FLOCKMQ_CLUSTER__KEY": "k"}
    assert list(named_listeners(load.load(environment=core).listeners)) == []
    told = load.load(environment={**core, "FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": "0.0.0.0:0"})
    assert [str(each) for each in named_listeners(told.listeners)] == ["tcp:default"]


def test_sections_with_names_stand_beside_the_default_and_each_layer_adds_to_them(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        [listeners.ssl.public]
        bind = "0.0.0.0:8883"
        certfile = "/tls/tls.crt"
        keyfile = "/tls/tls.key"
        allow = ["10.0.0.0/8"]
        [[listeners.ssl.public.sni]]
        host = "*.example.com"
        certfile = "/other/tls.crt"
        keyfile = "/other/tls.key"
        """,
    )
    environment = {"FLOCKMQ_LISTENERS__SSL__PUBLIC__MAX_CONN_RATE": "100/s", "FLOCKMQ_LISTENERS__WS__A__BIND": "h:80"}
    settings = load.load(file=file, environment=environment)
    assert [str(each) for each in named_listeners(settings.listeners)] == ["tcp:default", "ssl:public", "ws:a"]
    public = settings.listeners.ssl["public"]
    assert (public.max_conn_rate, public.sni[0].host) == (100, "*.example.com")
    assert str(public.allow[0]) == "10.0.0.0/8"


def test_a_key_that_has_no_default_is_asked_for() -> None:
    assert refusal(environment={"FLOCKMQ_LISTENERS__WS__A__ZONE": "default"}) == (
        "listeners.ws.a.bind: is missing; it must be HOST:PORT"
    )


def test_a_listener_that_verifies_needs_to_know_by_whom() -> None:
    where = "FLOCKMQ_LISTENERS__SSL__A__"
    said = {"BIND": "h:1", "CERTFILE": "/c", "KEYFILE": "/k", "VERIFY": "peer"}
    assert refusal(environment={f"{where}{key}": value for key, value in said.items()}) == (
        "listeners.ssl.a: verify = peer needs a cacertfile: who signs clients' certificates"
    )


@pytest.mark.parametrize("kind", ["tcp", "ssl", "ws", "wss"])
def test_a_load_balancer_is_named_where_one_is_believed(kind: str) -> None:
    where = f"FLOCKMQ_LISTENERS__{kind.upper()}__A__"
    said = {f"{where}BIND": "h:1", f"{where}PROXY_PROTOCOL": "true"}
    if kind in ("ssl", "wss"):
        said |= {f"{where}CERTFILE": "/c", f"{where}KEYFILE": "/k"}
    message = refusal(environment=said)
    assert message.startswith(f"listeners.{kind}.a: proxy_protocol = true needs proxy_protocol_from: the networks of")
    assert 'for example proxy_protocol_from = ["10.0.0.0/24"]' in message
    named = load.load(environment={**said, f"{where}PROXY_PROTOCOL_FROM": "10.0.0.0/24, 10.1.0.7"})
    (listener,) = (each.settings for each in named_listeners(named.listeners) if each.type == kind and each.name == "a")
    assert [str(network) for network in listener.proxy_protocol_from] == ["10.0.0.0/24", "10.1.0.7/32"]  # type: ignore[union-attr]
    said[f"{where}PROXY_PROTOCOL_FROM"] = "10.0.0.0/24, fd00::/64"
    message = refusal(environment={**said, f"{where}ALLOW": "192.0.2.0/24, 10.0.1.0/24, fd01::/16"})
    assert message.startswith(f"listeners.{kind}.a: allow names no load balancer of proxy_protocol_from")
    assert load.load(environment={**said, f"{where}ALLOW": "192.0.2.0/24, 10.0.0.0/8"})
    del said[f"{where}PROXY_PROTOCOL_FROM"]
    del said[f"{where}PROXY_PROTOCOL"]
    message = refusal(environment={**said, f"{where}PROXY_PROTOCOL_COMMON_NAME": "true"})
    assert message.endswith("proxy_protocol_from and proxy_protocol_common_name need proxy_protocol = true")


def test_a_zone_has_what_mqtt_has_but_for_what_it_says_itself(tmp_path: Path) -> None:
    file = write(tmp_path, '[mqtt]\nmax_inflight = 7\nidle_timeout = "5s"\n[zones.slow]\nmax_inflight = 1\n')
    settings = load.load(file=file, environment={"FLOCKMQ_MQTT__IDLE_TIMEOUT": "2m"})
    slow = settings.zones["slow"]
    assert (slow.max_inflight, slow.idle_timeout, slow.max_mqueue_len) == (1, 120, 1000)


def test_seeds_are_a_list_in_the_file_and_comma_separated_elsewhere(tmp_path: Path) -> None:
    both = (Address("a", 1), Address("b", 2))
    assert load.load(file=write(tmp_path, '[cluster]\nseeds = ["a:1", "b:2"]'), environment={}).cluster.seeds == both
    assert load.load(environment={"FLOCKMQ_CLUSTER__SEEDS": "a:1, b:2"}).cluster.seeds == both


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[management]\nlisten_on = 1", "management.listen_on: unknown key; did you mean management.listen?"),
        ("[mqqt]\nlisten = 1", "mqqt: unknown key; did you mean mqtt?"),
        ("[listeners.sssl.a]\nbind = 1", "listeners.sssl: unknown key; did you mean listeners.ssl?"),
        ("[listeners.mqtts.a]\nbind = 1", "listeners.mqtts: unknown key; known: tcp, ssl, ws, wss, unix"),
        ("[authorization.cache]\nenable = true", "authorization.cache.enable: unknown key; known: max_size, ttl"),
        (
            '[listeners.tcp]\nbind = "h:1"',
            "listeners.tcp.bind: is a section, not a value; name one, as in [listeners.tcp.default], above its keys",
        ),
        ("[listeners.ws.a]\nbnid = 1", "listeners.ws.a.bnid: unknown key; did you mean listeners.ws.a.bind?"),
        (
            '[listeners.ws.a]\nbind = "h:1"\nzone = "fats"',
            "listeners.ws.a.zone: 'fats' isn't a zone; did you mean default?",
        ),
        ("[listeners.ws.'A b']\nbind = 1", "listeners.ws.A b: 'A b' can't be a name;"),
        ("role = 3", "role: 3 must be core or replicant or single"),
        ('[mqtt]\nmax_inflight = "32"', "mqtt.max_inflight: '32' must be a whole number from 1 to 65535"),
        ("[mqtt]\nmax_inflight = 0", "mqtt.max_inflight: 0 must be a whole number from 1 to 65535"),
        ("[mqtt]\nretain_available = 1", "mqtt.retain_available: 1 must be true or false"),
        ("[node]\nname = 5", "node.name: 5 must be a text"),
        ("mqtt = 5", "mqtt: is a section, not a value; write [mqtt] above its keys"),
        ('[redis]\nurl = "http://x"', "redis.url: isn't a Redis URL; for example redis://127.0.0.1:6379/0"),
        ("[redis]\nmin_replicas = -1", "redis.min_replicas: -1 must be a whole number from 0 to 100"),
        ('[redis]\nwait_timeout = "0s"', "redis.wait_timeout: '0s' must be a number from 0.01 to 60"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_file_key_value_and_mend(tmp_path: Path, text: str, expected: str) -> None:
    file = write(tmp_path, text)
    assert refusal(file=file).startswith(f"{file}: {expected}")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("FLOCKMQ_LOOG__LEVEL", "a:1", "unknown key; did you mean FLOCKMQ_LOG__LEVEL?"),
        ("FLOCKMQ_ZZZ", "1", "unknown key; known: role, node, "),
        ("FLOCKMQ_MQTT", "1", "is a section, not a value; say one of its keys"),
        ("FLOCKMQ_ROLE__X", "1", "unknown key; FLOCKMQ_ROLE is a value, not a section"),
        ("FLOCKMQ_MQTT__RETAIN_AVAILABLE", "maybe", "'maybe' must be true or false"),
        ("FLOCKMQ_MQTT__KEEPALIVE_MULTIPLIER", "0", "'0' must be a number from 1 to 10"),
    ],
)
def test_a_mistake_in_the_environment_is_named_with_its_variable(name: str, value: str, expected: str) -> None:
    assert refusal(environment={name: value}).startswith(f"{name}: {expected}")


@pytest.mark.parametrize(
    "name", ["FLOCKMQ_SERVICE_HOST", "FLOCKMQ_DEMO_SERVICE_PORT_MQTT", "FLOCKMQ_PORT", "FLOCKMQ_PORT_1883_TCP_ADDR"]
)
def test_the_variables_that_kubernetes_makes_for_services_are_no_settings(name: str) -> None:
    assert sources.read_environment({name: "tcp://10.0.0.1:1883"}) == []


def test_a_file_that_is_missing_not_toml_or_huge_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert refusal(file=missing).startswith(f"{missing}: can't be read: No such file or directory;")
    assert "not valid TOML: " in refusal(file=write(tmp_path, "role = "))
    assert "not valid TOML: " in refusal(file=write(tmp_path, f"role = {'9' * 5000}"))
    assert "nested too deep" in refusal(file=write(tmp_path, f"a = {'[' * 3000}{']' * 3000}"))
    assert f"larger than {CONFIG_MAX_BYTES} bytes" in refusal(file=write(tmp_path, "#" * (CONFIG_MAX_BYTES + 1)))


def test_secrets_come_from_files_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k3y\n")
    (tmp_path / "password").write_text("pa55\n")
    environment = {
        "FLOCKMQ_CLUSTER__KEY_FILE": str(tmp_path / "key"),
        "FLOCKMQ_REDIS__PASSWORD_FILE": str(tmp_path / "password"),
        "FLOCKMQ_REDIS__URL": "redis://me:other@h:1/0",
    }
    settings = load.load(environment=environment)
    assert settings.cluster.key == Secret("k3y")
    assert settings.redis.password == Secret("pa55")
    assert settings.redis.url == "redis://me@h:1/0"
    assert not [secret for secret in ("k3y", "pa55", "other") if secret in repr(settings)]


CHAIN = "[[authentication.chain]]\n"


@pytest.mark.parametrize(
    ("text", "key", "mend"),
    [
        ('cluster.key = "hunter2"', "cluster.key", "name a file of its own in key_file, or say FLOCKMQ_CLUSTER__KEY"),
        ('redis.url = "redis://me:hunter2@h"', "redis.url", "in password_file, or say FLOCKMQ_REDIS__URL"),
        (
            'listeners.ssl.a = {bind = "h:1", certfile = "c", keyfile = "k", password = "hunter2"}',
            "listeners.ssl.a.password",
            "name a file of its own in password_file",
        ),
        (
            CHAIN + 'mechanism = "jwt"\nalgorithm = "hmac-based"\nsecret = "hunter2"',
            "authentication.chain[0].secret",
            "name a file of its own in secret_file",
        ),
        (
            CHAIN + 'mechanism = "jwt"\nalgorithm = "hmac-based"\nsecret = "hunter2"\nsecret_file = "/nowhere"',
            "authentication.chain[0].secret",
            "stands beside secret_file",
        ),
        (
            CHAIN + 'mechanism = "password_based:http"\nurl = "http://me:hunter2@h"',
            "authentication.chain[0].url",
            "name a file of its own in authorization_file",
        ),
        (
            CHAIN + 'mechanism = "jwt"\nalgorithm = "public-key"\nendpoint = "https://me:hunter2@h"',
            "authentication.chain[0].endpoint",
            "use one without, or say FLOCKMQ_AUTHENTICATION__CHAIN",
        ),
        (
            CHAIN + 'mechanism = "password_based:http"\nurl = "http://h"\nheaders = {authorization = "Bearer hunter2"}',
            "authentication.chain[0].headers.authorization",
            "name a file of its own in authorization_file",
        ),
        (
            '[[authorization.sources]]\ntype = "http"\nurl = "http://h"\nheaders = {X-Api-Key = "hunter2"}',
            "authorization.sources[0].headers.X-Api-Key",
            "name a file of its own in headers_file, or say",
        ),
        (
            CHAIN + 'mechanism = "password_based:redis"\nurl = "redis://:hunter2@h"',
            "authentication.chain[0].password",
            "nor in url; name a file of its own in password_file",
        ),
        (
            '[[authorization.sources]]\ntype = "http"\nurl = "http://h"\nauthorization = "Bearer hunter2"',
            "authorization.sources[0].authorization",
            "name a file of its own in authorization_file",
        ),
    ],
)
def test_a_secret_in_the_file_is_refused_with_the_mend(tmp_path: Path, text: str, key: str, mend: str) -> None:
    said = refusal(file=write(tmp_path, text))
    assert f": {key}: " in said
    assert mend in said
    assert "hunter2" not in said


def test_a_header_that_says_what_is_the_clients_is_no_secret(tmp_path: Path) -> None:
    text = 'mechanism = "password_based:http"\nurl = "http://h"\nheaders = {Authorization = "Bearer ${password}"}'
    assert load.load(file=write(tmp_path, CHAIN + text), environment={}).authentication.chain


def test_rules_that_are_no_list_are_told_how_toml_has_them(tmp_path: Path) -> None:
    said = refusal(file=write(tmp_path, '[[authorization.sources]]\ntype = "file"\nrules = {permit = "allow"}'))
    assert "authorization.sources[0].rules: must be a list" in said
    assert said.endswith("; write [[authorization.sources.rules]] above each")


def test_a_password_in_the_url_is_moved_to_where_it_is_hidden() -> None:
    settings = load.load(environment={"FLOCKMQ_REDIS__URL": "redis://:p%40ss@[::1]:6379/2"})
    assert settings.redis.url == "redis://[::1]:6379/2"
    assert settings.redis.password is not None
    assert settings.redis.password.reveal() == "p@ss"


@pytest.mark.parametrize(
    ("variable", "value"), [("FLOCKMQ_REDIS__URL", "http://:hunter2@h"), ("FLOCKMQ_CLUSTER__KEY", "")]
)
def test_a_refused_secret_is_not_repeated(variable: str, value: str) -> None:
    assert "hunter2" not in refusal(environment={variable: value})


def test_a_secret_file_that_is_missing_empty_or_binary_is_named(tmp_path: Path) -> None:
    file = tmp_path / "key"
    where = {"FLOCKMQ_CLUSTER__KEY_FILE": str(file)}
    assert refusal(environment=where).endswith(f"'{file}' can't be read: No such file or directory")
    file.write_text("\n")
    assert "must hold 1 to 4096 characters" in refusal(environment=where)
    file.write_bytes(b"\xff\xfe")
    assert "isn't UTF-8 text" in refusal(environment=where)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("FLOCKMQ_REDIS__URL", "redis.url: role replicant needs a Redis"),
        ("FLOCKMQ_CLUSTER__KEY", "cluster.key_file: role replicant needs the cluster's key"),
        ("FLOCKMQ_CLUSTER__SEEDS", "cluster.seeds: role replicant needs a core to ask"),
    ],
)
def test_a_replicant_needs_redis_key_and_seeds(missing: str, expected: str) -> None:
    environment = {
        "FLOCKMQ_ROLE": "replicant",
        "FLOCKMQ_REDIS__URL": "redis://h:1",
        "FLOCKMQ_CLUSTER__KEY": "k",
        "FLOCKMQ_CLUSTER__SEEDS": "core:4370",
    }
    assert load.load(environment=environment).role == "replicant"
    del environment[missing]
    assert refusal(environment=environment).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('url = "redis://me@h"\nusername = "i"', "redis: username: the URL names a user as well; say it once"),
        ('url = "rediss://h"\ncertfile = "c"', "redis: certfile and keyfile need one another"),
        ('url = "redis://h"\ncacertfile = "c"', "redis: cacertfile, certfile and keyfile need TLS: a url that "),
        ('url = "redis://h"\nsentinel_password_file = "p"', "redis: sentinel_password_file needs sentinels: a url "),
    ],
)
def test_keys_of_redis_that_do_not_go_together_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert refusal(file=write(tmp_path, f"[redis]\n{text}\n")).startswith(expected)


def test_links_have_tls_on_both_sides_or_none(tmp_path: Path) -> None:
    said = refusal(file=write(tmp_path, '[cluster]\ncertfile = "node.pem"\nkeyfile = "node.key"\n'))
    assert said.startswith("cluster: certfile, keyfile and cacertfile need one another")


def test_the_management_port_has_tls_or_not() -> None:
    said = refusal(environment={"FLOCKMQ_MANAGEMENT__CERTFILE": "/a"})
    assert said.startswith("management: certfile and keyfile need one another")


def test_redis_may_be_sentinels_or_a_cluster() -> None:
    for url in ("rediss+sentinel://s1,s2:1/main", "redis+cluster://r1:1,r2"):
        assert load.load(environment={"FLOCKMQ_REDIS__URL": url}).redis.url == url


@pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/", "https://app.example.com/page", ""])
def test_an_origin_is_scheme_host_and_port_alone(tmp_path: Path, origin: str) -> None:
    said = f'[listeners.ws.a]\nbind = "h:1"\nallowed_origins = ["{origin}"]\n'
    message = refusal(file=write(tmp_path, said))
    assert f"listeners.ws.a.allowed_origins[0]: '{origin}' must be a page's origin, scheme, host and port" in message
