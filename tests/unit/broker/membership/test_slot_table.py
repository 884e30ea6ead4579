"""Owners and place in the log go together, whenever somebody asks."""

from __future__ import annotations

from collections.abc import Callable

from flockmq.membership.slot_table import SlotTable


def test_a_view_is_of_an_entry_that_was_applied_whole() -> None:
    slots: dict[int, str] = {}
    at = [1]
    soon: list[Callable[[], None]] = []
    seen: list[tuple[int, dict[int, str]]] = []
    view = SlotTable(slots, lambda: at[0], soon.append, lambda: seen.append((view.epoch(), dict(view.owners))))
    assert (view.epoch(), view.owners) == (1, {})
    for slot in (0, 1):
        slots[slot] = "a@1"
        view.noted(slot, "a@1")
        assert (view.epoch(), view.owners) == (0, {}), "an entry is being applied: what was before it holds"
    at[0] = 2
    assert (view.epoch(), view.owners) == (0, {})
    (look,) = soon
    look()
    assert seen == [(2, {0: "a@1", 1: "a@1"})]
    at[0] = 3
    assert (view.epoch(), view.changed_at) == (3, 2), "later entries say nothing else of slots"
