"""Text for a terminal."""

from datetime import UTC, datetime

import pytest

from flockmq_operator.kubectl.text import age, age_of, counted, shown, table


@pytest.mark.parametrize(
    ("seconds", "said"), [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7_200, "2h"), (172_800, "2d")]
)
def test_an_age_is_in_its_largest_unit(seconds: float, said: str) -> None:
    assert age(seconds) == said


def test_an_age_is_counted_from_a_time_of_kubernetes() -> None:
    assert age_of("2026-11-26T00:00:00Z", datetime(2026, 11, 26, 3, tzinfo=UTC)) == "3h"
    assert age_of("", datetime(2026, 11, 26, tzinfo=UTC)) == "-"


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert table(("A", "B"), [["long", "x"], ["y", ""]]) == ["A     B", "long  x", "y"]


def test_a_terminal_is_told_nothing_by_what_is_shown() -> None:
    assert shown("a\x1b[2J\n  b\u202e") == "a\N{REPLACEMENT CHARACTER}[2J b\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(("values", "said"), [([], "-"), (["a", "a"], "a"), (["a", "a", "b"], "a ×2, b ×1")])
def test_different_values_are_counted(values: list[str], said: str) -> None:
    assert counted(values) == said
