"""`flockmq ctl settings`: what is asked of a node, and what is shown of its answer."""

from __future__ import annotations

import argparse
from typing import Any, cast

import pytest

from flockmq.ctl import settings
from flockmq.ctl.api import Api, CtlError, Row
from flockmq.errors import ConfigError

SHOWN = {
    "revision": 2,
    "at": "2026-01-01T00:00:00Z",
    "by": "jo",
    "document": {"log": {"level": "debug"}},
    "settings": {"log": {"level": "debug"}, "quotas": {"max_sessions": None}},
    "unused": [],
    "fault": "",
}
HISTORY = {
    "data": [
        {"revision": 2, "at": "2", "by": "jo", "patch": {"quotas": None}, "document": {"log": {"level": "debug"}}},
        {"revision": 1, "at": "1", "by": "ann", "patch": {}, "document": {"quotas": {"max_sessions": 5}}},
    ]
}


class Asked:
    """A node's API that remembers what it was asked."""

    def __init__(self, **shown: object) -> None:
        self.shown = SHOWN | shown
        self.requests: list[tuple[object, ...]] = []

    def ask(self, *request: object) -> Row:
        self.requests.append(request)
        return HISTORY if request == ("GET", "/settings/history") else self.shown

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        parser = argparse.ArgumentParser()
        settings.add(parser.add_subparsers())
        options = parser.parse_args(arguments)
        return list(options.do(cast(Api, self), options))


def test_all_keys_are_shown_and_which_are_changed() -> None:
    assert Asked().run("show") == [
        {"revision": 2, "at": "2026-01-01T00:00:00Z", "by": "jo"},
        {"path": "log.level", "value": "debug", "changed": True},
        {"path": "quotas.max_sessions", "value": None, "changed": False},
    ]


def test_values_are_json_or_else_text() -> None:
    node = Asked()
    changes = ("log.level=debug", "quotas.max_sessions=5", "quotas.max_queued_bytes=1GB", "mqtt.strict_mode=true")
    assert [row["path"] for row in node.run("set", *changes)[1:]] == ["log.level"]
    quotas = {"max_sessions": 5, "max_queued_bytes": "1GB"}
    patch = {"log": {"level": "debug"}, "quotas": quotas, "mqtt": {"strict_mode": True}}
    assert node.requests == [("PATCH", "/settings", patch)]


def test_a_value_that_says_a_key_twice_is_refused() -> None:
    node = Asked()
    with pytest.raises(ConfigError, match="zones: the key 'a' is there twice in one object; say it once"):
        node.run("set", 'zones={"a": {}, "a": {}}')
    assert node.requests == []


def test_a_change_is_taken_back_and_a_revision_restored() -> None:
    node = Asked()
    node.run("unset", "quotas", "log.level")
    node.run("restore", "1")
    assert node.requests == [
        ("PATCH", "/settings", {"quotas": None, "log": {"level": None}}),
        ("PUT", "/settings/revision", {"revision": 1}),
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("set", "log.level"), "'log.level' must be PATH=VALUE, for example log.level=debug"),
        (("set", "log.level=null"), "log.level: null is no value; to take a change back say: unset log.level"),
        (("set", "log.level=debug", "log.level=info"), "log.level: is said twice; say it once"),
        (("unset", "log", "log.level"), "log.level: stands beside a section that it is in; say one of them"),
        (("set", "log.level=\udcff"), "log.level isn't UTF-8 text"),
    ],
)
def test_what_cant_be_asked_is_said(arguments: tuple[str, ...], why: str) -> None:
    node = Asked()
    with pytest.raises(ConfigError) as refused:
        node.run(*arguments)
    assert str(refused.value) == why
    assert node.requests == []


def test_a_difference_is_shown_by_path() -> None:
    level = {"path": "log.level", "revision_1": None, "revision_2": "debug"}
    quota = {"path": "quotas.max_sessions", "revision_1": 5, "revision_2": None}
    assert Asked().run("diff") == Asked().run("diff", "1") == [level, quota]
    assert Asked().run("diff", "0") == [{"path": "log.level", "revision_0": None, "revision_2": "debug"}]
    assert Asked().run("diff", "2") == []
    with pytest.raises(CtlError, match="there is no revision 7 any more; known: 0, 1, 2"):
        Asked().run("diff", "7")


def test_the_history_has_who_changed_what() -> None:
    assert [(row["revision"], row["by"], row["patch"]) for row in Asked().run("history")] == [
        (2, "jo", {"quotas": None}),
        (1, "ann", {}),
    ]


def test_what_a_node_doesnt_apply_is_said_beside(capsys: pytest.CaptureFixture[str]) -> None:
    Asked(fault="a defect; see its log", unused=["zones.a.max_inflight"]).run("show")
    assert capsys.readouterr().err == (
        "flockmq ctl: this node doesn't apply all of it: a defect; see its log\n"
        "flockmq ctl: zones.a.max_inflight changes nothing at this node\n"
    )
