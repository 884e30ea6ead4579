"""The cache never answers what the index wouldn't, forgets no more than it must, and stays within its bounds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flockmq.bounds import MATCH_CACHE_MAX_TOPIC_BYTES
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.match_cache import MatchCache

LEVELS = [b"a", b"b", b"", b"$x"]
topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map(b"/".join).filter(bool)
filters = st.builds(
    lambda levels, multi: b"/".join([*levels, b"#"] if multi else levels),
    st.lists(st.sampled_from([*LEVELS, b"+"]), max_size=4),
    st.booleans(),
).filter(bool)


class BesideAnIndex(RuleBasedStateMachine):
    """Match through the cache while filters come and go: always what the index says now."""

    def __init__(self) -> None:
        super().__init__()
        self.index = FilterIndex()
        self.kept: dict[int, object] = {}
        self.cache = MatchCache(max_topics=16, max_targets=60, on_drop=self.dropped)

    def dropped(self, result: object) -> None:
        del self.kept[id(result)]

    @rule(topic=topics)
    def match(self, topic: bytes) -> None:
        found = self.index.match(topic)
        assert self.cache.entries.get(topic, found) == found
        self.cache.put(topic, found, len(found))
        if self.cache.entries.get(topic) is found:
            self.kept[id(found)] = found

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
        assert len(self.cache) == len(self.cache.entries) <= 16
        for topic, found in self.cache.entries.items():
            assert found == self.index.match(topic)
        assert sorted(map(id, self.cache.entries.values())) == sorted(self.kept)


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
    for topic in TOPICS:
        cache.put(topic, topic)
    cache.filter_changed(changed)
    assert sorted(set(TOPICS) - set(cache.entries)) == sorted(forgotten)
    for topic in TOPICS:
        cache.put(topic, topic)
    cache.filter_changed(changed)
    assert sorted(set(TOPICS) - set(cache.entries)) == sorted(forgotten)


def test_when_full_the_oldest_eighth_goes() -> None:
    cache = MatchCache(max_topics=80)
    names = [b"t/%d" % n for n in range(81)]
    for name in names:
        cache.put(name, name)
    assert list(cache.entries) == names[11:]


def test_topics_that_all_come_in_turn_do_not_push_one_another_out() -> None:
    """More of them than fit: most of what fits is found, round after round."""
    cache = MatchCache(max_topics=800)
    names = [b"t/%d" % n for n in range(1000)]
    for _ in range(10):
        found = 0
        for name in names:
            if name in cache.entries:
                found += 1
            else:
                cache.put(name, name)
    assert found > 600


def test_after_a_change_above_all_topics_all_are_admitted_again() -> None:
    cache = MatchCache(max_topics=80)
    for number in range(100):
        cache.put(b"t/%d" % number, number)
    cache.filter_changed(b"#")
    for number in range(50):
        cache.put(b"u/%d" % number, number)
    assert len(cache) == 50


def test_a_topic_that_is_put_again_is_replaced_and_takes_no_room() -> None:
    cache = MatchCache(max_topics=2)
    for result in range(9):
        cache.put(b"a", result)
    cache.put(b"b", 0)
    assert cache.entries == {b"a": 8, b"b": 0}


def test_when_its_results_hold_too_many_targets_everything_goes() -> None:
    cache = MatchCache(max_targets=10)
    cache.put(b"a", "a", targets=6)
    cache.put(b"b", "b", targets=5)
    assert cache.entries == {b"b": "b"}
    cache.put(b"c", "c", targets=11)
    assert cache.entries == {}


def test_long_topics_are_not_kept() -> None:
    cache = MatchCache()
    cache.put(b"a" * MATCH_CACHE_MAX_TOPIC_BYTES, 1)
    cache.put(b"a" * (MATCH_CACHE_MAX_TOPIC_BYTES + 1), 1)
    assert len(cache) == 1


def test_a_filter_above_most_topics_forgets_all_of_them() -> None:
    cache = MatchCache()
    for topic in (b"a/b", b"a/c", b"a/d", b"b"):
        cache.put(topic, topic)
    cache.filter_changed(b"a/+/x")
    assert cache.entries == {}


def test_filters_change_one_above_the_other() -> None:
    cache = MatchCache()
    for topic in (b"a/b/c", b"a/c", b"x/1", b"x/2", b"x/3"):
        cache.put(topic, topic)
    cache.filter_changed(b"a/b/+")
    cache.filter_changed(b"a/+")
    cache.filter_changed(b"a/b/+")
    assert list(cache.entries) == [b"x/1", b"x/2", b"x/3"]
