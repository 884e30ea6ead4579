"""The judge of tables: the same everywhere, and empty in the end."""

from __future__ import annotations

from judges.judge import DIGESTS, ROUTES_LEFT, judge
from load.history import RowsLeft, TablesStood


def test_tables_are_the_same_everywhere() -> None:
    same = [TablesStood(1.0, node, "route", "1-7", {"routes": "ff"}) for node in "abc"]
    assert judge(same).findings == []
    for other in (
        TablesStood(1.0, "d", "route", "1-8", {"routes": "ff"}),
        TablesStood(1.0, "d", "route", "1-7", {"routes": "fe"}),
    ):
        assert judge([*same, other]).by_kind() == {DIGESTS: 1}
    assert judge([*same, TablesStood(1.0, "d", "auth", "1-2", {"users": "00"})]).findings == []


def test_routes_of_nobody_are_told() -> None:
    assert judge([RowsLeft(1.0, "a", 0)]).findings == []
    assert judge([RowsLeft(1.0, "a", 3)]).by_kind() == {ROUTES_LEFT: 1}
