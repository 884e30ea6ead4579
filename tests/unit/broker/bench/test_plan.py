"""Rings, topics and plans: what the load promises before it sends anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bench import message_ring, target
from flockmq.bench.plan import Plan
from flockmq.errors import ConfigError
from flockmq.routing.filter_index import FilterIndex


def matches(topic_filter: str, topic: bytes) -> bool:
    index = FilterIndex()
    index.add(topic_filter.encode(), "it")
    return index.match(topic) == ["it"]


@given(st.integers(0, message_ring.PLACES_MAX - 1))
def test_numbers_in_letters_come_back(number: int) -> None:
    text = message_ring.letters(number, message_ring.PLACE_LETTERS)
    assert len(text) == message_ring.PLACE_LETTERS
    assert message_ring.number(text) == number


@given(window=st.integers(1, 10_000), topics=st.integers(1, 5_000))
def test_a_ring_holds_two_windows_and_whole_rounds_of_the_topics(window: int, topics: int) -> None:
    count = message_ring.places(window, topics, 0)
    assert count >= 2 * window
    assert count % topics == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_messages_of_a_ring_are_of_one_size_and_differ(qos: int) -> None:
    built = message_ring.build(3, [b"a/AA", b"a/AB"], 10, qos, 20, bytes)
    size = built.arriving_bytes
    packets = {built.arriving[at : at + size] for at in range(0, len(built.arriving), size)}
    assert len(packets) == 10
    assert len(built.written) == 10 * built.written_bytes
    assert (built.written == built.arriving) is (qos == 0)


@pytest.mark.parametrize(
    "plan", [Plan(), Plan(topics=64), Plan(wildcard=True), Plan(fan=True, subscribers=5, topics=3)]
)
def test_a_subscriber_hears_its_publishers_topics_and_nobody_elses(plan: Plan) -> None:
    assert all(matches(plan.filter(0), topic) for topic in plan.topic_names(0))
    assert not any(matches(plan.filter(0), topic) for topic in plan.topic_names(1))


def test_other_filters_match_nothing_that_is_published() -> None:
    plan = Plan(topics=20, filters=50)
    assert len(set(plan.other_filters())) == 50
    assert not any(matches(other, topic) for other in plan.other_filters() for topic in plan.topic_names(0))


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (Plan(publishers=2), "as many --subscribers as --publishers"),
        (Plan(qos=1, window=40_000), "there are packet ids for 32767 at most"),
        (Plan(payload_bytes=1 << 20), "don't fit"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: Plan, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan.check()


@pytest.mark.parametrize(
    ("url", "port", "text"),
    [
        ("mqtt://broker", 1883, "mqtt://broker:1883"),
        ("mqtts://broker", 8883, "mqtts://broker:8883"),
        ("ws://[::1]:9001", 9001, "ws://[::1]:9001/mqtt"),
        ("wss://broker/path", 443, "wss://broker:443/path"),
    ],
)
def test_a_url_says_where_the_broker_is(url: str, port: int, text: str) -> None:
    where = target.parse(url)
    assert (where.port, str(where)) == (port, text)


@pytest.mark.parametrize(
    "url", ["broker:1883", "http://broker", "mqtt://", "mqtt://broker:99999", "mqtt://me:pw@broker"]
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        target.parse(url)
