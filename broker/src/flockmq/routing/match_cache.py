"""Caches the route of each topic and the heads of its packets, and drops what a change of filters makes stale.

The hot loop reads `routes` or one of the tables of heads directly, one dict look-up per message. Everything else
happens when a topic is first seen or a filter changes. Mostly, filters change one at a time and under one prefix, so
the cache indexes its topics by their first level and by their first two:

 filter that changes            topics to drop
 without wildcards              that topic
 `a/b/…` with wildcards later   topics under a/b
 `a/+/…`, `a/#`                 topics under a
 `+/…`, `#`                     all topics

Heads: the *head* of a PUBLISH is its bytes from the first to the end of the topic (and, at QoS 0 in version 5, the zero
byte that means "no properties"). Equal heads mean equal flags, length and topic. So one dict look-up by head replaces
parsing and matching.

Invariants: a topic is in `routes` exactly while it is in both prefix tables, and a head is in a table only while the
topic is in `routes`. `size_bytes` is at most `max_bytes`. No call takes long: what is too much to be dropped topic by
topic is dropped as a whole, and its memory is freed later, some with each `put`. After the cache was full, only one of
MATCH_CACHE_ADMITS_EVERY new topics is added; otherwise a round-robin over too many topics would always evict the one
that is needed next.

Measured compiled (CPython 3.11, a busy 2-core EPYC) with 250,000 topics: 375 bytes of memory per topic and its head
when all share a first level, 450 when each has its own; a topic that isn't cached takes 1.3 µs, `clear` 0.01 ms. What
stays is that a dict of so many entries takes up to 15 ms when it grows.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, TypeAlias

from mypy_extensions import i64, mypyc_attr

from flockmq.bounds import (
    HEADS_PER_TOPIC_MAX,
    MATCH_CACHE_ADMITS_EVERY,
    MATCH_CACHE_DROPS_MAX,
    MATCH_CACHE_EVICTS,
    MATCH_CACHE_FREES,
    MATCH_CACHE_HEAD_BYTES,
    MATCH_CACHE_MAX_BYTES,
    MATCH_CACHE_MAX_TOPIC_BYTES,
    MATCH_CACHE_TOPIC_BYTES,
)
from flockmq.routing.fanout import Fanout

_Group: TypeAlias = bytes | dict[bytes, None]
"""One member, or several. The garbage collector looks through a set, but not through a dict of bytes and None."""


@mypyc_attr(acyclic=True)
class Head:
    """The total length of a packet with this head, and its fan-out."""

    __slots__ = ("fanout", "length")

    def __init__(self, length: int, fan: Fanout) -> None:
        self.length: i64 = length
        self.fanout = fan


@mypyc_attr(acyclic=True)
class Route:
    """The fan-out of a topic. `heads`: how many of its packets' heads are known. `size_bytes`: of all that is kept for
    the topic; 0 while it isn't in the cache.
    """

    __slots__ = ("_first_head", "_other_heads", "fanout", "heads", "size_bytes")

    def __init__(self, fan: Fanout) -> None:
        self.fanout = fan
        self.size_bytes: i64 = 0
        self.heads: i64 = 0
        self._first_head = b""
        self._other_heads: list[bytes] | None = None

    def add_head(self, head: bytes) -> None:
        self.heads += 1
        if self.heads == 1:
            self._first_head = head  # Most topics have only one.
        elif self._other_heads is None:
            self._other_heads = [head]
        else:
            self._other_heads.append(head)

    def all_heads(self) -> list[bytes]:
        if self.heads == 0:
            return []
        return [self._first_head, *(self._other_heads or ())]


class MatchCache:
    """Topic → route, in `routes`, added with `put`; head → length and fan-out, for QoS 0 and QoS 1 (`acknowledged`) and
    each protocol version, added with `put_head`. `clear` replaces all tables: who delivers a message has to look for
    them again.
    """

    def __init__(self, max_bytes: int = MATCH_CACHE_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._to_free: list[dict[bytes, Any]] = []
        self._start_anew()

    def __len__(self) -> int:
        return len(self.routes)

    def put(self, topic: bytes, route: Route, more_bytes: int = 0) -> None:
        """Add the route of a topic that isn't in the cache. `more_bytes`: memory that is kept for this route alone. A
        topic that is too long isn't added. When the cache is full, the oldest topics are dropped, and from then on few
        new ones are added.
        """
        if self._to_free:
            self._free_some()
        size_bytes = MATCH_CACHE_TOPIC_BYTES + 2 * len(topic) + more_bytes
        if len(topic) > MATCH_CACHE_MAX_TOPIC_BYTES or size_bytes > self.max_bytes:
            return
        if self._was_full and not self._admits():
            return
        self._make_room(size_bytes)
        first, second = _prefixes(topic)
        if second not in self._topics:
            _insert(self._prefixes, first, second)
        _insert(self._topics, second, topic)
        self.routes[topic] = route
        route.size_bytes = size_bytes
        self.size_bytes += size_bytes

    def put_head(self, heads: dict[bytes, Head], head: bytes, known: Head, route: Route) -> None:
        """Add a head of the route's topic to a table, unless the topic isn't in the cache or has many heads."""
        if route.size_bytes == 0 or route.heads >= HEADS_PER_TOPIC_MAX:
            return
        size_bytes = MATCH_CACHE_HEAD_BYTES + len(head)
        self._make_room(size_bytes)
        if route.size_bytes == 0:  # It was the oldest.
            return
        heads[head] = known
        route.add_head(head)
        route.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def filter_changed(self, topic_filter: bytes) -> None:
        """Drop all topics that the added or removed filter could match. Takes the filter without `$share/…/`."""
        if topic_filter.find(b"+") < 0 and topic_filter.find(b"#") < 0:
            self._drop(topic_filter)
            return
        levels = topic_filter.split(b"/", 2)
        if levels[0] in (b"+", b"#"):
            self.clear()
        elif levels[1] in (b"+", b"#"):
            self._drop_below(levels[0], _members(self._prefixes.get(levels[0])))
        else:
            second = levels[0] + b"/" + levels[1]
            if second in self._topics:
                self._drop_below(levels[0], [second])

    def clear(self) -> None:
        """Drop everything. The tables are new ones afterwards, and the old ones stay alive for a while: to free the
        largest at once would take 0.1 s.
        """
        self._to_free += [self.routes, self.heads4, self.heads5, self.acknowledged_heads4, self.acknowledged_heads5]
        self._to_free += [self._topics, self._prefixes]
        self._start_anew()

    def _start_anew(self) -> None:
        self.size_bytes: i64 = 0
        self.routes: dict[bytes, Route] = {}
        self.heads4: dict[bytes, Head] = {}
        self.heads5: dict[bytes, Head] = {}
        self.acknowledged_heads4: dict[bytes, Head] = {}
        self.acknowledged_heads5: dict[bytes, Head] = {}
        self._topics: dict[bytes, _Group] = {}  # first two levels → topics
        self._prefixes: dict[bytes, _Group] = {}  # first level → keys of _topics
        self._was_full = False
        self._turned_away = 0  # since the last one that was added

    def _free_some(self) -> None:
        last = self._to_free[-1]
        for _ in range(min(len(last), MATCH_CACHE_FREES)):
            last.popitem()
        if not last:
            self._to_free.pop()

    def _make_room(self, size_bytes: int) -> None:
        while self.size_bytes + size_bytes > self.max_bytes and self.routes:
            self._was_full = True
            for oldest in list(islice(self.routes, MATCH_CACHE_EVICTS)):
                self._drop(oldest)

    def _admits(self) -> bool:
        """True for one of MATCH_CACHE_ADMITS_EVERY calls."""
        self._turned_away += 1
        if self._turned_away < MATCH_CACHE_ADMITS_EVERY:
            return False
        self._turned_away = 0
        return True

    def _drop_below(self, first: bytes, seconds: list[bytes]) -> None:
        """Drop the topics under these keys of `_topics`; all topics, if they are many."""
        if len(seconds) > MATCH_CACHE_DROPS_MAX or sum(map(self._under, seconds)) > MATCH_CACHE_DROPS_MAX:
            self.clear()
            return
        for second in seconds:
            _discard(self._prefixes, first, second)
            for topic in _members(self._topics.pop(second)):
                self._take_out(topic)

    def _under(self, second: bytes) -> int:
        group = self._topics[second]
        return 1 if isinstance(group, bytes) else len(group)

    def _drop(self, topic: bytes) -> None:
        if topic not in self.routes:
            return
        self._take_out(topic)
        first, second = _prefixes(topic)
        if _discard(self._topics, second, topic):
            _discard(self._prefixes, first, second)

    def _take_out(self, topic: bytes) -> None:
        route = self.routes.pop(topic)
        self.size_bytes -= route.size_bytes
        route.size_bytes = 0
        for head in route.all_heads():
            self.heads4.pop(head, None)
            self.heads5.pop(head, None)
            self.acknowledged_heads4.pop(head, None)
            self.acknowledged_heads5.pop(head, None)


def _prefixes(topic: bytes) -> tuple[bytes, bytes]:
    """The first level, and the first two; for a topic with one level, both are the topic."""
    first_end = topic.find(b"/")
    if first_end < 0:
        return topic, topic
    second_end = topic.find(b"/", first_end + 1)
    return topic[:first_end], topic if second_end < 0 else topic[:second_end]


def _members(group: _Group | None) -> list[bytes]:
    if group is None:
        return []
    if isinstance(group, bytes):
        return [group]
    return list(group)


def _insert(groups: dict[bytes, _Group], key: bytes, member: bytes) -> None:
    group = groups.get(key)
    if group is None:
        groups[key] = member
    elif isinstance(group, bytes):
        groups[key] = {group: None, member: None}
    else:
        group[member] = None


def _discard(groups: dict[bytes, _Group], key: bytes, member: bytes) -> bool:
    """Remove a member from its group. Returns True if the group was removed with it."""
    group = groups[key]
    if isinstance(group, bytes):
        del groups[key]
        return True
    group.pop(member, None)
    if not group:
        del groups[key]
        return True
    return False
