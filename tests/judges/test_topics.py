"""Filters and topics."""

from __future__ import annotations

import pytest

from judges.judge import matches
from judges.topics import overlap, topic_filter


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a", False),
        ("a", "a/b", False),
        ("+/b", "a/b", True),
        ("+", "a/b", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a/b", True),
        ("b/#", "a/b", False),
    ],
)
def test_filters_match_as_mqtt_says(filter: str, topic: str, expected: bool) -> None:
    assert matches(filter, topic) is expected


def test_wildcards_match_no_topic_of_the_servers() -> None:
    assert not matches("#", "$SYS/uptime")
    assert not matches("+/uptime", "$SYS/uptime")
    assert matches("$SYS/#", "$SYS/uptime")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/+", True),
        ("a/#", "a", True),
        ("a/b/c", "a/#", True),
        ("#", "x/y", True),
        ("+/b", "a/+", True),
        ("a/b", "a/c", False),
        ("a", "a/b", False),
        ("a/b/#", "a/+", True),
        ("a/b/c", "a/b", False),
    ],
)
def test_filters_overlap_where_a_topic_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected


def test_what_is_shared_or_exclusive_is_held_against_topics_without_its_prefix() -> None:
    assert topic_filter("$share/group/a/+") == "a/+"
    assert topic_filter("$exclusive/a/b") == "a/b"
    assert topic_filter("a/b") == "a/b"
