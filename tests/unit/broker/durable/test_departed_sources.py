"""How long the marks of nodes that went are kept."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.durable.departed_sources import DepartedSources

KEPT_S = bounds.MARKS_KEPT_S


def test_a_source_is_due_when_its_node_went_long_enough_ago() -> None:
    departed = DepartedSources()
    departed.departed(b"a", 0.0)
    departed.departed(b"b", 1.0)
    assert departed.take_due(KEPT_S - 0.5) == []
    assert departed.take_due(KEPT_S) == [b"a"]
    assert departed.take_due(KEPT_S + 1.0) == [b"b"]
    assert departed.take_due(KEPT_S + 1.0) == []


def test_a_node_that_went_again_is_kept_from_then_on() -> None:
    departed = DepartedSources()
    departed.departed(b"a", 0.0)
    departed.departed(b"a", 5.0)
    assert departed.take_due(KEPT_S) == []
    assert departed.take_due(KEPT_S + 5.0) == [b"a"]


def test_what_another_slot_has_of_it_makes_it_no_younger() -> None:
    departed = DepartedSources()
    departed.found([b"a"], 0.0)
    departed.found([b"a", b"b"], 5.0)
    assert departed.take_due(KEPT_S) == [b"a"]


def test_of_too_many_those_that_went_first_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MARKS_STRANGERS_MAX", 1)
    departed = DepartedSources()
    for source in (b"a", b"b", b"a"):
        departed.departed(source, 0.0)
    assert departed.take_due(0.0) == [b"b"]
