"""A node's tables count as stale when it was behind, or heard of no majority's core, for too long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from flockmq.bounds import LINK_LOOK_S
from flockmq.cluster.freshness import Freshness, Heads
from flockmq.cluster.mesh import Mesh
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import AUTH, CLUSTER, ROUTE

MAX_STALE_S = 0.5
HEADS = {ROUTE: StreamId(1, 7)}


@dataclass
class Log:
    """How far behind each shard is, in milliseconds, and what was heard of heads."""

    behind: dict[str, float] = field(default_factory=dict)
    noted: dict[str, StreamId] = field(default_factory=dict)

    def lag(self, shard: str) -> tuple[int, float]:
        return 1, self.behind.get(shard, 0.0)

    def head(self, shard: str) -> StreamId:
        return HEADS.get(shard, StreamId(0, 0))

    def note_head(self, shard: str, head: StreamId) -> None:
        self.noted[shard] = head


class Wire:
    """A mesh with one link, which is itself."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def links(self) -> list[Wire]:
        return [self]

    def send(self, encoded: bytes) -> None:
        self.sent.append(encoded)


class Fixture:
    def __init__(self, core: bool = False) -> None:
        self.log, self.wire, self.changes = Log(), Wire(), list[bool]()
        self.is_settled = True
        settled = (lambda now: self.is_settled) if core else None
        self.freshness = Freshness(cast(Mesh, self.wire), settled, MAX_STALE_S)
        self.freshness.rlog = cast(Rlog, self.log)
        self.freshness.on_change = self.changes.append

    def hear(self, now: float) -> None:
        self.freshness.heard(now, msgspec.msgpack.encode(Heads(HEADS)))


def test_a_replicant_that_hears_of_no_core_is_stale_until_it_does() -> None:
    node = Fixture()
    node.hear(10.0)
    node.freshness.look(10.0 + MAX_STALE_S - 2 * LINK_LOOK_S)
    assert node.changes == []
    node.freshness.look(10.0 + MAX_STALE_S)
    node.freshness.look(11.0)
    assert node.changes == [True]
    node.hear(11.1)
    node.freshness.look(11.1)
    assert node.changes == [True, False]
    assert node.log.noted == HEADS
    assert node.wire.sent == []


@pytest.mark.parametrize(("shard", "is_stale"), [(ROUTE, True), (CLUSTER, True), (AUTH, False)])
def test_only_shards_that_messages_are_matched_by_count(shard: str, is_stale: bool) -> None:
    node = Fixture()
    node.log.behind[shard] = MAX_STALE_S * 1000
    node.hear(10.0)
    node.freshness.look(10.0)
    assert node.freshness.is_stale == is_stale
    node.log.behind.clear()
    node.freshness.look(10.1)
    assert not node.freshness.is_stale


def test_a_core_is_stale_while_it_is_in_no_majority_and_tells_nobody_anything_then() -> None:
    core = Fixture(core=True)
    core.freshness.look(10.0)
    assert len(core.wire.sent) == 1
    core.is_settled = False
    core.freshness.look(10.1)
    assert core.changes == [True]
    assert len(core.wire.sent) == 1
