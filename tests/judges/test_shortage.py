"""The judge of what is stored where memory is short."""

from __future__ import annotations

from typing import Any

import pytest

from judges.judge import STORED_ANYWAY
from judges.made_up import Script


def acknowledged(
    kind: str,
    node: str,
    *,
    version: int = 5,
    after_s: float = 4.5,
    beside: str = "",
    lasts_s: float = 60.0,
    **published: Any,
) -> dict[str, int]:
    """So long after memory began to be short there. The publisher is at node `a`."""
    script = Script(tells=True)
    script.connect("pub", version=version)
    script.connect("sub", expiry_s=lasts_s)
    script.subscribe("sub", "waits")
    script.close("sub")
    script.tick(1.0)
    with script.during(kind, node):
        script.tick(after_s)
        if beside:
            script.fault(beside, "b", lasts_s=0.1)
        script.put("pub", 1, **published)
    script.tick(1.0)
    return {kind: count for kind, count in script.found().items() if kind == STORED_ANYWAY}


@pytest.mark.parametrize(
    "published", [{"retain": True}, {"delay_s": 100.0}, {"topic": "waits"}, {"topic": "waits", "qos": 2}]
)
@pytest.mark.parametrize(("kind", "node"), [("crowd redis", "redis"), ("crowd replicant", "a")])
def test_nothing_more_is_stored(kind: str, node: str, published: dict[str, Any]) -> None:
    assert acknowledged(kind, node, **published) == {STORED_ANYWAY: 1}


@pytest.mark.parametrize(
    "published",
    [{}, {"retain": True, "clears": True}, {"retain": True, "version": 4}, {"retain": True, "after_s": 1.0}],
)
def test_what_needs_no_room_or_comes_too_soon_or_cannot_be_refused_is_taken(published: dict[str, Any]) -> None:
    assert acknowledged("crowd redis", "redis", **published) == {}


def test_another_node_or_fault_is_a_reason() -> None:
    assert acknowledged("crowd replicant", "b", retain=True) == {}
    assert acknowledged("crowd redis", "redis", beside="kill core", retain=True) == {}


def test_for_a_session_that_has_expired_nothing_is_stored() -> None:
    assert acknowledged("crowd redis", "redis", topic="waits", lasts_s=2.0) == {}
