"""Filters against topics: the index against a matcher that follows the specification level by level."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flockmq.bounds import FAST_SHAPE_FILTERS, FAST_SHAPES_MAX, SHAPE_MOVES
from flockmq.routing.filter_index import FilterIndex, _is_fast, shape_of
from flockmq.routing.filter_tree import Branch

# Few levels, so that topics and filters meet; `a-` and `a0` stand on both sides of `a/` in byte order.
LEVELS = [b"a", b"b", b"a-", b"a0", b"", b"$x"]
topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map(b"/".join).filter(bool)
filters = st.builds(
    lambda levels, multi: b"/".join([*levels, b"#"] if multi else levels),
    st.lists(st.sampled_from([*LEVELS, b"+", b"+"]), max_size=4),
    st.booleans(),
).filter(bool)


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Section 4.7, read literally."""
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    if topic[:1] == b"$" and wanted[0] in (b"+", b"#"):
        return False
    for position, want in enumerate(wanted):
        if want == b"#":
            return True
        if position >= len(levels):
            return False
        if want not in (b"+", levels[position]):
            return False
        if position == len(levels) - 1 and wanted[position + 1 :] == [b"#"]:
            return True
    return len(wanted) == len(levels)


def indexes() -> list[FilterIndex]:
    """All shapes fast, none, and some of them, which change."""
    return [FilterIndex(), FilterIndex(0, 1 << 30), FilterIndex(2, 2), FilterIndex(1, 4)]


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matched"),
    [
        (b"sport/tennis/player1/#", b"sport/tennis/player1", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
        (b"sport/#", b"sport", True),
        (b"sport/tennis/+", b"sport/tennis/player1", True),
        (b"sport/tennis/+", b"sport/tennis/player1/ranking", False),
        (b"sport/+", b"sport", False),
        (b"sport/+", b"sport/", True),
        (b"+/+", b"/finance", True),
        (b"/+", b"/finance", True),
        (b"+", b"/finance", False),
        (b"#", b"$SYS/broker", False),
        (b"+/monitor/Clients", b"$SYS/monitor/Clients", False),
        (b"$SYS/#", b"$SYS/broker", True),
        (b"$SYS/monitor/+", b"$SYS/monitor/Clients", True),
        (b"ACCOUNTS", b"Accounts", False),
        (b"/finance", b"finance", False),
    ],
)
def test_the_examples_of_the_specification__MQTT_4_7_1_and_4_7_2_1(
    topic_filter: bytes, topic: bytes, matched: bool
) -> None:
    for index in indexes():
        index.add(topic_filter, 1)
        assert bool(index.match(topic)) == matched == matches(topic_filter, topic)


@given(st.lists(filters, max_size=12), topics)
def test_a_topic_gets_the_values_of_every_filter_that_matches(all_filters: list[bytes], topic: bytes) -> None:
    expected = {topic_filter for topic_filter in all_filters if matches(topic_filter, topic)}
    for index in indexes():
        for topic_filter in all_filters:
            index.add(topic_filter, topic_filter)
        found = index.match(topic)
        assert len(found) == len(expected)
        assert set(found) == expected


class AgainstDict(RuleBasedStateMachine):
    """Any sequence of calls, against a plain dict of sets."""

    def __init__(self) -> None:
        super().__init__()
        self.index = FilterIndex()
        """Every shape is fast."""
        self.others = indexes()[1:]
        self.model: dict[bytes, dict[int, None]] = {}

    @rule(topic_filter=filters, value=st.integers(0, 11))
    def add(self, topic_filter: bytes, value: int) -> None:
        for index in (self.index, *self.others):
            assert index.add(topic_filter, value) == (topic_filter not in self.model)
        self.model.setdefault(topic_filter, {})[value] = None

    @rule(topic_filter=filters, value=st.integers(0, 11))
    def remove(self, topic_filter: bytes, value: int) -> None:
        self.remove_from_model(topic_filter, value)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_what_is_there(self, data: st.DataObject) -> None:
        topic_filter = data.draw(st.sampled_from(sorted(self.model)))
        self.remove_from_model(topic_filter, data.draw(st.sampled_from(sorted(self.model[topic_filter]))))

    def remove_from_model(self, topic_filter: bytes, value: int) -> None:
        gone = self.model.get(topic_filter) == {value: None}
        for index in (self.index, *self.others):
            assert index.remove(topic_filter, value) == gone
        self.model.get(topic_filter, {}).pop(value, None)
        if gone:
            del self.model[topic_filter]

    @rule(topic=topics)
    def match(self, topic: bytes) -> None:
        found = [value for f, values in self.model.items() if matches(f, topic) for value in values]
        for index in (self.index, *self.others):
            assert sorted(map(repr, index.match(topic))) == sorted(map(repr, found))

    @invariant()
    def the_same_filters_values_and_shapes(self) -> None:
        wild = [f.split(b"/") for f in self.model if b"+" in f or b"#" in f]
        shapes = len({tuple(level if level in (b"+", b"#") else b"" for level in f) for f in wild})
        for index in (self.index, *self.others):
            assert (len(index), index.shapes) == (len(self.model), shapes)
            for topic_filter, values in self.model.items():
                assert topic_filter in index
                assert index.values(topic_filter) == list(values)


TestAgainstDict = AgainstDict.TestCase
TestAgainstDict.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 100])
def test_values_keep_their_order_however_many_there_are(count: int) -> None:
    index = FilterIndex()
    values = [f"client {n}" for n in range(count)]
    for value in [*values, *values]:
        index.add(b"a/+", value)
    assert index.match(b"a/b") == values
    for value in values[:-1]:
        assert not index.remove(b"a/+", value)
    assert index.match(b"a/b") == values[-1:]
    assert index.remove(b"a/+", values[-1])
    assert (len(index), index.shapes) == (0, 0)


def test_matches_come_by_depth_whatever_the_order_of_adding() -> None:
    ordered = [b"a/b/c", b"#", b"a/#", b"+/b/#", b"+/b/+", b"+/+/c", b"a/b/+", b"a/b/c/#"]
    for all_filters in (ordered, list(reversed(ordered))):
        index = FilterIndex()
        for topic_filter in all_filters:
            index.add(topic_filter, topic_filter)
        found = index.match(b"a/b/c")
        assert sorted(found, key=repr) == sorted(ordered, key=repr)
        assert found[:4] == ordered[:4]
        assert found == index.match(b"a/b/c")


def fast(index: FilterIndex) -> set[bytes]:
    """The shapes that topics are looked up in."""
    return {signature for signature, shape in index._shapes.items() if _is_fast(shape)}


def fill(index: FilterIndex, pattern: bytes, filters: int, first: int = 0) -> None:
    for number in range(first, first + filters):
        index.add(pattern % number, number)


@pytest.mark.parametrize(
    ("topic_filter", "shape"),
    [(b"a/+/b/#", b"/+//#"), (b"+", b"+"), (b"#", b"#"), (b"//+", b"//+"), ("ä/+/\U0001f426".encode(), b"/+/")],
)
def test_a_shape_has_the_wildcards_and_where_they_are(topic_filter: bytes, shape: bytes) -> None:
    assert shape_of(topic_filter) == shape


def test_all_shapes_are_fast_while_they_are_few() -> None:
    index = FilterIndex()
    for depth in range(FAST_SHAPES_MAX):
        index.add(b"a/" * depth + b"+", depth)
    assert len(fast(index)) == index.shapes == FAST_SHAPES_MAX
    assert index._tree.is_empty()


def test_of_many_shapes_those_with_many_filters_are_fast_whoever_came_first() -> None:
    index = FilterIndex()
    for depth in range(2, 100):
        index.add(b"+/" * depth + b"x", depth)
    fill(index, b"fleet/%d/+", FAST_SHAPE_FILTERS)
    assert fast(index) == {b"//+"}
    assert index.match(b"fleet/7/state") == [7]
    assert index.match(b"/".join([b"a"] * 50) + b"/x") == [50]


def test_a_larger_shape_takes_the_place_of_the_smallest() -> None:
    index = FilterIndex(fast_shapes=2, fast_filters=4)
    fill(index, b"a/%d/+", 5)
    fill(index, b"%d/+", 4)
    fill(index, b"+/%d", 7)
    assert fast(index) == {b"//+", b"/+"}
    fill(index, b"+/%d", 1, first=7)
    assert fast(index) == {b"//+", b"+/"}
    assert sorted(index.match(b"3/5"), key=repr) == [3, 5]
    for number in range(8):
        index.remove(b"+/%d" % number, number)
    assert (fast(index), index.shapes, len(index)) == ({b"//+"}, 2, 9)


def test_a_shape_that_most_filters_left_isnt_fast() -> None:
    index = FilterIndex(fast_shapes=2, fast_filters=4)
    fill(index, b"a/%d/+", 4)
    fill(index, b"+/%d", 1)
    fill(index, b"%d/+/+", 1)
    assert fast(index) == {b"//+"}
    for number in range(3):
        index.remove(b"a/%d/+" % number, number)
    assert fast(index) == set()
    assert index.match(b"a/3/x") == [3]


def test_a_shape_that_others_outgrew_moves_a_few_filters_at_a_time() -> None:
    index = FilterIndex(fast_shapes=1, fast_filters=4)
    count = 10 * SHAPE_MOVES
    fill(index, b"a/%d/+", count)
    fill(index, b"%d/+", 4 * count)
    assert fast(index) == {b"/+"}
    assert index._moving == []
    assert all(index.match(b"a/%d/x" % number) == [number] for number in range(count))


def test_a_tree_has_no_more_branches_than_filters_whatever_their_length() -> None:
    """What one costs is its own bytes, not its levels."""
    index = FilterIndex(0)
    for number in range(50):
        index.add(b"+/" * 100 + b"%d/+" % number, number)
        index.add(b"+/" * 100 + b"%d/#" % number, number)
    root = index._tree._root
    assert isinstance(root, Branch)
    assert (len(root.skip), len(root.children)) == (100, 50)
    for number in range(50):
        index.remove(b"+/" * 100 + b"%d/+" % number, number)
        index.remove(b"+/" * 100 + b"%d/#" % (49 - number), 49 - number)
    assert index._tree.is_empty()


def test_who_looks_a_filter_up_finds_what_covers_it_once_each() -> None:
    """Rewrite rules do."""
    for index in indexes():
        for topic_filter in (b"x/#", b"x/+", b"x/+/#", b"#", b"x/y"):
            index.add(topic_filter, topic_filter)
        assert set(index.match(b"x/+/#")) == {b"x/#", b"#", b"x/+/#"}
        assert set(index.match(b"x/#")) >= {b"x/#", b"#", b"x/+"}


def test_filters_that_begin_with_a_dollar_are_counted_once_each() -> None:
    index = FilterIndex()
    for value in ("a", "b"):
        index.add(b"$SYS/#", value)
        index.add(b"plain/$", value)
    assert index.dollars == 1
    index.remove(b"$SYS/#", "a")
    index.remove(b"$SYS/#", "a")
    assert index.dollars == 1
    index.remove(b"$SYS/#", "b")
    assert index.dollars == 0
