"""What `flockmq ctl cluster status` says of a node."""

from __future__ import annotations

import argparse
from typing import Any, cast

import msgspec
import pytest

from flockmq.ctl import cluster
from flockmq.ctl.api import Api
from flockmq.management.view import ClusterState, Member


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"heard": False}, "unheard"),
        ({"ready": True}, "ready"),
        ({"draining": True}, "draining"),
        ({}, "starting"),
        ({"hears_redis": None}, "starting"),
        ({"hears_redis": False}, "cut off from Redis"),
        ({"hears_redis": True, "stale": True}, "stale"),
        ({"hears_redis": False, "ready": True}, "ready, without Redis"),
    ],
)
def test_the_state_of_a_node_says_why_it_is_not_ready(said: dict[str, Any], state: str) -> None:
    assert cluster.state({"heard": True, "ready": False, "draining": False} | said) == state


def test_what_a_newer_node_says_of_itself_is_shown_behind_what_is_known() -> None:
    member = Member(name="core-1", incarnation="core-1@0", role="core", version="1", host="h", slots=3, heard=True)
    state = ClusterState(told_by="core-1", stale=False, leader=None, slots_without_owner=0, nodes=[member])
    whole = msgspec.to_builtins(state)
    whole["nodes"][0]["mood"] = "good"
    parser = argparse.ArgumentParser()
    cluster.add(parser.add_subparsers())
    asked = type("Asked", (), {"ask": lambda *_, **__: whole})
    options = parser.parse_args(["status"])
    node, _ = options.do(cast(Api, asked()), options)
    assert list(node) == ["node", *cluster.FIRST, "mood"]
