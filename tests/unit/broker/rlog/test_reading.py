"""What one look at several logs tells, and how much is asked for at once."""

from flockmq import bounds
from flockmq.rlog.entry import BATCH_FIELD, StreamId
from flockmq.rlog.reading import LogEnds, ReadSize
from flockmq.rlog.schema import RETAINED, ROUTE
from flockmq.rlog.snapshot_stream import LogEntry

LIMIT = 8


def entries(*sequences: int) -> list[LogEntry]:
    return [LogEntry(StreamId(1, sequence), BATCH_FIELD, b"") for sequence in sequences]


def looked(routes: list[LogEntry], retained: list[LogEntry]) -> LogEnds:
    """From 1-4 of the routes and 1-7 of the retained messages on."""
    looks = LogEnds()
    came = {shard: found for shard, found in ((ROUTE, routes), (RETAINED, retained)) if found}
    looks.note({ROUTE: StreamId(1, 4), RETAINED: StreamId(1, 7)}, came, LIMIT)
    return looks


def test_what_came_with_an_entry_is_all_that_was_written_before_it() -> None:
    looks = looked(entries(5, 6), entries(8))
    assert looks.end(RETAINED, ROUTE, StreamId(1, 5)) == StreamId(1, 8)
    assert looks.end(RETAINED, ROUTE, StreamId(1, 6)) == StreamId(1, 8)
    assert looks.end(ROUTE, RETAINED, StreamId(1, 8)) == StreamId(1, 6)


def test_where_nothing_came_nothing_was_written() -> None:
    assert looked(entries(5), []).end(RETAINED, ROUTE, StreamId(1, 5)) == StreamId(1, 7)


def test_an_entry_that_came_otherwise_and_later_was_not_looked_at() -> None:
    assert looked(entries(5), []).end(RETAINED, ROUTE, StreamId(1, 6)) is None
    assert looked(entries(5), []).end(RETAINED, ROUTE, StreamId(2, 0)) is None


def test_of_a_log_that_may_have_more_nothing_is_known() -> None:
    looks = looked(entries(5), entries(*range(8, 8 + LIMIT)))
    assert looks.end(RETAINED, ROUTE, StreamId(1, 5)) is None
    assert looks.end(ROUTE, RETAINED, StreamId(1, 8)) == StreamId(1, 5)


def test_logs_of_different_servers_tell_nothing_of_one_another() -> None:
    looks = LogEnds()
    looks.note({ROUTE: StreamId(1, 4)}, {ROUTE: entries(5)}, LIMIT)
    looks.note({RETAINED: StreamId(1, 7)}, {RETAINED: entries(8)}, LIMIT)
    assert looks.end(RETAINED, ROUTE, StreamId(1, 5)) is None


def test_another_connection_may_be_to_another_server() -> None:
    looks = looked(entries(5), [])
    looks.forget()
    assert looks.end(RETAINED, ROUTE, StreamId(1, 5)) is None


def sized(count: int, size: int) -> list[LogEntry]:
    return [LogEntry(StreamId(1, sequence), BATCH_FIELD, b"x" * size) for sequence in range(count)]


def test_more_small_entries_are_asked_for_each_time() -> None:
    read_size, asked = ReadSize(), []
    for _ in range(7):
        asked.append(read_size.entries)
        read_size.came(sized(read_size.entries, 100))
    assert asked == [2, 4, 8, 16, 32, 64, bounds.LOG_READ_MAX_ENTRIES]


def test_of_large_entries_fewer_are_asked_for() -> None:
    read_size = ReadSize()
    for _ in range(7):
        read_size.came(sized(read_size.entries, 100))
    read_size.came(sized(1, bounds.LOG_READ_BYTES // 10))
    assert read_size.entries == 10
    read_size.came(sized(10, bounds.LOG_READ_BYTES))
    assert read_size.entries == bounds.LOG_READ_MIN_ENTRIES
