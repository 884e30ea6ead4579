"""A node applies the newest revision of the settings, as a whole or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from flockmq.config.load import Loaded, load_all
from flockmq.membership.cluster import Cluster
from flockmq.node.hot_settings import HotSettings
from flockmq.rlog.schema import SETTINGS, SettingsRevision
from unit.broker.auth.harness import FakeLog


def own(**environment: str) -> Loaded:
    return load_all(environment={f"FLOCKMQ_{key}": value for key, value in environment.items()})


class Settings:
    """Those of one node, and what a part of it was given."""

    def __init__(self, log: FakeLog, loaded: Loaded | None = None) -> None:
        self.log = log
        self.hot = HotSettings(loaded or own(), log.as_rlog())
        self.levels: list[str] = []
        self.hot.on_change(lambda config: config.log.level, self.levels.append)

    def write(self, number: int, document: dict[str, Any], by: str = "jo") -> None:
        row = SettingsRevision(msgspec.json.encode(document), b"{}", by, 0.0)
        self.log.put([SETTINGS.put(number, row)])


def cluster(*, leads: bool = False, members: tuple[str, ...] = ("core-0",)) -> Cluster:
    nodes = {name: SimpleNamespace(name=name) for name in members}
    settings = SimpleNamespace(name="core-0")
    return cast(Cluster, SimpleNamespace(settings=settings, is_leader=leads, nodes_table=nodes))


def test_a_part_is_told_only_what_has_changed() -> None:
    one = Settings(FakeLog())
    one.write(1, {"log": {"level": "debug"}})
    one.write(2, {"log": {"level": "debug"}, "quotas": {"max_sessions": 5}})
    assert (one.levels, one.hot.revision) == (["debug"], 2)
    assert one.hot.current.quotas.max_sessions == 5
    one.write(3, {})
    assert (one.levels, one.hot.current) == (["debug", "info"], own().config)


def test_a_node_that_starts_applies_what_its_log_has() -> None:
    log = FakeLog()
    Settings(log).write(7, {"log": {"level": "error"}})
    one = Settings(log)
    assert one.levels == []
    one.hot.look()
    assert (one.levels, one.hot.revision) == (["error"], 7)


def test_the_first_of_two_revisions_with_one_number_counts() -> None:
    one = Settings(FakeLog())
    one.write(1, {"log": {"level": "debug"}}, by="jo")
    one.write(1, {"log": {"level": "error"}}, by="eve")
    newest = one.hot.newest().row
    assert newest is not None
    assert (one.levels, newest.by) == (["debug"], "jo")


async def test_what_cant_be_applied_leaves_all_as_it_was_and_raises_an_alarm() -> None:
    one = Settings(FakeLog())
    one.write(1, {"log": {"level": "warning"}})
    one.write(2, {"log": {"level": "debug"}, "quotas": {"max_sessions": -1}})
    assert (one.levels, one.hot.revision) == (["warning"], 1)
    one.hot.look_at_alarm(cluster())
    alarm = one.log.tables.alarms.get("settings/core-0")
    assert alarm is not None
    assert alarm.text == (
        "core-0 doesn't apply revision 2 of the settings as a whole: quotas.max_sessions: -1 must be a number of at "
        'least 1, for example 100000, or "infinity"'
    )
    one.write(3, {"log": {"level": "debug"}})
    one.hot.look_at_alarm(cluster())
    assert (one.levels[-1], one.log.tables.alarms.get("settings/core-0")) == ("debug", None)


def test_a_part_that_fails_has_the_others_go_back(caplog: pytest.LogCaptureFixture) -> None:
    one = Settings(FakeLog())

    def fail(quota: int | None) -> None:
        if quota is not None:
            raise RuntimeError("a defect")

    one.hot.on_change(lambda config: config.quotas.max_sessions, fail)
    one.write(1, {"log": {"level": "debug"}, "quotas": {"max_sessions": 5}})
    assert (one.levels, one.hot.revision, one.hot.current) == (["debug", "info"], 0, own().config)
    assert one.hot.fault == "a defect; see its log"
    assert "RuntimeError: a defect" in caplog.text


def test_what_a_later_release_changes_is_left_out_and_raises_an_alarm() -> None:
    one = Settings(FakeLog())
    one.write(1, {"log": {"level": "debug", "colour": "red"}, "zones": {"elsewhere": {"max_inflight": 3}}})
    assert (one.levels, one.hot.revision) == (["debug"], 1)
    assert one.hot.unused == ["log.colour", "zones.elsewhere.max_inflight"]
    assert one.hot.fault == "it is of a release that can't change log.colour while it runs"


async def test_the_leader_ends_the_alarms_of_nodes_that_are_gone() -> None:
    one = Settings(FakeLog())
    for name in ("settings/core-1", "settings/gone", "clock/gone"):
        one.log.raise_alarm(name, "it is wrong")
    one.hot.look_at_alarm(cluster(leads=True, members=("core-0", "core-1")))
    assert sorted(name for name, _ in one.log.tables.alarms.items()) == ["clock/gone", "settings/core-1"]


def test_the_document_counts_more_than_the_nodes_own_configuration() -> None:
    one = Settings(FakeLog(), own(LOG__LEVEL="error", QUOTAS__MAX_SESSIONS="3"))
    one.write(1, {"log": {"level": "debug"}})
    assert (one.levels, one.hot.current.quotas.max_sessions) == (["debug"], 3)
