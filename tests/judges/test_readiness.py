"""The judges of readiness: who says that it serves does."""

from __future__ import annotations

from judges.judge import STALE_READY, UNSERVED, judge
from load.history import AnyEvent, NodeSeen


def seen(node: str, seconds: int, *, ready: bool = True, stale: bool = False, slots: int = 0, serves: bool = True,
         since: int = 0) -> list[AnyEvent]:  # fmt: skip
    """Each second."""
    return [NodeSeen(float(since + i), node, ready, stale, slots, serves) for i in range(seconds)]


def test_a_node_that_is_stale_for_long_is_not_ready() -> None:
    assert judge(seen("a", 10, stale=True)).findings == []
    assert judge(seen("a", 60, stale=True, ready=False)).findings == []
    assert judge(seen("a", 60, stale=True)).by_kind() == {STALE_READY: 1}


def test_a_node_that_is_stale_now_and_then_is_well() -> None:
    events = [
        event for i in range(9) for event in (*seen("a", 8, stale=True, since=9 * i), *seen("a", 1, since=9 * i + 8))
    ]
    assert judge(events).findings == []


def test_each_node_counts_for_itself_and_each_time() -> None:
    events = seen("a", 20, stale=True) + seen("a", 1, since=20) + seen("a", 20, stale=True, since=21)
    assert judge(events + seen("b", 20, stale=True)).by_kind() == {STALE_READY: 3}


def test_a_node_that_was_gone_meanwhile_begins_anew() -> None:
    events = seen("a", 8, stale=True) + seen("a", 8, stale=True, since=20)
    assert judge(events).findings == []


def by_time(*some: list[AnyEvent]) -> list[AnyEvent]:
    return sorted((event for events in some for event in events), key=lambda event: event.at)


def test_a_core_that_cant_write_gives_its_slots_away_while_another_can() -> None:
    well = seen("b", 60, slots=512)
    assert judge(by_time(seen("a", 60, slots=512), well)).findings == []
    assert (
        judge(by_time(seen("a", 9, slots=512, serves=False), seen("a", 51, since=9, serves=False), well)).findings == []
    )
    assert judge(by_time(seen("a", 60, slots=512, serves=False), well)).by_kind() == {UNSERVED: 1}


def test_a_core_that_cant_write_needs_not_know_that_its_slots_are_away() -> None:
    is_old = seen("a", 60, slots=512, serves=False)
    assert judge(by_time(is_old, seen("b", 9, slots=512), seen("b", 51, slots=1024, since=9))).findings == []


def test_a_core_that_died_serves_no_more() -> None:
    """Who owns slots and doesn't run is named by its incarnation."""
    died = by_time(seen("a", 5, slots=512), seen("b", 5), seen("b", 55, since=5, serves=False))
    assert judge(by_time(died, seen("a@1", 55, since=5, slots=512, serves=False))).findings == []


def test_where_no_core_can_write_it_is_no_matter_who_has_the_slots() -> None:
    both = by_time(seen("a", 60, slots=512, serves=False), seen("b", 60, slots=512, serves=False))
    assert judge(both).findings == []
    assert judge(by_time(seen("a", 60, slots=1024, serves=False), seen("replicant", 60))).findings == []
