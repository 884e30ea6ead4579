"""When a node is sure enough that it is a member."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flockmq import bounds
from flockmq.membership.fencing import Fencing

ME = "a@1"


class Node:
    """It heard of a majority when `hears` says so, and is `lag_ms` behind in the log."""

    def __init__(self, *, is_core: bool) -> None:
        self.hears = True
        self.lag_ms = 0.0
        self.linked: list[str] = []
        heartbeats: Any = SimpleNamespace(is_fenced=lambda now: not self.hears, is_heard=lambda core, now: True)
        mesh: Any = SimpleNamespace(linked_cores=lambda: self.linked)
        members = Members({ME: None})
        self.fencing = Fencing(lambda: ME, is_core, 3, members, mesh, heartbeats)  # type: ignore[arg-type]
        self.rlog: Any = SimpleNamespace(lag=lambda shard: (0, self.lag_ms))
        self.fencing.rlog = self.rlog


class Members(dict[str, None]):
    cores = (ME,)


async def test_who_isnt_joined_or_hears_no_majority_is_fenced() -> None:
    node = Node(is_core=False)
    assert node.fencing.is_fenced, "it hasn't joined"
    node.fencing.is_joined = True
    assert not node.fencing.is_fenced
    node.hears = False
    assert node.fencing.is_fenced


@pytest.mark.parametrize(("lag_ms", "is_sure"), [(0.0, True), (bounds.MEMBER_FENCE_S * 1000 + 1, False)])
async def test_who_is_behind_in_the_log_is_no_sure_member(lag_ms: float, is_sure: bool) -> None:
    node = Node(is_core=True)
    node.fencing.is_joined = True
    node.lag_ms = lag_ms
    assert node.fencing.is_confirmed_member == is_sure


async def test_who_is_out_of_touch_may_be_purged() -> None:
    node = Node(is_core=False)
    assert not node.fencing.may_be_purged
    node.fencing.is_in_doubt = lambda now: True
    assert node.fencing.may_be_purged


async def test_a_majority_is_of_the_configured_cores() -> None:
    node = Node(is_core=True)
    assert (node.fencing.count_cores(), node.fencing.hears_majority()) == (3, False)
    node.linked = ["b@1"]
    assert node.fencing.hears_majority()
    node.linked = ["b@1", "c@1", "d@1"]
    assert node.fencing.count_cores() == 4
