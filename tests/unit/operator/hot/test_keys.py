"""The operator and the broker know the same keys that nodes change while they run."""

from __future__ import annotations

from flockmq.config.hot import HOT
from flockmq_operator.hot.keys import KEYS, is_hot, other_hot_keys, without

LEVEL = frozenset({"log.level"})


def test_the_operator_knows_the_brokers_keys() -> None:
    assert {f"{section}.{key}" for section, keys in KEYS.items() for key in keys} == set(HOT)


def test_names_of_zones_and_listeners_are_any() -> None:
    assert all(map(is_hot, ("log.level", "zones.inside.max_inflight", "listeners.tcp.default.max_connections")))
    cold = ("log", "log.format", "zones.inside.max_packet_size", "zones.a.b.max_inflight", "listeners.tcp.default.bind")
    assert not any(map(is_hot, (*cold, "level", "listeners.udp.default.max_connections", "mqtt")))


def test_files_are_compared_without_hot_keys_and_empty_tables() -> None:
    assert without({"log": {"level": "debug"}, "mqtt": {}, "node": {"name": "a"}}, LEVEL) == {"node": {"name": "a"}}
    one, other = {"log": {"level": "info", "format": "json"}}, {"log": {"level": "debug", "format": "json"}}
    assert other_hot_keys(one, other, LEVEL) == LEVEL
    assert other_hot_keys({"log": {"format": "json"}}, other, LEVEL) == LEVEL
    assert other_hot_keys({}, {"log": {"level": "debug"}}, LEVEL) == LEVEL
    assert other_hot_keys(one, one, LEVEL) == frozenset()


def test_if_anything_else_differs_or_a_key_is_said_no_more_no_file_stays() -> None:
    said = {"log": {"level": "debug"}}
    assert other_hot_keys({"log": {"level": "info", "format": "text"}}, said, LEVEL) == frozenset()
    assert other_hot_keys({"log": {"level": "info"}, "quotas": {"max_sessions": 1}}, said, LEVEL) == frozenset()
    assert other_hot_keys({"log": {"level": "info"}}, {}, LEVEL) == frozenset()
    assert other_hot_keys({"log": {"level": "info"}}, {}, frozenset()) == frozenset()
