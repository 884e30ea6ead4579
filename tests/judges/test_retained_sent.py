"""The judge of what a SUBSCRIBE brings."""

from __future__ import annotations

import pytest

from judges.judge import RETAINED_MISSING, RETAINED_TWICE, RETAINED_UNASKED
from judges.made_up import Script


def written(*, handling: int = 0, lasts: bool = True) -> Script:
    """Something is retained, and somebody comes and asks for it."""
    script = Script(tells=True)
    script.connect("pub")
    script.put("pub", 1, retain=True)
    script.connect("sub", lasts=lasts)
    script.subscribe("sub", handling=handling)
    return script


@pytest.mark.parametrize(("handling", "missing", "unasked"), [(0, 1, 0), (1, 1, 0), (2, 0, 1)])
def test_who_subscribes_gets_what_is_retained_unless_it_wants_none(handling: int, missing: int, unasked: int) -> None:
    script = written(handling=handling)
    assert script.found() == ({RETAINED_MISSING: missing} if missing else {})
    script.deliver("sub", "pub", 1, retained=True)
    assert script.found() == ({RETAINED_UNASKED: unasked} if unasked else {})


@pytest.mark.parametrize(("handling", "found"), [(0, {RETAINED_MISSING: 1}), (1, {})])
def test_who_subscribes_again_gets_it_again_by_handling_0_alone(handling: int, found: dict[str, int]) -> None:
    script = written(handling=handling)
    script.deliver("sub", "pub", 1, retained=True)
    script.subscribe("sub", handling=handling)
    assert script.found() == found
    script.deliver("sub", "pub", 1, retained=True)
    assert script.found() == ({} if found else {RETAINED_TWICE: 1})


@pytest.mark.parametrize("answered_s", [0.1, 0.0])
def test_what_was_given_up_and_asked_for_anew_is_new(answered_s: float) -> None:
    script = written(handling=1)
    script.deliver("sub", "pub", 1, retained=True)
    script.unsubscribe("sub")
    script.subscribe("sub", handling=1, answered_s=answered_s)
    script.deliver("sub", "pub", 1, retained=True)
    assert script.found() == {}


def test_what_was_cleared_meanwhile_or_came_live_is_not_missing() -> None:
    script = written()
    script.put("pub", 2, retain=True, clears=True)
    assert script.found() == {}
    script = written()
    script.put("pub", 2, retain=True)
    script.deliver("sub", "pub", 2)
    assert script.found() == {}


@pytest.mark.parametrize(("qos", "found"), [(1, {}), (2, {RETAINED_TWICE: 1})])
def test_at_qos_2_it_comes_once_by_whatever_connections(qos: int, found: dict[str, int]) -> None:
    script = Script(tells=True)
    script.connect("pub")
    script.put("pub", 1, qos=2, retain=True)
    script.connect("sub")
    script.subscribe("sub", qos=qos)
    script.deliver("sub", "pub", 1, qos=qos, retained=True)
    script.close("sub")
    script.connect("sub", present=True, node="b")
    script.deliver("sub", "pub", 1, qos=qos, retained=True, dup=True)
    assert script.found() == found


def test_what_is_published_long_after_the_SUBSCRIBE_is_not_marked() -> None:
    script = written()
    script.deliver("sub", "pub", 1, retained=True)
    script.tick(20.0)
    script.put("pub", 2, retain=True)
    script.deliver("sub", "pub", 2, retained=True)
    assert script.found()[RETAINED_UNASKED] == 1
