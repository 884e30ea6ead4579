"""Planning: every ID of a stream is read by exactly one partition, and late or early batches are within reach."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pyspark_flockmq.plan import (
    CLOCK_SKEW_MAX_MS,
    FIRST_ID,
    ID_PART_MAX,
    LAST_ID,
    LATE_MAX_MS,
    IdRange,
    StreamId,
    ids_of_times,
    split,
)

ids = st.builds(StreamId, st.integers(0, ID_PART_MAX - 1), st.integers(0, ID_PART_MAX))


def test_ids_are_ordered_as_numbers_not_as_text() -> None:
    assert StreamId.parse(b"9-10") < StreamId.parse(b"10-9")
    assert StreamId.parse("9-9") < StreamId.parse("9-10")


@given(ids)
def test_an_id_is_written_as_it_is_parsed(stream_id: StreamId) -> None:
    assert StreamId.parse(str(stream_id)) == stream_id


def test_the_id_after_the_last_of_a_millisecond_is_the_first_of_the_next() -> None:
    assert StreamId(7, 3).next() == StreamId(7, 4)
    assert StreamId(7, ID_PART_MAX).next() == StreamId(8, 0)


@given(ids, ids, st.integers(1, 1024))
def test_partitions_cover_a_range_without_gap_or_overlap(a: StreamId, b: StreamId, count: int) -> None:
    whole = IdRange(min(a, b), max(a, b))
    parts = split(whole, count)
    assert 1 <= len(parts) <= count
    assert parts[0].start == whole.start
    assert parts[-1].end == whole.end
    assert all(part.start <= part.end for part in parts)
    assert all(left.end.next() == right.start for left, right in pairwise(parts))


def test_partitions_are_about_equally_long() -> None:
    parts = split(IdRange(StreamId(0, 5), StreamId(999, 2)), 4)
    assert [part.start for part in parts] == [StreamId(0, 5), StreamId(250, 0), StreamId(500, 0), StreamId(750, 0)]


def test_no_more_partitions_than_milliseconds() -> None:
    assert split(IdRange(StreamId(4, 0), StreamId(4, 9)), 8) == [IdRange(StreamId(4, 0), StreamId(4, 9))]


def test_a_span_of_times_reaches_batches_of_skewed_clocks_and_late_ones() -> None:
    span = ids_of_times(10**12, 10**12 + 1000)
    assert span == IdRange(StreamId(10**12 - CLOCK_SKEW_MAX_MS, 0), StreamId(10**12 + 1000 + LATE_MAX_MS, ID_PART_MAX))


def test_an_open_span_is_the_whole_stream() -> None:
    assert ids_of_times(None, None) == IdRange(FIRST_ID, LAST_ID)
    assert ids_of_times(1, None).start == FIRST_ID
