"""Filters bound what is read: by no row too few, and by no more than they must."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_flockmq.filters import NO_IDS, narrowed
from pyspark_flockmq.options import parse_options
from pyspark_flockmq.plan import ALL_IDS, IdRange, StreamId

ALL = parse_options({"url": "redis://r", "stream": "lag"})
AT = ("at",)
SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("filters", "span"),
    [
        ([GreaterThanOrEqual(AT, SECOND)], (1000, None)),
        ([GreaterThanOrEqual(AT, SECOND + MICROSECOND)], (1001, None)),
        ([GreaterThan(AT, SECOND)], (1001, None)),
        ([GreaterThan(AT, SECOND - MICROSECOND)], (1000, None)),
        ([LessThan(AT, SECOND)], (None, 1000)),
        ([LessThan(AT, SECOND + MICROSECOND)], (None, 1001)),
        ([LessThanOrEqual(AT, SECOND)], (None, 1001)),
        ([LessThanOrEqual(AT, SECOND - MICROSECOND)], (None, 1000)),
        ([EqualTo(AT, SECOND)], (1000, 1001)),
        ([GreaterThan(AT, SECOND), LessThan(AT, SECOND + timedelta(hours=1)), IsNotNull(AT)], (1001, 3_601_000)),
        ([Not(EqualTo(AT, SECOND))], (None, None)),
        ([EqualTo(AT, SECOND.replace(tzinfo=None))], (None, None)),
        ([EqualTo(("node",), "n")], (None, None)),
    ],
)
def test_times_bound_a_span(filters: list[Filter], span: tuple[int | None, int | None]) -> None:
    options = narrowed(ALL, filters)
    assert (options.from_ms, options.to_ms) == span
    assert options.ids == ALL_IDS


def test_a_filter_widens_no_option() -> None:
    options = parse_options({"url": "redis://r", "stream": "lag", "from": "1970-01-01T00:00:02", "after": "5-0"})
    options = narrowed(options, [GreaterThan(AT, SECOND), In(("entry_id",), ("1-0", "9-0"))])
    assert options.from_ms == 2000
    assert options.ids == IdRange(StreamId(5, 1), StreamId(9, 0))


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        (EqualTo(("entry_id",), "7-3"), IdRange(StreamId(7, 3), StreamId(7, 3))),
        (In(("entry_id",), ("10-0", "9-0", "nonsense")), IdRange(StreamId(9, 0), StreamId(10, 0))),
        (EqualTo(("entry_id",), "nonsense"), NO_IDS),
        (GreaterThan(("entry_id",), "7-3"), ALL_IDS),  # compared as text, by which 10-0 isn't behind it
    ],
)
def test_ids_that_are_named_bound_a_span(given: Filter, ids: IdRange) -> None:
    assert narrowed(ALL, [given]).ids == ids
