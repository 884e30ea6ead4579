"""What `flockmq ctl` makes of what a node answers."""

from __future__ import annotations

from typing import Any

import pytest

from flockmq.ctl import _state


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
        ({"hears_redis": False, "stale": True, "ready": True}, "ready"),
    ],
)
def test_the_state_of_a_node_says_why_it_is_not_ready(said: dict[str, Any], state: str) -> None:
    assert _state({"heard": True, "ready": False, "draining": False} | said) == state
