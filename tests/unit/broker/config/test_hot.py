"""Settings that change while nodes run: what a patch may say, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flockmq.config.hot import HOT, check_patch, difference, leaves, merged, shown, split
from flockmq.config.load import Loaded, changed, load_all
from flockmq.config.schema import Config
from flockmq.config.sources import every_key, kind_of
from flockmq.config.values import Secret
from flockmq.errors import ConfigError
from flockmq.quotas import INFINITE


def loaded(tmp_path: Path, text: str = "") -> Loaded:
    file = tmp_path / "node.toml"
    file.write_text(text)
    return load_all(file=file, environment={})


def with_document(own: Loaded, document: dict[str, Any]) -> Config:
    return changed(own, split(own.config, document)[0])


def test_every_hot_key_is_a_key_of_the_configuration_and_no_secret() -> None:
    assert set(HOT) - set(every_key()) == set()
    assert [key for key in HOT if kind_of(key.replace("NAME", "x")) in (Secret, Secret | None)] == []


def test_a_document_changes_what_the_file_says_and_nothing_else(tmp_path: Path) -> None:
    own = loaded(tmp_path, '[quotas]\nmax_sessions = 10\nmax_subscriptions = 20\n[log]\nlevel = "warning"\n')
    config = with_document(own, {"quotas": {"max_sessions": "infinity"}, "mqtt": {"server_keepalive": "1m"}})
    assert (config.quotas.max_sessions, config.quotas.max_subscriptions) == (INFINITE, 20)
    assert (config.mqtt.server_keepalive, config.log.level) == (60, "warning")
    assert with_document(own, {}) == own.config


def test_a_zone_has_what_mqtt_says_unless_it_says_it_itself(tmp_path: Path) -> None:
    own = loaded(tmp_path, "[mqtt]\nmax_inflight = 8\n[zones.a]\nmax_inflight = 8\n[zones.b]\nmax_awaiting_rel = 7\n")
    config = with_document(own, {"mqtt": {"max_inflight": 4}})
    assert [zone.max_inflight for zone in (config.mqtt, *config.zones.values())] == [4, 8, 4]
    config = with_document(own, {"mqtt": {"max_inflight": 4}, "zones": {"b": {"max_inflight": 5}}})
    assert [zone.max_inflight for zone in (config.mqtt, *config.zones.values())] == [4, 8, 5]
    assert config.zones["b"].max_awaiting_rel == 7


def test_a_zone_that_a_node_doesnt_have_and_a_key_of_a_later_release_are_left_out(tmp_path: Path) -> None:
    own = loaded(tmp_path, "[zones.a]\nmax_inflight = 8\n")
    document = {
        "zones": {"b": {"max_inflight": 4}, "a": {"max_inflight": 2}},
        "log": {"colour": "red"},
        "new": {"x": 1},
    }
    changes, unused = split(own.config, document)
    assert changes == {"zones.a.max_inflight": 2}
    assert unused == ["zones.b.max_inflight", "log.colour", "new.x"]
    assert list(changed(own, changes).zones) == ["a"]


def test_rates_of_listeners_are_changed_where_there_are_such(tmp_path: Path) -> None:
    own = loaded(tmp_path, '[listeners.tcp.default]\nbind = "127.0.0.1:1883"\nmax_connections = 7\n')
    document = {"listeners": {"tcp": {"default": {"bytes_rate": "1MB/s"}}, "ssl": {"default": {"max_connections": 5}}}}
    check_patch(document)
    check_patch({"listeners": {"tcp": {"default": None}, "ssl": None}})
    changes, unused = split(own.config, document)
    listeners = changed(own, changes).listeners
    assert (listeners.tcp["default"].bytes_rate, listeners.tcp["default"].max_connections) == (1024.0**2, 7)
    assert (listeners.ssl, unused) == ({}, ["listeners.ssl.default.max_connections"])


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ([], 'the body must be a JSON object of sections, for example {"log": {"level": "debug"}}'),
        ({"log": {"level": "loud"}}, "log.level: 'loud' must be debug or info or warning or error"),
        ({"log": {"levle": "info"}}, "log.levle: unknown key; did you mean log.level?"),
        ({"log": {"levle": None}}, "log.levle: unknown key; did you mean log.level?"),
        ({"log": "debug"}, "log: is a section, not a value; say one of its keys"),
        ({"quotas": {"max_sessions": 0}}, "quotas.max_sessions: 0 must be a number of at least 1"),
        ({"quotas": {"max_sessions": [1]}}, "quotas.max_sessions: must be a whole number"),
        ({"quotas.max_sessions": 1}, "quotas.max_sessions: a key has no dot"),
        (
            {"redis": {"url": "redis://x"}},
            "redis.url: can't be changed while nodes run; set it in the configuration of",
        ),
        ({"redis": None}, "redis: can't be changed while nodes run"),
        ({"mqtt": {"max_packet_size": 1}}, "mqtt.max_packet_size: can't be changed while nodes run"),
        ({"log": {"level": {"a": 1}}}, "log.level.a: unknown key; log.level is a value, not a section"),
        ({"listeners": {"tcp": {"default": {"bind": ":1"}}}}, "listeners.tcp.default.bind: can't be changed while"),
        ({"listeners": {"udp": {"default": None}}}, "listeners.udp.default: unknown key"),
        ({"zones": {"A b": {"max_inflight": 1}}}, "'A b' can't be a name"),
        ({"mqtt": {"server_reference": "a\0"}}, "'a\\x00' must be a text without control characters"),
        ({"zones": {"z": {"response_information": "a\n"}}}, "must be a text without control characters"),
        ({"mqtt": {"max_inflight": 70_000}}, "mqtt.max_inflight: 70000 must be a whole number from 1 to 65535"),
    ],
)
def test_what_cant_be_changed_is_refused_with_its_path(patch: object, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_patch(patch)
    assert why in str(refused.value)


def test_a_patch_that_is_nested_too_deep_is_refused() -> None:
    patch: dict[str, Any] = {}
    for _ in range(900):
        patch = {"a": patch, "b": 1}
    with pytest.raises(ConfigError, match="nested too deep"):
        check_patch(patch)


def test_a_patch_takes_changes_back_by_null() -> None:
    document = {"quotas": {"max_sessions": 1, "max_subscriptions": 2}, "zones": {"a": {"max_inflight": 3}}}
    for patch in ({"quotas": {"max_sessions": None}, "zones": None}, {"zones": {"a": None}}, {"quotas": None}):
        check_patch(patch)
    assert merged(document, {"quotas": {"max_sessions": None}, "zones": {"a": None}}) == {
        "quotas": {"max_subscriptions": 2}
    }
    assert merged(document, {"quotas": None, "zones": {"a": {"max_inflight": None}}}) == {}
    assert merged({}, {"quotas": {}}) == {}


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {}, {}),
        ({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, {"a": {"y": 2}}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": None, "y": 3}}),
        ({"a": {"x": 1}}, {}, {"a": None}),
        ({"a": {"x": 1}}, {"a": {"x": True}}, {"a": {"x": True}}),
    ],
)
def test_a_difference_is_the_patch_from_one_to_the_other(old: Any, new: Any, patch: Any) -> None:
    assert difference(old, new) == patch
    assert merged(old, patch) == new


def test_all_hot_keys_are_shown_with_what_holds(tmp_path: Path) -> None:
    own = loaded(tmp_path, '[quotas]\nmax_sessions = "infinity"\n[zones.a]\nmax_inflight = 8\n')
    values = dict(leaves(shown(own.config)))
    listeners = {key.replace("NAME", "default") for key in HOT if key.startswith("listeners.tcp.")}
    assert set(values) == listeners | {key.replace("NAME", "a") for key in HOT if not key.startswith("listeners.")}
    assert (values["quotas.max_sessions"], values["quotas.max_subscriptions"]) == ("infinity", None)
    assert (values["zones.a.max_inflight"], values["mqtt.max_inflight"]) == (8, 32)
