"""The judge of losses: sessions that end, and nodes that die with what was for them."""

from __future__ import annotations

import pytest

from judges.faults import LINKED_MAX_S
from judges.judge import LOST, SESSION_PRESENT
from judges.made_up import ONE_CORE, Script, begun
from load.history import FaultBegan, FaultEnded


def test_a_session_that_its_client_ended_is_promised_what_came_long_before() -> None:
    script = begun()
    script.put("pub", 1)
    script.tick(5.0)
    script.put("pub", 2)
    script.tick(8.0)
    script.connect("sub", clean_start=True)
    script.close("sub", 2, by_server=True)
    assert script.found() == {LOST: 1}


def test_what_a_session_had_that_was_away_when_its_client_ended_it_is_gone() -> None:
    script = begun()
    script.close("sub")
    script.put("pub", 1)
    script.tick(20.0)
    script.connect("sub", clean_start=True)
    assert script.found() == {}


def test_a_session_that_expired_is_promised_nothing_and_one_that_should_be_there_everything() -> None:
    for away_s, found in ((70.0, {}), (30.0, {LOST: 1, SESSION_PRESENT: 1})):
        script = Script()
        script.connect("pub")
        script.connect("sub", expiry_s=60.0)
        script.subscribe("sub")
        script.tick(1.0)
        script.close("sub")
        script.put("pub", 1)
        script.tick(away_s)
        script.connect("sub", expiry_s=60.0)
        assert script.found() == found


def test_a_clean_session_is_promised_what_was_acknowledged_long_before_it_left_unless_a_fault_ran() -> None:
    script = begun(lasts=False)
    script.tick(20.0)
    script.put("pub", 1)
    script.tick(15.0)
    script.disconnect("sub")
    assert script.found() == {LOST: 1}
    script = begun(lasts=False)
    script.tick(20.0)
    script.put("pub", 1)
    script.fault()
    script.tick(8.0)
    script.disconnect("sub")
    assert script.found() == {}


def test_what_came_to_a_session_that_may_be_the_next_one_is_not_lost_to_the_one_before() -> None:
    """A CONNECT that nobody answered may have begun another session when the one before had expired."""
    script = begun()
    script.ask("c", expiry_s=2.0)
    script.close("c", by_server=True)
    script.connect("c", expiry_s=2.0)
    script.subscribe("c")
    script.tick(1.0)
    script.disconnect("c")
    script.put("pub", 1)
    script.deliver("sub", "pub", 1)
    script.connect("c", expiry_s=2.0, present=True)
    script.deliver("c", "pub", 1)
    assert script.found() == {}


APART = ("cut replicant replicant", ("a", "b"))


@pytest.mark.parametrize(
    ("lasts", "apart", "killed", "found"),
    [
        (False, APART, "a", {}),
        (False, ("stop replicant", ("b",)), "a", {}),
        (False, APART, "", {LOST: 1}),
        (False, APART, "b", {LOST: 1}),
        (False, ("cut replicant core", ("a", "c")), "a", {LOST: 1}),
        (True, APART, "a", {LOST: 1}),
    ],
)
def test_what_was_for_a_node_that_is_cut_off_may_die_with_the_one_that_took_it(
    lasts: bool, apart: tuple[str, tuple[str, ...]], killed: str, found: dict[str, int]
) -> None:
    kind, nodes = apart
    script = Script()
    script.connect("pub", node="a")
    script.connect("sub", lasts=lasts, node="b")
    script.subscribe("sub")
    script.tick(1.0)
    script.events.append(FaultBegan(script.tick(), kind, nodes))
    script.put("pub", 1)
    script.events.append(FaultEnded(script.tick(2.0), kind, nodes))
    if killed:
        script.fault("kill replicant", killed)
    script.tick(20.0)
    assert script.found(ONE_CORE) == found


@pytest.mark.parametrize(("since_s", "found"), [(1.0, {}), (LINKED_MAX_S + 1.0, {LOST: 1})])
def test_what_was_for_a_node_that_has_no_link_again_may_die_with_the_one_that_took_it(
    since_s: float, found: dict[str, int]
) -> None:
    script = Script()
    script.connect("pub", node="a")
    script.connect("sub", lasts=False, node="b")
    script.subscribe("sub")
    kind, nodes = APART
    script.fault(kind, *nodes)
    script.tick(since_s)
    script.put("pub", 1)
    script.fault("kill replicant", "a")
    script.tick(20.0)
    assert script.found(ONE_CORE) == found
