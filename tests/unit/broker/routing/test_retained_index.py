"""Retained topics by filter: against a scan of all of them, in slices of any size, while topics come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.retained_index import RetainedIndex

LEVELS = [b"a", b"b", b"a-", b"a0", b"a!", b"", b"$x", "ä".encode()]
topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map(b"/".join).filter(bool)
filters = st.builds(
    lambda levels, multi: b"/".join([*levels, b"#"] if multi else levels),
    st.lists(st.sampled_from([*LEVELS, b"+", b"+"]), max_size=4),
    st.booleans(),
).filter(bool)


def size_of(value: object) -> int:
    assert isinstance(value, bytes)
    return len(value)


def index_of(all_topics: list[bytes]) -> RetainedIndex:
    index = RetainedIndex(size_of)
    for topic in all_topics:
        index.put(topic, b"value of " + topic)
    return index


def matches(topic_filter: bytes, topic: bytes) -> bool:
    index = FilterIndex()
    index.add(topic_filter, 1)
    return bool(index.match(topic))


@given(st.lists(topics, max_size=40, unique=True), filters, st.integers(1, 10))
def test_a_filter_finds_each_matching_topic_once(all_topics: list[bytes], topic_filter: bytes, size: int) -> None:
    index = index_of(all_topics)
    found = [entry for part in index.match_filter(topic_filter, size) for entry in part]
    expected = sorted(topic for topic in all_topics if matches(topic_filter, topic))
    assert found == [(topic, b"value of " + topic) for topic in expected]


@given(st.lists(topics, max_size=40, unique=True), filters, st.integers(1, 10))
def test_a_scan_goes_on_behind_any_topic_that_it_yielded(
    all_topics: list[bytes], topic_filter: bytes, size: int
) -> None:
    index = index_of(all_topics)
    expected = sorted(topic for topic in all_topics if matches(topic_filter, topic))
    for number, last in enumerate(expected, start=1):
        rest = [topic for part in index.match_filter(topic_filter, size, last) for topic, _ in part]
        assert rest == expected[number:]
        index.remove(last)
        assert [t for part in index.match_filter(topic_filter, size, last) for t, _ in part] == expected[number:]


@given(
    st.lists(topics, min_size=1, max_size=40, unique=True),
    st.lists(topics, max_size=20, unique=True),
    filters,
    st.integers(1, 5),
    st.data(),
)
def test_topics_that_stay_come_once_while_others_come_and_go(
    stay: list[bytes], others: list[bytes], topic_filter: bytes, size: int, data: st.DataObject
) -> None:
    others = [topic for topic in others if topic not in stay]
    index = index_of(stay)
    found: list[bytes] = []
    for part in index.match_filter(topic_filter, size):
        found += [topic for topic, _ in part]
        for topic in others:
            if data.draw(st.booleans()):
                index.put(topic, b"new")
            else:
                index.remove(topic)
    assert len(found) == len(set(found))
    assert set(found) <= {topic for topic in stay + others if matches(topic_filter, topic)}
    assert [topic for topic in found if topic in stay] == sorted(t for t in stay if matches(topic_filter, t))


@given(st.lists(st.tuples(topics, st.none() | st.binary(max_size=9)), max_size=40))
def test_bytes_are_counted(steps: list[tuple[bytes, bytes | None]]) -> None:
    index = RetainedIndex(size_of)
    model: dict[bytes, bytes] = {}
    for topic, value in steps:
        if value is None:
            assert index.remove(topic) == model.pop(topic, None)
        else:
            index.put(topic, value)
            model[topic] = value
        assert (len(index), index.get(topic)) == (len(model), model.get(topic))
        assert index.stored_bytes == sum(len(topic) + len(value) for topic, value in model.items())
    index.clear()
    assert (len(index), index.stored_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("topic_filter", "most_slices"),
    [
        (b"site3/dev500/temperature", 1),  # one lookup
        (b"site3/dev500/+", 1),  # only what stands under the prefix
        (b"+/dev500/temperature", 6),  # leaps from site to site
        (b"+/nowhere/#", 6),
        (b"nowhere/#", 1),
    ],
)
def test_a_selective_filter_looks_at_few_topics(topic_filter: bytes, most_slices: int) -> None:
    names = [b"temperature", b"humidity"]
    index = index_of([b"site%d/dev%d/%s" % (s, d, name) for s in range(5) for d in range(1000) for name in names])
    slices = list(index.match_filter(topic_filter, 20))
    assert len(slices) <= most_slices


def test_slices_are_bounded() -> None:
    index = index_of([b"a/%d" % n for n in range(100)])
    assert {len(part) for part in index.match_filter(b"a/#", 10)} <= {0, 10}
