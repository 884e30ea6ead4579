"""The judge of nodes that drain: they take nobody."""

from __future__ import annotations

import pytest

from judges.judge import TAKEN_ANYWAY
from judges.made_up import Script


@pytest.mark.parametrize(("comes_to", "found"), [("a", {TAKEN_ANYWAY: 1}), ("b", {})])
def test_who_comes_between_the_first_and_the_last_that_goes_is_refused(comes_to: str, found: dict[str, int]) -> None:
    script = Script()
    for client in ("one", "two"):
        script.connect(client)
    with script.during("drain replicant", "a"):
        script.close("one", by_server=True, reason=0x9C)
        script.tick(1.0)
        script.connect("one", present=True, node=comes_to)
        script.close("two", by_server=True, reason=0x9C)
    assert script.found() == found


@pytest.mark.parametrize("apart_s", [0.4, 5.0])
def test_its_next_life_takes_clients(apart_s: float) -> None:
    script = Script()
    for life in (False, True):
        script.connect("one", present=life)
        with script.during("drain replicant", "a"):
            script.close("one", by_server=True, reason=0x9C)
        script.tick(apart_s)
    assert script.found() == {}
