"""What a topic says of when its message is due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import DELAYED_MAX_S
from flockmq.publishing.delayed import parse
from unit.broker.publishing.delayed_log import NOW_S


@given(st.integers(1, DELAYED_MAX_S), st.floats(0, 4e9))
def test_an_interval_counts_from_now(seconds: int, now_s: float) -> None:
    assert parse(b"$delayed/%d/a/b" % seconds, now_s) == (round((now_s + seconds) * 1000), b"a/b")


def test_above_the_longest_interval_it_is_a_time() -> None:
    at_s = int(NOW_S) + 60
    assert parse(b"$delayed/%d/t" % at_s, NOW_S) == (at_s * 1000, b"t")


@pytest.mark.parametrize(
    "topic",
    [
        b"$delayed/",
        b"$delayed/5",
        b"$delayed/5/",
        b"$delayed//t",
        b"$delayed/0/t",
        b"$delayed/-1/t",
        b"$delayed/1.5/t",
        b"$delayed/\xd9\xa3/t",  # an Arabic three
        b"$delayed/4294968/t",  # a time long past
        b"$delayed/999999999/t",  # a second ago
        b"$delayed/1004294968/t",  # too far away
        b"$delayed/99999999999999999999/t",
        b"$delayed/5/$delayed/5/t",
        b"$delayed/5/$SYS/broker",
        b"$delayed/5/$share/g/t",
        b"$delayed/5/$exclusive/t",
        b"$delayed/5/$other/t",
    ],
)
def test_what_says_no_time_or_no_topic_is_refused(topic: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(topic, NOW_S)
