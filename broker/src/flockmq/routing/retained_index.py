"""Retained messages by topic, with look-up by filter.

Topics are kept in byte order, so no trie is needed: all topics under `a/b/` are adjacent, between `a/b/` and `a/b0`
(`0` follows `/`). A wildcard scan walks that order from the filter's literal prefix, and skips topics that can't match:
where a level differs from the filter's, it jumps to the next place where it could match.

A scan keeps only the last topic that it looked at. It yields one list per slice, and between two slices the index may
change: a topic that exists during the whole scan is returned exactly once; one that is added or removed may be missed.

Measured (CPython 3.11, a busy 2-core EPYC) at 1,000,000 topics of 25 bytes: 117 bytes per topic without its value, the
topic included. Compiled / interpreted: `put` 4.3 / 5.2 µs; all of `#` 0.9 / 1.4 s in 489 slices of 2 ms / 3 ms;
`fleet/+/dev777/temp`, one of 100 sites, 1.6 / 1.7 ms in one slice.

Invariant: `stored_bytes` is the sum over all entries of the topic's length and `size_of(value)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sortedcontainers import SortedDict

from flockmq.bounds import RETAINED_SLICE_MAX_TOPICS

_AFTER_SLASH: Final = b"0"  # the byte after '/': ends the range of everything below a prefix
_AFTER_DOLLAR: Final = b"%"  # the byte after '$'
_LEAP_AFTER_STEPS: Final = 8  # a search costs about as much as this many steps to the next topic
_DONE: Final = b""  # the scan is complete; no topic is empty


class RetainedIndex:
    """Topic → value, which is never None. `size_of` returns the size of a value in bytes."""

    __slots__ = ("_size_of", "_topics", "stored_bytes")

    def __init__(self, size_of: Callable[[object], int]) -> None:
        self._topics: SortedDict[bytes, object] = SortedDict()
        self._size_of = size_of
        self.stored_bytes = 0

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, topic: bytes) -> object | None:
        return self._topics.get(topic)

    def put(self, topic: bytes, value: object) -> None:
        """Set the value of a topic."""
        older: object | None = self._topics.get(topic)
        self.stored_bytes += self._size_of(value) + (len(topic) if older is None else -self._size_of(older))
        self._topics[topic] = value

    def remove(self, topic: bytes) -> object | None:
        """Remove a topic and return its value; None if there is none."""
        value: object | None = self._topics.pop(topic, None)
        if value is not None:
            self.stored_bytes -= len(topic) + self._size_of(value)
        return value

    def clear(self) -> None:
        self._topics.clear()
        self.stored_bytes = 0

    def match_filter(
        self, topic_filter: bytes, slice_topics: int = RETAINED_SLICE_MAX_TOPICS, after: bytes = b""
    ) -> Iterator[list[tuple[bytes, object]]]:
        """The matching (topic, value) pairs in byte order, one list per slice, which may be empty; for `a/b/#` first
        `a/b`. `after`: a topic that an earlier scan with this filter yielded; the scan continues after it.

        A slice looks at no more than `slice_topics` topics; run the event loop between two slices. A filter without
        wildcards is one look-up. Topics that begin with `$` aren't matched by a wildcard at the first level
        [MQTT-4.7.2-1]. Not for shared subscriptions, which get no retained messages (section 4.8.2).
        """
        if b"+" not in topic_filter and b"#" not in topic_filter:
            value = self._topics.get(topic_filter)
            if value is not None and not after:
                yield [(topic_filter, value)]
            return
        pattern = Pattern(topic_filter)
        if pattern.parent and not after:
            value = self._topics.get(pattern.parent)
            if value is not None:
                yield [(pattern.parent, value)]
        start = after + b"\0" if after and after != pattern.parent else pattern.start
        while start != _DONE:
            found, start = self._slice(pattern, start, slice_topics)
            yield found

    def _slice(self, pattern: Pattern, start: bytes, slice_topics: int) -> tuple[list[tuple[bytes, object]], bytes]:
        """Look at topics from `start` on. Returns the matches, and where the next slice starts, or _DONE."""
        found: list[tuple[bytes, object]] = []
        ahead = start
        steps_behind = 0
        topics = self._topics.irange(ahead, None)
        looked_at = 0
        while looked_at < slice_topics:
            topic: bytes | None = next(topics, None)
            if topic is None:
                return found, _DONE
            looked_at += 1
            if topic < ahead:
                steps_behind += 1
                if steps_behind == _LEAP_AFTER_STEPS:
                    topics = self._topics.irange(ahead, None)
                    steps_behind = 0
                continue
            steps_behind = 0
            ahead = pattern.next_after(topic)
            if pattern.matched:
                found.append((topic, self._topics[topic]))
            if ahead == _DONE:
                return found, _DONE
        return found, ahead


class Pattern:
    """A wildcard filter, for a scan through topics in byte order.

    `parent`: the topic that the filter matches outside of its range: `a/b` for `a/b/#`, else b"". `matched`: whether
    the last argument of `next_after` matched.
    """

    __slots__ = ("_below", "_dollar", "_levels", "_multi", "_prefix", "matched", "parent", "start")

    def __init__(self, topic_filter: bytes) -> None:
        levels = topic_filter.split(b"/")
        self._multi = levels[-1] == b"#"
        if self._multi:
            levels.pop()
        self._levels = levels
        literal = 0
        while literal < len(levels) and levels[literal] != b"+":
            literal += 1
        self._prefix = b"".join([level + b"/" for level in levels[:literal]])
        self._below = self._multi and literal == len(levels)  # everything below the prefix matches
        self.parent = b"/".join(levels) if self._below and literal > 0 else b""
        self._dollar = literal > 0
        self.start = self._prefix or b"\x01"
        self.matched = False

    def next_after(self, topic: bytes) -> bytes:
        """The earliest place after `topic` where a match can be; _DONE if there is none. Sets `matched`."""
        self.matched = False
        prefix = self._prefix
        if topic[: len(prefix)] != prefix:
            return _DONE
        if topic[:1] == b"$" and not self._dollar:
            return _AFTER_DOLLAR
        if self._below:
            self.matched = True
            return topic + b"\0"
        levels = topic.split(b"/")
        wanted = self._levels
        at = 0  # where the level begins
        for position, want in enumerate(wanted):
            if position == len(levels):
                return topic + b"\0"  # too short; topics below it may match
            level = levels[position]
            if want not in (b"+", level):
                return self._leap(topic, at, want, position == len(wanted) - 1)
            at += len(level) + 1
        if len(levels) > len(wanted) and not self._multi:
            return topic[: at - 1] + _AFTER_SLASH  # too long, and so are all others with the same levels
        self.matched = True
        return topic + b"\0"

    def _leap(self, topic: bytes, at: int, want: bytes, last: bool) -> bytes:
        """The level at `at` differs from the wanted one: jump to the wanted level if it follows, otherwise past all
        topics with the same levels before it.

        A `+` stands before it; otherwise the range would contain only the wanted level.
        """
        here = topic[:at] + want
        if here > topic:
            return here
        if not (last and not self._multi) and here + b"/" > topic:
            return here + b"/"
        return topic[: at - 1] + _AFTER_SLASH
