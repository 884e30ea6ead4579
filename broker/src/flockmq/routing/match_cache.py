"""Caches the match result of each topic, and drops the results that a change of filters makes stale.

The hot loop reads `entries` directly, one dict look-up per message. Everything else happens when a topic is first seen
or a filter changes. Mostly, filters change one at a time and under one prefix, so the cache indexes its topics by their
first level and by their first two:

 filter that changes            topics to drop
 without wildcards              that topic
 `a/b/…` with wildcards later   topics under a/b
 `a/+/…`, `a/#`                 topics under a; all, when that is most of them
 `+/…`, `#`                     all topics

Invariant: a topic is in `entries` exactly while it is in both prefix tables. The number of topics, the length of a
topic, and the number of references in all results are bounded. Dropping an entry costs as much as adding it, so
additions pay for invalidation. After the cache was full, only one of MATCH_CACHE_ADMITS_EVERY new topics is added;
otherwise a round-robin over too many topics would always evict the one that is needed next. `on_drop` is called for
each result that is dropped, or `on_clear`, if given, once for all of them.

Measured with tracemalloc at 60,000 entries: 77 bytes per entry in addition to topic and result when all share a first
level, 220 when each has its own. `put` takes 0.5 µs compiled and 1.1 µs interpreted, `clear` 1.5 ms at 48,000 entries
(CPython 3.11, a busy 2-core EPYC).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from flockmq.bounds import (
    MATCH_CACHE_ADMITS_EVERY,
    MATCH_CACHE_MAX_TARGETS,
    MATCH_CACHE_MAX_TOPIC_BYTES,
    MATCH_CACHE_MAX_TOPICS,
)


class MatchCache:
    """Topic → match result, which is never None. Read with `cache.entries.get(topic)`, added with `put`."""

    def __init__(
        self,
        max_topics: int = MATCH_CACHE_MAX_TOPICS,
        max_targets: int = MATCH_CACHE_MAX_TARGETS,
        on_drop: Callable[[object], None] | None = None,
        on_clear: Callable[[], None] | None = None,
    ) -> None:
        self._on_clear = on_clear
        self._on_drop = on_drop
        self.entries: dict[bytes, object] = {}
        self._topics: dict[bytes, bytes | set[bytes]] = {}  # first two levels → topics; a single one isn't in a set
        self._prefixes: dict[bytes, bytes | set[bytes]] = {}  # first level → keys of _topics
        self._max_topics = max_topics
        self._max_targets = max_targets
        self._was_full = False
        self._turned_away = 0  # since the last one that was added
        self._targets = 0  # added since the cache was last empty

    def __len__(self) -> int:
        return len(self.entries)

    def put(self, topic: bytes, result: object, targets: int = 1) -> None:
        """Add a result with `targets` references. A topic that is too long isn't added.

        When the cache is full of topics, the oldest eighth is dropped, and from then on few new topics are added. When
        it is full of targets, everything is dropped.
        """
        if len(topic) > MATCH_CACHE_MAX_TOPIC_BYTES:
            return
        older = self.entries.get(topic)
        if older is None and self._was_full and not self._admits():
            return
        if self._targets + targets > self._max_targets:
            self.clear()
            if targets > self._max_targets:
                return
        self._targets += targets
        older = self.entries.get(topic)  # It may have been dropped.
        if older is not None:
            if self._on_drop is not None and older is not result:
                self._on_drop(older)
        else:
            if len(self.entries) >= self._max_topics:
                self._was_full = True
                for oldest in list(islice(self.entries, self._max_topics // 8 + 1)):
                    self._drop(oldest)
            first, second = _prefixes(topic)
            if second not in self._topics:
                _insert(self._prefixes, first, second)
            _insert(self._topics, second, topic)
        self.entries[topic] = result

    def filter_changed(self, topic_filter: bytes) -> None:
        """Drop all topics that the added or removed filter could match. Takes the filter without `$share/…/`."""
        if b"+" not in topic_filter and b"#" not in topic_filter:
            self._drop(topic_filter)
            return
        levels = topic_filter.split(b"/", 2)
        if levels[0] in (b"+", b"#"):
            self.clear()
        elif levels[1] in (b"+", b"#"):
            below = _members(self._prefixes.get(levels[0]))
            if len(below) * 2 > len(self._topics):
                self.clear()  # Ten times faster per topic, and most topics are dropped anyway.
                return
            self._prefixes.pop(levels[0], None)
            for second in below:
                self._forget_under(second)
        else:
            second = levels[0] + b"/" + levels[1]
            if second in self._topics:
                _discard(self._prefixes, levels[0], second)
                self._forget_under(second)

    def clear(self) -> None:
        """Drop everything."""
        if self._on_clear is not None:
            self._on_clear()
        elif self._on_drop is not None:
            for result in self.entries.values():
                self._on_drop(result)
        self.entries.clear()
        self._topics.clear()
        self._prefixes.clear()
        self._targets = 0
        self._was_full = False

    def _admits(self) -> bool:
        """True for one of MATCH_CACHE_ADMITS_EVERY calls."""
        self._turned_away += 1
        if self._turned_away < MATCH_CACHE_ADMITS_EVERY:
            return False
        self._turned_away = 0
        return True

    def _forget_under(self, second: bytes) -> None:
        for topic in _members(self._topics.pop(second)):
            self._take_out(topic)

    def _drop(self, topic: bytes) -> None:
        if topic not in self.entries:
            return
        self._take_out(topic)
        first, second = _prefixes(topic)
        if _discard(self._topics, second, topic):
            _discard(self._prefixes, first, second)

    def _take_out(self, topic: bytes) -> None:
        result = self.entries.pop(topic)
        if self._on_drop is not None:
            self._on_drop(result)


def _prefixes(topic: bytes) -> tuple[bytes, bytes]:
    """The first level, and the first two; for a topic with one level, both are the topic."""
    first_end = topic.find(b"/")
    if first_end < 0:
        return topic, topic
    second_end = topic.find(b"/", first_end + 1)
    return topic[:first_end], topic if second_end < 0 else topic[:second_end]


def _members(group: bytes | set[bytes] | None) -> list[bytes]:
    if group is None:
        return []
    if isinstance(group, bytes):
        return [group]
    return list(group)


def _insert(groups: dict[bytes, bytes | set[bytes]], key: bytes, member: bytes) -> None:
    group = groups.get(key)
    if group is None:
        groups[key] = member
    elif isinstance(group, bytes):
        groups[key] = {group, member}
    else:
        group.add(member)


def _discard(groups: dict[bytes, bytes | set[bytes]], key: bytes, member: bytes) -> bool:
    """Remove a member from its group. Returns True if the group was removed with it."""
    group = groups[key]
    if isinstance(group, bytes):
        del groups[key]
        return True
    group.discard(member)
    if not group:
        del groups[key]
        return True
    return False
