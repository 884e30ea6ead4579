"""The cache never answers what the index wouldn't, forgets no more than it must, and stays within its bounds."""

from __future__ import annotations

from sys import getrefcount

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flockmq.bounds import (
    HEADS_PER_TOPIC_MAX,
    MATCH_CACHE_DROPS_MAX,
    MATCH_CACHE_FREES,
    MATCH_CACHE_HEAD_BYTES,
    MATCH_CACHE_MAX_TOPIC_BYTES,
    MATCH_CACHE_TOPIC_BYTES,
)
from flockmq.routing.fanout import Fanout
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.match_cache import Head, MatchCache, Route

LEVELS = [b"a", b"b", b"", b"$x"]
topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map(b"/".join).filter(bool)
filters = st.builds(
    lambda levels, multi: b"/".join([*levels, b"#"] if multi else levels),
    st.lists(st.sampled_from([*LEVELS, b"+"]), max_size=4),
    st.booleans(),
).filter(bool)
NOBODY = Fanout([], [], [], [])


def route() -> Route:
    return Route(NOBODY)


def of_topics(number: int, topic_bytes: int = 10) -> int:
    """`max_bytes` for so many topics of so many bytes."""
    return number * (MATCH_CACHE_TOPIC_BYTES + 2 * topic_bytes)


def names(number: int, prefix: bytes = b"t") -> list[bytes]:
    """Topics of ten bytes."""
    return [b"%b/%08d" % (prefix, each) for each in range(number)]


def put(cache: MatchCache, *names: bytes) -> None:
    for name in names:
        if name not in cache.routes:
            cache.put(name, route())


def heads_of(cache: MatchCache) -> list[bytes]:
    return [*cache.heads4, *cache.heads5, *cache.acknowledged_heads4, *cache.acknowledged_heads5]


class BesideAnIndex(RuleBasedStateMachine):
    """Match through the cache while filters come and go: always what the index says now."""

    def __init__(self) -> None:
        super().__init__()
        self.index = FilterIndex()
        self.found: dict[Route, list[object]] = {}
        self.head_topics: dict[bytes, bytes] = {}
        self.cache = MatchCache(of_topics(16))

    @rule(topic=topics)
    def match(self, topic: bytes) -> None:
        if topic in self.cache.routes:
            assert self.found[self.cache.routes[topic]] == self.index.match(topic)
        else:
            made = route()
            self.found[made] = self.index.match(topic)
            self.cache.put(topic, made)

    @rule(topic=topics, length=st.integers(10, 12), table=st.integers(0, 3))
    def recognise(self, topic: bytes, length: int, table: int) -> None:
        known = self.cache.routes.get(topic)
        if known is not None:
            head = b"%d %d %b" % (table, length, topic)
            self.head_topics[head] = topic
            heads = (
                self.cache.heads4, self.cache.heads5, self.cache.acknowledged_heads4, self.cache.acknowledged_heads5
            )  # fmt: skip
            if head not in heads[table]:
                self.cache.put_head(heads[table], head, Head(length, NOBODY), known)

    @rule(topic_filter=filters, value=st.integers(0, 2))
    def add(self, topic_filter: bytes, value: int) -> None:
        self.index.add(topic_filter, value)
        self.cache.filter_changed(topic_filter)

    @rule(topic_filter=filters, value=st.integers(0, 2))
    def remove(self, topic_filter: bytes, value: int) -> None:
        self.index.remove(topic_filter, value)
        self.cache.filter_changed(topic_filter)

    @invariant()
    def every_entry_is_still_true_and_they_are_bounded(self) -> None:
        cache = self.cache
        assert cache.size_bytes == sum(each.size_bytes for each in cache.routes.values()) <= cache.max_bytes
        for topic, found in cache.routes.items():
            assert self.found[found] == self.index.match(topic)
        heads = heads_of(cache)
        assert {self.head_topics[head] for head in heads} <= set(cache.routes)
        assert len(heads) == sum(each.heads for each in cache.routes.values())


TestBesideAnIndex = BesideAnIndex.TestCase
TestBesideAnIndex.settings = settings(max_examples=100, stateful_step_count=50)

TOPICS = [b"a", b"a/b", b"a/b/c", b"a/b/d", b"a/c", b"a/c/d", b"b", b"b/b/c", b"a0/b", b"/", b"$SYS/a"]


@pytest.mark.parametrize(
    ("changed", "forgotten"),
    [
        (b"a/b/c", [b"a/b/c"]),
        (b"a", [b"a"]),
        (b"x/y", []),
        (b"a/b/+", [b"a/b", b"a/b/c", b"a/b/d"]),
        (b"a/b/#", [b"a/b", b"a/b/c", b"a/b/d"]),
        (b"x/y/+", []),
        (b"a/+", [b"a", b"a/b", b"a/b/c", b"a/b/d", b"a/c", b"a/c/d"]),
        (b"a/#", [b"a", b"a/b", b"a/b/c", b"a/b/d", b"a/c", b"a/c/d"]),
        (b"x/#", []),
        (b"/+", [b"/"]),
        (b"+/b", TOPICS),
        (b"#", TOPICS),
    ],
)
def test_a_change_of_a_filter_forgets_what_stands_under_its_prefix(changed: bytes, forgotten: list[bytes]) -> None:
    cache = MatchCache()
    for _ in range(2):
        put(cache, *TOPICS)
        cache.filter_changed(changed)
        assert sorted(set(TOPICS) - set(cache.routes)) == sorted(forgotten)


def test_when_full_the_oldest_go() -> None:
    cache = MatchCache(of_topics(800))
    put(cache, *names(801))
    kept = list(cache.routes)
    assert kept == names(801)[-len(kept) :]
    assert 700 < len(kept) <= 800


def test_topics_that_all_come_in_turn_do_not_push_one_another_out() -> None:
    """More of them than fit: most of what fits is found, round after round."""
    cache = MatchCache(of_topics(800))
    for _ in range(10):
        found = sum(name in cache.routes or put(cache, name) is not None for name in names(1000))
    assert found > 600


def test_after_a_change_above_all_topics_all_are_admitted_again() -> None:
    cache = MatchCache(of_topics(80))
    put(cache, *names(100))
    cache.filter_changed(b"#")
    put(cache, *names(50, b"u"))
    assert list(cache.routes) == names(50, b"u")


def test_what_is_kept_for_a_route_alone_counts() -> None:
    cache = MatchCache(of_topics(10) + 1000)
    for name in names(5):
        cache.put(name, route(), 1000 // 5)
    assert cache.size_bytes == of_topics(5) + 1000
    cache.put(b"large", route(), cache.max_bytes)
    assert b"large" not in cache.routes
    assert len(cache) == 5


def test_long_topics_are_not_kept() -> None:
    cache = MatchCache()
    cache.put(b"a" * MATCH_CACHE_MAX_TOPIC_BYTES, route())
    cache.put(b"a" * (MATCH_CACHE_MAX_TOPIC_BYTES + 1), route())
    assert len(cache) == 1


def test_a_topic_has_few_heads_and_they_go_with_it() -> None:
    cache, known = MatchCache(), route()
    cache.put(b"a", known)
    for number in range(HEADS_PER_TOPIC_MAX + 1):
        cache.put_head(cache.heads5, b"%d" % number, Head(number, NOBODY), known)
    assert list(cache.heads5) == [b"%d" % number for number in range(HEADS_PER_TOPIC_MAX)]
    cache.filter_changed(b"a")
    assert heads_of(cache) == []
    assert cache.size_bytes == 0


def test_no_head_is_kept_for_a_topic_that_is_not_in_the_cache() -> None:
    cache, known = MatchCache(), route()
    cache.put_head(cache.heads4, b"head", Head(9, NOBODY), known)
    assert heads_of(cache) == []


def test_a_head_makes_room_for_itself() -> None:
    """And if its own topic goes for that, it isn't kept."""
    cache = MatchCache(of_topics(1) + MATCH_CACHE_HEAD_BYTES)
    (name,) = names(1)
    put(cache, name)
    cache.put_head(cache.heads4, b"head", Head(9, NOBODY), cache.routes[name])
    assert len(cache) == 0
    assert heads_of(cache) == []


def test_a_filter_above_very_many_topics_forgets_all_of_them() -> None:
    cache = MatchCache()
    put(cache, b"other", *names(MATCH_CACHE_DROPS_MAX, b"t"), *(name + b"/x" for name in names(MATCH_CACHE_DROPS_MAX)))
    cache.filter_changed(b"t/00000000/+")
    assert len(cache) == 2 * MATCH_CACHE_DROPS_MAX + 1 - 2
    cache.filter_changed(b"t/+")
    assert len(cache) == 0
    assert cache.size_bytes == 0


def test_what_was_forgotten_as_a_whole_is_freed_while_topics_are_added() -> None:
    cache, fan = MatchCache(), Fanout([], [], [], [])
    alone = getrefcount(fan)
    for name in names(10 * MATCH_CACHE_FREES):
        cache.put(name, Route(fan))
    cache.clear()
    assert getrefcount(fan) == alone + 10 * MATCH_CACHE_FREES
    put(cache, *names(1000))
    assert getrefcount(fan) == alone


def test_filters_change_one_above_the_other() -> None:
    cache = MatchCache()
    put(cache, b"a/b/c", b"a/c", b"x/1", b"x/2", b"x/3")
    cache.filter_changed(b"a/b/+")
    cache.filter_changed(b"a/+")
    cache.filter_changed(b"a/b/+")
    assert list(cache.routes) == [b"x/1", b"x/2", b"x/3"]
