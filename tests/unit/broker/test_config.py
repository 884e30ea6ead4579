"""Layers, precedence, and the one line that each mistake gets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from flockmq import config
from flockmq.bounds import CONFIG_MAX_BYTES
from flockmq.config import Address, Secret, Setting
from flockmq.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    file = folder / "flockmq.toml"
    file.write_text(text)
    return file


def refusal(**layers: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(**{"environment": {}, **layers})  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def test_with_no_layer_a_node_is_single_and_listens_on_loopback_only() -> None:
    settings = config.load(environment={})
    assert settings.role == "single"
    assert settings.mqtt.listen == Address("127.0.0.1", 1883)
    assert settings.cluster.listen.host == settings.management.listen.host == "127.0.0.1"
    assert settings.node.name == socket.gethostname()
    assert settings.node.data_dir is not None
    assert settings.node.data_dir.name == settings.node.name


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = write(tmp_path, '[mqtt]\nlisten = "1.1.1.1:1"\nmax_inflight = 7\nmax_mqueue_len = 5\n')
    environment = {"FLOCKMQ_MQTT__LISTEN": "2.2.2.2:2", "FLOCKMQ_MQTT__MAX_INFLIGHT": "8"}
    command_line = [Setting("mqtt.listen", "3.3.3.3:3", "--listen")]
    settings = config.load(file=file, environment=environment, command_line=command_line)
    assert settings.mqtt.listen == Address("3.3.3.3", 3)
    assert settings.mqtt.max_inflight == 8
    assert settings.mqtt.max_mqueue_len == 5
    assert settings.mqtt.max_awaiting_rel == 100


def test_every_key_can_come_from_the_environment() -> None:
    assert {config.environment_name(path) for path in config.FIELDS} >= {"FLOCKMQ_ROLE", "FLOCKMQ_NODE__NAME"}
    for path in config.FIELDS:
        assert config.environment_name(path).removeprefix("FLOCKMQ_").lower().replace("__", ".") == path


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1883", Address("127.0.0.1", 1883)),
        ("[::1]:1883", Address("::1", 1883)),
        ("demo-core.default.svc:0", Address("demo-core.default.svc", 0)),
    ],
)
def test_an_address_is_read_and_shown_alike(text: str, address: Address) -> None:
    assert config.parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "1883", ":1883", "host", "host:", "host:x", "host:65536", "::1:1883", "a b:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    message = refusal(environment={"FLOCKMQ_MANAGEMENT__LISTEN": text})
    assert message.startswith(f"FLOCKMQ_MANAGEMENT__LISTEN: {text!r} isn't HOST:PORT; for example")


def test_no_mqtt_listener_is_said_by_an_empty_text() -> None:
    assert config.load(environment={"FLOCKMQ_MQTT__LISTEN": ""}).mqtt.listen is None


def test_seeds_are_a_list_in_the_file_and_comma_separated_elsewhere(tmp_path: Path) -> None:
    both = (Address("a", 1), Address("b", 2))
    assert config.load(file=write(tmp_path, '[cluster]\nseeds = ["a:1", "b:2"]'), environment={}).cluster.seeds == both
    assert config.load(environment={"FLOCKMQ_CLUSTER__SEEDS": "a:1, b:2"}).cluster.seeds == both


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[mqtt]\nlisten_on = 1", "mqtt.listen_on: unknown key; did you mean mqtt.listen?"),
        ("[mqqt]\nlisten = 1", "mqqt: unknown key; did you mean mqtt?"),
        ("role = 3", "role: 3 must be core or replicant or single"),
        ('[mqtt]\nmax_inflight = "32"', "mqtt.max_inflight: '32' must be a whole number from 1 to 65535"),
        ("[mqtt]\nmax_inflight = 0", "mqtt.max_inflight: 0 must be a whole number from 1 to 65535"),
        ("[mqtt]\nallow_anonymous = 1", "mqtt.allow_anonymous: 1 must be true or false"),
        ("[node]\nname = 5", "node.name: 5 must be a text"),
        ("mqtt = 5", "mqtt: is a section, not a value; write [mqtt] above its keys"),
        ('[redis]\nurl = "http://x"', "redis.url: isn't a Redis URL; for example redis://127.0.0.1:6379/0"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_file_key_value_and_mend(tmp_path: Path, text: str, expected: str) -> None:
    file = write(tmp_path, text)
    assert refusal(file=file).startswith(f"{file}: {expected}")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("FLOCKMQ_MQT__LISTEN", "a:1", "unknown key; did you mean FLOCKMQ_MQTT__LISTEN?"),
        ("FLOCKMQ_ZZZ", "1", "unknown key; known: FLOCKMQ_ROLE, FLOCKMQ_NODE__NAME"),
        ("FLOCKMQ_MQTT__ALLOW_ANONYMOUS", "maybe", "'maybe' must be true or false"),
        ("FLOCKMQ_MQTT__KEEPALIVE_MULTIPLIER", "0", "'0' must be a number from 1 to 10"),
    ],
)
def test_a_mistake_in_the_environment_is_named_with_its_variable(name: str, value: str, expected: str) -> None:
    assert refusal(environment={name: value}).startswith(f"{name}: {expected}")


@pytest.mark.parametrize(
    "name", ["FLOCKMQ_SERVICE_HOST", "FLOCKMQ_DEMO_SERVICE_PORT_MQTT", "FLOCKMQ_PORT", "FLOCKMQ_PORT_1883_TCP_ADDR"]
)
def test_the_variables_that_kubernetes_makes_for_services_are_no_settings(name: str) -> None:
    assert config.read_environment({name: "tcp://10.0.0.1:1883"}) == []


def test_no_key_looks_like_a_variable_of_kubernetes() -> None:
    assert not [p for p in config.FIELDS if config.NOT_SETTINGS.fullmatch(config.environment_name(p))]


def test_a_file_that_is_missing_not_toml_or_huge_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert refusal(file=missing).startswith(f"{missing}: can't be read: No such file or directory;")
    assert "not valid TOML: " in refusal(file=write(tmp_path, "role = "))
    assert f"larger than {CONFIG_MAX_BYTES} bytes" in refusal(file=write(tmp_path, "#" * (CONFIG_MAX_BYTES + 1)))


def test_secrets_come_from_files_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k3y\n")
    (tmp_path / "password").write_text("pa55\n")
    environment = {
        "FLOCKMQ_CLUSTER__KEY_FILE": str(tmp_path / "key"),
        "FLOCKMQ_REDIS__PASSWORD_FILE": str(tmp_path / "password"),
        "FLOCKMQ_REDIS__URL": "redis://me:other@h:1/0",
    }
    settings = config.load(environment=environment)
    assert settings.cluster.key == Secret("k3y")
    assert settings.redis.password == Secret("pa55")
    assert settings.redis.url == "redis://me@h:1/0"
    assert not [secret for secret in ("k3y", "pa55", "other") if secret in repr(settings)]


def test_a_password_in_the_url_is_moved_to_where_it_is_hidden() -> None:
    settings = config.load(environment={"FLOCKMQ_REDIS__URL": "redis://:p%40ss@[::1]:6379/2"})
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
    assert config.load(environment=environment).role == "replicant"
    del environment[missing]
    assert refusal(environment=environment).startswith(expected)
