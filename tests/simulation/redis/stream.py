"""A stream's entries, and what they cost in memory.

IDs only grow, also when the newest entries are gone. Redis packs entries into nodes of up to NODE_MAX_BYTES or
NODE_MAX_ENTRIES, which only MEMORY USAGE shows; entries of the same fields don't repeat their names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, cast

from flockmq.redis.connection import Reply

Id = tuple[int, int]

START: Final[Id] = (0, 0)
PART_MAX: Final = 2**64 - 1
END: Final[Id] = (PART_MAX, PART_MAX)

NODE_MAX_BYTES: Final = 4096
NODE_MAX_ENTRIES: Final = 100
_STREAM_BYTES: Final = 150
_NODE_BYTES: Final = 60
_ENTRY_BYTES: Final = 10
_VALUE_BYTES: Final = 3


class Stream:
    """`rows` are what clients are answered: the ID as text, then fields and values."""

    __slots__ = ("_sizes", "ids", "last", "rows")

    def __init__(self) -> None:
        self.ids: list[Id] = []
        self.rows: list[Reply] = []
        self._sizes: list[int] = []
        self.last: Id = START

    def append(self, stream_id: Id, fields: list[bytes]) -> bytes:
        text = b"%d-%d" % stream_id
        self.ids.append(stream_id)
        self.rows.append([text, cast(Reply, fields)])
        self._sizes.append(_ENTRY_BYTES + sum(_VALUE_BYTES + len(value) for value in fields[1::2]))
        self.last = stream_id
        return text

    def between(self, first: Id, last: Id, count: int | None, *, newest_first: bool = False) -> list[Reply]:
        """Both included."""
        start = bisect_left(self.ids, first)
        end = bisect_right(self.ids, last)
        if newest_first:
            return self.rows[start if count is None else max(start, end - count) : max(start, end)][::-1]
        return self.rows[start : end if count is None else min(end, start + count)]

    def count_before(self, stream_id: Id) -> int:
        return bisect_left(self.ids, stream_id)

    def drop_oldest(self, count: int) -> None:
        del self.ids[:count]
        del self.rows[:count]
        del self._sizes[:count]

    def size(self, samples: int | None) -> int:
        """Bytes, as Redis estimates them: the average of the first nodes stands for all but the newest one."""
        nodes = list(self._nodes())
        if samples is not None and len(nodes) > samples:
            nodes_bytes = sum(nodes[:samples]) // samples * (len(nodes) - 1) + nodes[-1]
        else:
            nodes_bytes = sum(nodes)
        return _STREAM_BYTES + _NODE_BYTES * len(nodes) + nodes_bytes

    def _nodes(self) -> Iterator[int]:
        """Bytes of each. The newest has the room that it may come to need."""
        size = entries = 0
        for added in self._sizes:
            if entries and (size + added > NODE_MAX_BYTES or entries == NODE_MAX_ENTRIES):
                yield size
                size = entries = 0
            size += added
            entries += 1
        if entries:
            yield max(size, NODE_MAX_BYTES)
