"""What may stand in a topic name and in a topic filter."""

from __future__ import annotations

from contextlib import suppress
from timeit import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import TOPIC_MAX_LEVELS
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import (
    check_filter,
    check_topic_name,
    exclusively,
    is_reserved,
    is_unpublishable,
    matching,
    split_share,
    unwrap,
)

NAMES = [
    b"a",
    b"/",
    b"//",
    b"a/b",
    b"/a",
    b"a/",
    b"$SYS/x",
    b"$share",
    "Ä/ö/\U0001f426".encode(),
    b"\xef\xbb\xbfa",
    b" ",
]
FILTERS = [*NAMES, b"+", b"#", b"+/+", b"a/+/b", b"a/#", b"/#", b"+/#", b"/+", b"$SYS/#", b"$share/g/a", b"$share/g/#"]


@pytest.mark.parametrize("name", NAMES)
def test_topic_names(name: bytes) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("topic_filter", [*FILTERS, b"$share/g//", b"$share/g/$share/h/a"])
def test_filters(topic_filter: bytes) -> None:
    check_filter(topic_filter)


BOTH = [
    ("MQTT-4.7.3-1", b""),
    ("MQTT-4.7.3-3", b"a" * 65_536),
    ("MQTT-1.5.4-1", b"a/\xff"),
    ("MQTT-1.5.4-1", b"a/\xc3"),
    ("MQTT-1.5.4-1", b"\xed\xa0\x80"),  # U+D800
    ("MQTT-1.5.4-1", b"\xc0\xaf"),  # '/' in two bytes
    ("MQTT-1.5.4-1", b"\xf4\x90\x80\x80"),  # above U+10FFFF
    ("MQTT-1.5.4-2", b"a\0b"),
]
ONLY_NAMES = [("MQTT-4.7.0-1", wildcard) for wildcard in (b"+", b"#", b"a/+", b"a/#", b"a+", b"a#b")]
ONLY_FILTERS = [
    ("MQTT-4.7.1-1", b"a#"),
    ("MQTT-4.7.1-1", b"#/a"),
    ("MQTT-4.7.1-1", b"a/#/b"),
    ("MQTT-4.7.1-1", b"##"),
    ("MQTT-4.7.1-2", b"a+"),
    ("MQTT-4.7.1-2", b"+a/b"),
    ("MQTT-4.7.1-2", b"a/++/b"),
    ("MQTT-4.8.2-1", b"$share/"),
    ("MQTT-4.8.2-1", b"$share//a"),
    ("MQTT-4.8.2-2", b"$share/g"),
    ("MQTT-4.8.2-2", b"$share/g/"),
    ("MQTT-4.8.2-2", b"$share/g+/a"),
    ("MQTT-4.8.2-2", b"$share/#/a"),
    ("MQTT-4.7.1-1", b"$share/g/#/a"),
    ("MQTT-4.7.1-2", b"$share/g/a+"),
]


@pytest.mark.parametrize(("statement", "name"), BOTH + ONLY_NAMES)
def test_a_bad_topic_name_is_malformed(statement: str, name: bytes) -> None:
    with pytest.raises(PacketError) as refused:
        check_topic_name(name)
    assert (refused.value.statement, refused.value.reason) == (statement, Reason.MALFORMED_PACKET)


@pytest.mark.parametrize(("statement", "topic_filter"), BOTH + ONLY_FILTERS)
def test_a_bad_filter_is_malformed(statement: str, topic_filter: bytes) -> None:
    with pytest.raises(PacketError) as refused:
        check_filter(topic_filter)
    assert (refused.value.statement, refused.value.reason) == (statement, Reason.MALFORMED_PACKET)


def wrong(level: bytes, is_last: bool) -> str:
    """The statement that a level violates (section 4.7.1); "": none."""
    if b"#" in level and (level != b"#" or not is_last):
        return "MQTT-4.7.1-1"
    return "MQTT-4.7.1-2" if b"+" in level and level != b"+" else ""


@given(st.lists(st.sampled_from([b"+", b"#", b"a", b"b", b"", b"++", b"a+", b"#a"]), min_size=2, max_size=5))
def test_a_filter_is_refused_for_the_first_level_that_is_wrong__MQTT_4_7_1(levels: list[bytes]) -> None:
    violated = list(filter(None, [wrong(level, at == len(levels) - 1) for at, level in enumerate(levels)]))
    if not violated:
        check_filter(b"/".join(levels))
        return
    with pytest.raises(PacketError) as refused:
        check_filter(b"/".join(levels))
    assert refused.value.statement == violated[0]


@pytest.mark.parametrize("many", [b"a/" * 125 + b"+", b"+/" * 125 + b"+"], ids=["literal", "wild"])
def test_a_filter_of_many_levels_costs_little_more_than_a_long_one_of_few(many: bytes) -> None:
    """It cost 25 times as much: a packet of 3,000 such filters took 0.2 s."""

    def taken_s(topic_filter: bytes) -> float:
        return min(repeat(lambda: check_filter(topic_filter), number=100, repeat=20))

    assert taken_s(many) < 10 * taken_s(b"a" * 250 + b"/+")


def test_levels_are_bounded() -> None:
    deepest = b"/".join([b"a"] * TOPIC_MAX_LEVELS)
    check_topic_name(deepest)
    check_filter(deepest)
    check_filter(b"$share/g/" + deepest)
    with pytest.raises(PacketError) as name_refused:
        check_topic_name(deepest + b"/a")
    with pytest.raises(PacketError) as filter_refused:
        check_filter(b"$share/g/" + deepest + b"/a")
    assert name_refused.value.reason == Reason.TOPIC_NAME_INVALID
    assert filter_refused.value.reason == Reason.TOPIC_FILTER_INVALID


@pytest.mark.parametrize(
    ("topic_filter", "parts"),
    [
        (b"a/b", (b"", b"a/b")),
        (b"$share", (b"", b"$share")),
        (b"$shared/g/a", (b"", b"$shared/g/a")),
        (b"$share/g/a/b", (b"g", b"a/b")),
        (b"$share/g//", (b"g", b"/")),
    ],
)
def test_split_share(topic_filter: bytes, parts: tuple[bytes, bytes]) -> None:
    assert split_share(topic_filter) == parts


@pytest.mark.parametrize(
    ("topic_filter", "inner"),
    [
        (b"a/+", b"a/+"),
        (b"$SYS/#", b"$SYS/#"),
        (b"$share/g/a/#", b"a/#"),
        (b"$exclusive/a/#", b"a/#"),
        (b"$exclusive", b"$exclusive"),
        (b"$exclusively/a", b"$exclusively/a"),
    ],
)
def test_what_topics_are_held_against(topic_filter: bytes, inner: bytes) -> None:
    check_filter(topic_filter)
    assert matching(topic_filter) == inner


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (b"$SYS/broker/uptime", True),
        (b"$share/g/t", True),
        (b"$exclusive/t", True),
        (b"$delayed/5/t", False),
        (b"$other/t", True),
        (b"$share", True),
        (b"$delayed", True),
        (b"t/$share/g", False),
    ],
)
def test_where_no_client_publishes(topic: bytes, expected: bool) -> None:
    assert is_unpublishable(topic) == expected


def test_what_no_rule_and_no_plugin_takes_messages_for() -> None:
    assert all(is_reserved(topic) for topic in (b"$SYS/x", b"$share/g/t", b"$exclusive/t"))
    assert not any(is_reserved(topic) for topic in (b"$other/t", b"$delayed/5/t", b"t"))


@pytest.mark.parametrize(
    ("said", "prefix"),
    [
        (b"a/b", b""),
        (b"$SYS/x", b""),
        (b"$share/group/a/+", b"$share/group/"),
        (b"$exclusive/#", b"$exclusive/"),
        (b"$delayed/10/a/b", b"$delayed/10/"),
        (b"$share/g/$exclusive/a", b"$share/g/$exclusive/"),
        (b"$delayed/1/$delayed/2/a", b"$delayed/1/$delayed/2/"),
        (b"$share/g/$SYS/#", b"$share/g/"),
        (b"$share/g", b""),
        (b"$share/g/", b""),
        (b"$exclusive/", b""),
        (b"$delayed/5", b""),
        (b"$delayed//a", b"$delayed//"),
    ],
)
def test_what_stands_behind_prefixes(said: bytes, prefix: bytes) -> None:
    assert unwrap(said) == (prefix, said.removeprefix(prefix))


def test_who_wants_a_filter_alone_says_so() -> None:
    assert exclusively(b"a/#") == b"$exclusive/a/#"
    assert matching(exclusively(b"a/#")) == b"a/#"


@pytest.mark.parametrize("topic_filter", [b"$exclusive/", b"$exclusive/$share/g/a", b"$exclusive/$exclusive/a"])
def test_an_exclusive_subscription_needs_a_plain_filter(topic_filter: bytes) -> None:
    with pytest.raises(PacketError) as refused:
        check_filter(topic_filter)
    assert refused.value.reason == Reason.TOPIC_FILTER_INVALID


@given(st.binary(max_size=40))
def test_whatever_the_bytes_only_packet_error_is_raised(topic: bytes) -> None:
    for check in (check_topic_name, check_filter):
        with suppress(PacketError):
            check(topic)
