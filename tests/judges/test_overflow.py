"""The judge of full queues: the newest stay, and what is dropped is counted."""

from __future__ import annotations

import pytest

from judges.judge import KEPT_OLDER, MISCOUNTED, Rules
from judges.made_up import Script, begun
from load.history import NodeSeen

RULES = Rules(max_mqueue_len=2)


def overflown(*kept: int, dropped: int = -1, fault: bool = False) -> Script:
    """Four messages for a client that is away; when it is back, these come."""
    script = begun()
    if fault:
        script.fault("kill core", "core-1")
    script.close("sub")
    for number in range(1, 5):
        script.put("pub", number)
    script.connect("sub", present=True)
    for number in kept:
        script.deliver("sub", "pub", number)
    script.tick(2.0)
    script.events.append(NodeSeen(script.tick(), "a", True, False, 0, True, dropped))
    return script


def test_the_newest_stay() -> None:
    for kept, found in (((3, 4), 0), ((1, 2), 2), ((2, 4), 1)):
        assert overflown(*kept).found(RULES).get(KEPT_OLDER, 0) == found


def test_of_two_publishers_each_has_an_order_of_its_own() -> None:
    script = overflown(2, 3, 4)
    script.connect("other")
    script.close("sub")
    script.put("other", 1)
    script.put("pub", 5)
    script.connect("sub", present=True)
    script.deliver("sub", "pub", 5)
    script.tick(2.0)
    assert script.found(RULES._replace(max_mqueue_len=1)) == {}


@pytest.mark.parametrize(
    ("dropped", "fault", "found"),
    [(2, False, {}), (1, False, {MISCOUNTED: 1}), (3, False, {MISCOUNTED: 1}), (-1, False, {}), (1, True, {})],
)
def test_what_is_dropped_is_counted(dropped: int, fault: bool, found: dict[str, int]) -> None:
    assert overflown(3, 4, dropped=dropped, fault=fault).found(RULES) == found


def test_who_is_away_in_the_end_may_get_it_yet() -> None:
    script = begun()
    script.close("sub")
    script.tick(1.0)
    script.put("pub", 1)
    script.events.append(NodeSeen(script.tick(), "a", True, False, 0, True, 0))
    assert MISCOUNTED not in script.found()
