"""A node's tables count as stale when it was behind, or heard of no majority's core, for too long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from flockmq.bounds import LINK_LOOK_S
from flockmq.membership.mesh import Mesh
from flockmq.membership.staleness import LogEndNote, Staleness
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, CLUSTER, ROUTE

MAX_STALE_S = 0.5
HEADS = {ROUTE: StreamId(1, 7)}


@dataclass
class Log:
    """How far behind each shard is, in milliseconds, and what was heard of heads."""

    behind: dict[str, float] = field(default_factory=dict)
    tables: dict[str, StreamId] = field(default_factory=dict)
    noted: dict[str, StreamId] = field(default_factory=dict)

    def lag(self, shard: str) -> tuple[int, float]:
        return int(shard in self.behind), self.behind.get(shard, 0.0)

    def log_end(self, shard: str) -> StreamId:
        return HEADS.get(shard, StreamId(0, 0))

    def applied(self, shard: str) -> StreamId:
        return self.tables.get(shard, StreamId(1, 7))

    def note_log_end(self, shard: str, head: StreamId) -> None:
        self.noted[shard] = head


class RequestLink:
    """A mesh with one link, which is itself."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def one_of_each(self) -> list[RequestLink]:
        return [self]

    def send(self, encoded: bytes) -> None:
        self.sent.append(encoded)


class Fixture:
    def __init__(self, core: bool = False) -> None:
        self.log, self.wire, self.changes = Log(), RequestLink(), list[bool]()
        self.is_in_majority = True
        in_majority = (lambda now: self.is_in_majority) if core else None
        self.staleness = Staleness(cast(Mesh, self.wire), in_majority, MAX_STALE_S)
        self.staleness.rlog = cast(Rlog, self.log)
        self.staleness.on_change = self.changes.append

    def hear(self, now: float, head: int = 7, shard: str = ROUTE, late_s: float = 0.0) -> None:
        """By a core whose clock is far from this node's."""
        heads = LogEndNote({shard: StreamId(1, head)}, now - late_s + 5000.0)
        self.staleness.received(now, "core-1@1", msgspec.msgpack.encode(heads))

    def looks(self, now: float) -> bool:
        self.staleness.look(now)
        return self.staleness.is_stale


def test_a_node_is_stale_until_it_has_looked() -> None:
    assert Fixture().staleness.is_stale


def test_a_replicant_that_hears_of_no_core_is_stale_until_it_does() -> None:
    node = Fixture()
    node.hear(10.0)
    node.staleness.look(10.0 + MAX_STALE_S - 3 * LINK_LOOK_S)
    assert node.changes == [False]
    node.staleness.look(10.0 + MAX_STALE_S)
    node.staleness.look(11.0)
    assert node.changes == [False, True]
    node.hear(11.1)
    node.staleness.look(11.1)
    assert node.changes == [False, True, False]
    assert node.log.noted == HEADS
    assert node.wire.sent == []


@pytest.mark.parametrize(("shard", "is_stale"), [(ROUTE, True), (CLUSTER, True), (AUTH, False)])
def test_only_shards_that_messages_are_matched_by_count(shard: str, is_stale: bool) -> None:
    node = Fixture()
    node.hear(10.0, 8, shard)
    assert node.looks(10.0) == is_stale
    node.log.tables[shard] = StreamId(1, 8)
    assert not node.looks(10.1)


def test_who_was_cut_off_is_stale_until_its_tables_are_where_the_log_went_meanwhile() -> None:
    node = Fixture()
    node.hear(10.0)
    assert not node.looks(10.0)
    assert node.looks(13.0)
    node.hear(13.1, 9)
    assert node.looks(13.1), "it only knows since a moment how far it is behind"
    node.log.tables[ROUTE] = StreamId(1, 9)
    assert not node.looks(13.2)


def test_what_was_said_long_ago_and_comes_late_tells_nothing_of_now() -> None:
    node = Fixture()
    node.hear(10.0)
    assert node.looks(13.0)
    for said_s in (2.9, 2.0, 1.0):
        node.hear(13.1, late_s=said_s)
    assert node.looks(13.1)
    node.hear(13.2, late_s=0.05)
    assert not node.looks(13.2)


def test_the_clock_of_a_core_may_drift() -> None:
    node = Fixture()
    for second in range(200):
        node.hear(1000.0 + second, late_s=second / 100)
        node.staleness.look(1000.0 + second)
    assert node.changes == [False], "a hundredth of a second a second is far more than clocks do"


def test_a_node_that_is_always_a_little_behind_is_as_fresh_as_the_last_note_that_it_reached() -> None:
    node = Fixture()
    for note in range(20):
        node.log.tables[ROUTE] = StreamId(1, 7 + note)
        node.hear(10.0 + note / 10, 8 + note)
        node.staleness.look(10.0 + note / 10)
    assert node.changes == [False], "since it reached its first note"
    node.hear(12.0, 50)
    assert node.looks(12.4)


def test_a_core_is_stale_while_it_is_in_no_majority_and_tells_nobody_anything_then() -> None:
    core = Fixture(core=True)
    core.staleness.look(10.0)
    assert len(core.wire.sent) == 1
    core.is_in_majority = False
    core.staleness.look(10.1)
    assert core.changes == [False, True]
    assert len(core.wire.sent) == 1


def test_who_was_out_of_touch_doubts_until_its_tables_are_where_the_log_went_meanwhile() -> None:
    node = Fixture()
    node.hear(10.0)
    node.staleness.look(10.0)
    assert not node.staleness.is_in_doubt(10.4)
    assert node.staleness.is_in_doubt(13.0), "whether it looked since or not"
    node.hear(13.1, late_s=2.0)
    node.staleness.look(13.1)
    assert node.staleness.is_in_doubt(13.1), "news of before"
    node.hear(13.2, 9)
    node.staleness.look(13.2)
    assert node.staleness.is_in_doubt(13.2), "it may say in what is missing"
    node.log.tables[ROUTE] = StreamId(1, 9)
    node.staleness.look(13.3)
    assert not node.staleness.is_in_doubt(13.3)


def test_who_was_out_of_touch_doubts_though_it_was_not_asked_meanwhile() -> None:
    for looks in (False, True):
        node = Fixture()
        node.hear(10.0)
        node.staleness.look(10.0)
        if looks:
            node.staleness.look(12.9)
        node.hear(13.0, 9)
        assert node.staleness.is_in_doubt(13.0), "its tables haven't reached what it just heard of"
        node.log.tables[ROUTE] = StreamId(1, 9)
        node.staleness.look(13.1)
        assert not node.staleness.is_in_doubt(13.1)


def test_a_core_that_was_in_no_majority_doubts_though_it_was_not_asked_meanwhile() -> None:
    core = Fixture(core=True)
    core.is_in_majority = False
    core.staleness.look(10.0)
    core.is_in_majority = True
    core.log.behind[CLUSTER] = 1.0
    core.staleness.look(10.1)
    assert core.staleness.is_in_doubt(10.1), "what its tables lack may be that it was purged"
    del core.log.behind[CLUSTER]
    core.staleness.look(10.2)
    assert not core.staleness.is_in_doubt(10.2)


def test_who_is_behind_but_in_touch_does_not_doubt() -> None:
    node = Fixture()
    node.hear(10.0)
    node.staleness.look(10.0)
    for tenth in range(1, 20):
        node.hear(10.0 + tenth / 10, 9)
        node.staleness.look(10.0 + tenth / 10)
        assert not node.staleness.is_in_doubt(10.0 + tenth / 10)
    assert node.staleness.is_stale
