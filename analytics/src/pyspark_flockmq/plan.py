"""Which stream IDs hold a span of event times, and how they split into partitions.

A stream ID is `milliseconds-sequence`: Redis' clock when the batch was appended. An event carries the clock of its node
when it happened, so it stands at a later ID than its time says (it waited for its batch, or for a link to come back),
or at a little earlier one (clocks differ). A span of event times therefore reads a wider span of IDs.

Pure. IDs are compared as pairs of integers, never as text.
"""

from typing import Final, NamedTuple, Self

CLOCK_SKEW_MAX_MS: Final = 5 * 60 * 1000
LATE_MAX_MS: Final = 24 * 60 * 60 * 1000
ID_PART_MAX: Final = 2**64 - 1


class StreamId(NamedTuple):
    ms: int
    seq: int

    @classmethod
    def parse(cls, text: bytes | str) -> Self:
        ms, _, seq = (text.decode() if isinstance(text, bytes) else text).partition("-")
        return cls(int(ms), int(seq))

    @classmethod
    def of(cls, value: object) -> Self | None:
        """None: it isn't the text of an ID."""
        ms, _, seq = value.partition("-") if isinstance(value, str) else ("", "", "")
        if not (ms.isdecimal() and seq.isdecimal() and int(ms) <= ID_PART_MAX and int(seq) <= ID_PART_MAX):
            return None
        return cls(int(ms), int(seq))

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    def next(self) -> "StreamId":
        """The ID right after this one."""
        return StreamId(self.ms, self.seq + 1) if self.seq < ID_PART_MAX else StreamId(self.ms + 1, 0)


FIRST_ID: Final = StreamId(0, 0)
LAST_ID: Final = StreamId(ID_PART_MAX, ID_PART_MAX)


class IdRange(NamedTuple):
    """A span of stream IDs; both ends belong to it, as in XRANGE."""

    start: StreamId
    end: StreamId


ALL_IDS: Final = IdRange(FIRST_ID, LAST_ID)


def ids_of_times(from_ms: int | None, to_ms: int | None) -> IdRange:
    """The IDs at which events of `from_ms` <= at < `to_ms` can stand; None leaves that end open."""
    start = FIRST_ID if from_ms is None else StreamId(max(0, from_ms - CLOCK_SKEW_MAX_MS), 0)
    end = LAST_ID if to_ms is None else StreamId(to_ms + LATE_MAX_MS, ID_PART_MAX)
    return IdRange(start, end)


def overlap(one: IdRange, other: IdRange) -> IdRange | None:
    """The IDs that belong to both; None: there are none."""
    both = IdRange(max(one.start, other.start), min(one.end, other.end))
    return both if both.start <= both.end else None


def split(ids: IdRange, count: int) -> list[IdRange]:
    """Split a range into at most `count` that hold each of its IDs exactly once, each about equally long in time."""
    (first_ms, _), (last_ms, _) = ids
    span_ms = last_ms - first_ms + 1
    count = min(count, span_ms)
    starts = [ids.start, *(StreamId(first_ms + span_ms * i // count, 0) for i in range(1, count))]
    ends = [*(StreamId(start.ms - 1, ID_PART_MAX) for start in starts[1:]), ids.end]
    return [IdRange(start, end) for start, end in zip(starts, ends, strict=True)]
