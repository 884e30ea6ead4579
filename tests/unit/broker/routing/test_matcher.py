"""Filters against topics: the index against a matcher that follows the specification level by level."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flockmq.routing.matcher import FilterIndex, ShapeLimitError

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
    index = FilterIndex()
    index.add(topic_filter, 1)
    assert bool(index.match(topic)) == matched == matches(topic_filter, topic)


@given(st.lists(filters, max_size=12), topics)
def test_a_topic_gets_the_values_of_every_filter_that_matches(all_filters: list[bytes], topic: bytes) -> None:
    index = FilterIndex()
    for topic_filter in all_filters:
        index.add(topic_filter, topic_filter)
    expected = {topic_filter for topic_filter in all_filters if matches(topic_filter, topic)}
    found = index.match(topic)
    assert len(found) == len(expected)
    assert set(found) == expected


class AgainstDict(RuleBasedStateMachine):
    """Any sequence of calls, against a plain dict of sets."""

    def __init__(self) -> None:
        super().__init__()
        self.index = FilterIndex()
        self.model: dict[bytes, dict[int, None]] = {}

    @rule(topic_filter=filters, value=st.integers(0, 11))
    def add(self, topic_filter: bytes, value: int) -> None:
        assert self.index.add(topic_filter, value) == (topic_filter not in self.model)
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
        assert self.index.remove(topic_filter, value) == gone
        self.model.get(topic_filter, {}).pop(value, None)
        if gone:
            del self.model[topic_filter]

    @rule(topic=topics)
    def match(self, topic: bytes) -> None:
        found = [value for f, values in self.model.items() if matches(f, topic) for value in values]
        assert sorted(map(repr, self.index.match(topic))) == sorted(map(repr, found))

    @invariant()
    def the_same_filters_values_and_shapes(self) -> None:
        assert len(self.index) == len(self.model)
        for topic_filter, values in self.model.items():
            assert topic_filter in self.index
            assert self.index.values(topic_filter) == list(values)
        wild = [f.split(b"/") for f in self.model if b"+" in f or b"#" in f]
        assert self.index.shapes == len({tuple(level if level in (b"+", b"#") else b"" for level in f) for f in wild})


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


def test_shapes_are_bounded_and_a_refusal_changes_nothing() -> None:
    index = FilterIndex(max_shapes=2)
    index.add(b"+/a", 1)
    index.add(b"a/#", 1)
    refused: list[Callable[[], object]] = [lambda: index.add(b"+/+", 1), lambda: index.add(b"#", 1)]
    for call in refused:
        with pytest.raises(ShapeLimitError, match="2 different places"):
            call()
    assert (len(index), index.shapes, index.match(b"x/x")) == (2, 2, [])
    assert not index.admits(b"+/+")
    for admitted in (b"literal/filter", b"+/b", b"b/#", b"+/a"):
        assert index.admits(admitted)
        index.add(admitted, 2)
    index.remove(b"b/#", 2)
    index.remove(b"a/#", 1)
    assert index.admits(b"+/+")
    assert index.add(b"+/+", 1)


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
