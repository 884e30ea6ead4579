"""What Spark's filters say of the entries to read: a span of times, and of IDs. Pure.

A filter only narrows what is read; Spark applies it to the rows all the same, so one that isn't understood costs time
and no row. `at` is compared with instants. `entry_id` is a text: Spark compares it letter by letter, by which `9-0` is
behind `10-0`; so only equality bounds what is read, and spans of IDs are the options `after` and `until`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from pyspark_flockmq.options import SourceOptions
from pyspark_flockmq.plan import FIRST_ID, LAST_ID, IdRange, StreamId, overlap

NO_IDS: Final = IdRange(LAST_ID, FIRST_ID)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def narrowed(options: SourceOptions, filters: Iterable[Filter]) -> SourceOptions:
    """The options, for rows for which all the filters hold."""
    for each in filters:
        match each:
            case EqualTo(("at",), datetime() as at) if at.tzinfo:
                options = _within(options, _first_ms(at), _first_ms(at, behind=True))
            case GreaterThanOrEqual(("at",), datetime() as at) if at.tzinfo:
                options = _within(options, _first_ms(at), None)
            case GreaterThan(("at",), datetime() as at) if at.tzinfo:
                options = _within(options, _first_ms(at, behind=True), None)
            case LessThan(("at",), datetime() as at) if at.tzinfo:
                options = _within(options, None, _first_ms(at))
            case LessThanOrEqual(("at",), datetime() as at) if at.tzinfo:
                options = _within(options, None, _first_ms(at, behind=True))
            case EqualTo(("entry_id",), value):
                options = _one_of(options, [value])
            case In(("entry_id",), values):
                options = _one_of(options, values)
    return options


def _first_ms(at: datetime, behind: bool = False) -> int:
    """The first millisecond that isn't before `at`; or that is behind it."""
    ms, rest = divmod(at - _EPOCH, _MS)
    return ms + 1 if behind or rest else ms


def _within(options: SourceOptions, from_ms: int | None, to_ms: int | None) -> SourceOptions:
    earliest = max((ms for ms in (options.from_ms, from_ms) if ms is not None), default=None)
    latest = min((ms for ms in (options.to_ms, to_ms) if ms is not None), default=None)
    return replace(options, from_ms=earliest, to_ms=latest)


def _one_of(options: SourceOptions, values: Sequence[object]) -> SourceOptions:
    """From the first of these IDs to the last one; a text that is no ID is that of no entry."""
    ids = [found for value in values if (found := StreamId.of(value)) is not None]
    wanted = overlap(options.ids, IdRange(min(ids), max(ids))) if ids else None
    return replace(options, ids=wanted or NO_IDS)
