"""Data representation and packet format (sections 1.5 and 2), topics and filters (section 4.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    CONTENT_TYPE,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    RESPONSE_TOPIC,
    SUBACK,
    USER_PROPERTY,
    V5,
    V311,
    acknowledgement,
    packet,
    payloads,
    publish,
    subscribe,
    text,
    unsubscribe,
)

Topic = Callable[[str], str]
BOM = "\ufeff"


def is_refused(client: Clients, version: int, sent: bytes, reason: int = 0x81) -> None:
    wire = client("refused", version)
    wire.send(sent)
    wire.refused(reason)


@statement("MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-3.3.2-1", "MQTT-4.7.3-2", version=5)
@statement("MQTT-1.5.3-1", "MQTT-1.5.3-2", "MQTT-3.3.2-1", "MQTT-4.7.3-2", "MQTT-4.8.0-1", version=311)
@pytest.mark.parametrize("bad", [b"a\xed\xa0\x80", b"\xc0\xaf", b"a\xff", b"a\0"], ids=["d800", "long", "ff", "nul"])
def test_topic_names_are_checked(client: Clients, version: int, bad: bytes) -> None:
    is_refused(client, version, publish(version, bad))


@statement("MQTT-3.8.3-1", "MQTT-4.7.3-2", version=5)
@statement("MQTT-3.8.3-1", "MQTT-4.7.3-2", version=311)
@pytest.mark.parametrize("bad", [b"a\xed\xbf\xbf", b"\xff", b"a\0b"], ids=["dfff", "ff", "nul"])
def test_filters_of_subscribe_are_checked(client: Clients, version: int, bad: bytes) -> None:
    is_refused(client, version, subscribe(version, 1, ("ok", 0), (bad, 0)))


@statement("MQTT-3.10.3-1", version=5)
@statement("MQTT-3.10.3-1", version=311)
def test_filters_of_unsubscribe_are_checked(client: Clients, version: int) -> None:
    is_refused(client, version, unsubscribe(version, 1, b"a\xff"))


@statement("MQTT-1.5.4-3", version=5)
@statement("MQTT-1.5.3-3", version=311)
def test_a_byte_order_mark_is_a_character_like_others(client: Clients, topic: Topic, version: int) -> None:
    wire = client("bom", version)
    wire.subscribe((topic(f"{BOM}x/+"), 0))
    wire.publish(topic(f"{BOM}x/{BOM}"), b"marked")
    wire.publish(topic("x/y"), b"unmarked")
    (message,) = wire.pending()
    assert (message.topic.decode(), message.payload) == (topic(f"{BOM}x/{BOM}"), b"marked")


@statement("MQTT-1.5.5-1", version=5)
@pytest.mark.parametrize(
    "sent",
    [
        b"\xc0\x80\x00",
        b"\x30\x86\x00" + text("a") + b"\0" + b"xx",
        b"\x30" + bytes((7,)) + text("ab") + b"\x80\x00" + b"x",
        b"\x82\x88\x80\x00\x00\x01\x00" + text("a") + b"\0",
        b"\x30\x80\x80\x80\x80\x01",
        b"\x30\xff\xff\xff\xff",
    ],
    ids=["ping", "publish", "property-length", "subscribe", "five-bytes", "all-ff"],
)
def test_integers_longer_than_they_need_are_refused(client: Clients, version: int, sent: bytes) -> None:
    is_refused(client, version, sent)


@statement("MQTT-1.5.7-1", version=5)
@pytest.mark.parametrize(
    "pair", [(b"\xff", b"v"), (b"n", b"\xed\xa0\x80"), (b"n", b"\0")], ids=["name", "value", "nul"]
)
def test_both_halves_of_a_user_property_are_checked(client: Clients, version: int, pair: tuple[bytes, bytes]) -> None:
    is_refused(client, version, publish(version, "a", properties=[(USER_PROPERTY, pair)]))


@statement("MQTT-3.3.2-13", "MQTT-3.3.2-19", version=5)
@pytest.mark.parametrize("identifier", [RESPONSE_TOPIC, CONTENT_TYPE])
def test_strings_among_the_properties_are_checked(client: Clients, version: int, identifier: int) -> None:
    is_refused(client, version, publish(version, "a", properties=[(identifier, b"a\xff")]))


@statement("MQTT-3.3.2-14", version=5)
@pytest.mark.parametrize("bad", [b"a/#", b"+", b"a+b"])
def test_a_response_topic_has_no_wildcard(client: Clients, version: int, bad: bytes) -> None:
    wire = client("refused", version)
    wire.send(publish(version, "a", properties=[(RESPONSE_TOPIC, bad)]))
    assert wire.expect(DISCONNECT).reason in (0x81, 0x82)
    assert wire.next() is None


@statement("MQTT-2.1.3-1", version=5)
@statement("MQTT-2.2.2-1", "MQTT-2.2.2-2", version=311)
@pytest.mark.parametrize("first", [0x41, 0x58, 0x72, 0xC1, 0xC8, 0x00, 0x0F], ids=hex)
def test_reserved_flags_and_types_are_refused(client: Clients, version: int, first: int) -> None:
    body = b"" if first >= 0xC0 or first < 0x10 else b"\0\1"
    is_refused(client, version, packet(first, body))


@statement("MQTT-3.6.1-1", "MQTT-3.8.1-1", "MQTT-3.10.1-1", "MQTT-3.14.1-1", version=5)
@statement("MQTT-3.6.1-1", "MQTT-3.8.1-1", "MQTT-3.10.1-1", "MQTT-3.14.1-1", version=311)
@pytest.mark.parametrize("kind", ["pubrel", "subscribe", "unsubscribe", "disconnect"])
@pytest.mark.parametrize("flags", [0, 1, 3, 6, 10, 15])
def test_each_packets_own_flags_are_checked(client: Clients, version: int, kind: str, flags: int) -> None:
    sent = {
        "pubrel": acknowledgement(6, 1),
        "subscribe": subscribe(version, 1, ("a", 0)),
        "unsubscribe": unsubscribe(version, 1, "a"),
        "disconnect": b"\xe0\x00",
    }[kind]
    if kind == "disconnect" and flags == 0:
        flags = 2
    is_refused(client, version, bytes((sent[0] & 0xF0 | flags,)) + sent[1:])


@statement("MQTT-3.15.1-1", version=5)
@pytest.mark.parametrize("first", [0xF1, 0xF2, 0xF8], ids=hex)
def test_flags_of_auth_are_checked(client: Clients, version: int, first: int) -> None:
    is_refused(client, version, packet(first, b"\x18\0"))


@statement("MQTT-2.2.1-3", version=5)
@statement("MQTT-2.3.1-1", version=311)
@pytest.mark.parametrize(
    "kind", ["publish-1", "publish-2", "subscribe", "unsubscribe", "puback", "pubrec", "pubrel", "pubcomp"]
)
def test_packet_identifier_0_is_refused(client: Clients, version: int, kind: str) -> None:
    wire = client("refused", version)
    wire.send(
        {
            "publish-1": publish(version, "a", qos=1, packet_id=0),
            "publish-2": publish(version, "a", qos=2, packet_id=0),
            "subscribe": subscribe(version, 0, ("a", 0)),
            "unsubscribe": unsubscribe(version, 0, "a"),
            "puback": acknowledgement(PUBACK, 0),
            "pubrec": acknowledgement(PUBREC, 0),
            "pubrel": acknowledgement(PUBREL, 0),
            "pubcomp": acknowledgement(PUBCOMP, 0),
        }[kind]
    )
    wire.refused(0x81)


@statement("MQTT-2.2.1-2", version=5)
@statement("MQTT-2.3.1-5", version=311)
def test_a_qos_0_publish_has_no_packet_identifier(client: Clients, topic: Topic, version: int) -> None:
    """What would be one is the beginning of the payload (3.1.1), or of the properties, both ways."""
    wire = client("c", version)
    wire.subscribe((topic("a"), 2))
    wire.send(publish(version, topic("a"), b"\x00\x07payload"))
    message = wire.expect(PUBLISH)
    assert (message.qos, message.packet_id, message.payload) == (0, 0, b"\x00\x07payload")


@statement("MQTT-2.2.2-1", version=5)
def test_no_properties_are_a_length_of_0(client: Clients, topic: Topic, version: int) -> None:
    """The reader of these tests takes no packet apart that has no Property Length where it must have one."""
    wire = client("c", version)
    wire.subscribe((topic("a"), 1))
    wire.send(publish(version, topic("a"), b"x", qos=1, packet_id=1))
    for answer in (wire.next(), wire.next()):
        assert answer is not None
        assert answer.properties == []


@statement("MQTT-3.3.2-2", "MQTT-4.7.0-1", version=5)
@statement("MQTT-3.3.2-2", "MQTT-4.7.1-1", version=311)
@pytest.mark.parametrize("bad", ["#", "+", "a/+/b", "a/#", "a+", "#b"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_topic_name_with_a_wildcard_is_refused(client: Clients, version: int, bad: str, qos: int) -> None:
    wire = client("refused", version)
    wire.send(publish(version, bad, qos=qos, packet_id=1 if qos else None))
    if version == V5:
        assert wire.expect(DISCONNECT).reason in (0x81, 0x90)
    assert wire.next() is None


@statement("MQTT-4.7.1-1", "MQTT-4.7.1-2", version=5)
@statement("MQTT-4.7.1-2", "MQTT-4.7.1-3", version=311)
@pytest.mark.parametrize("bad", ["a#", "#/a", "a/#/b", "a/b#", "a+", "a/+b", "+a/b", "++"])
def test_a_misplaced_wildcard_is_refused(client: Clients, version: int, bad: str) -> None:
    wire = client("refused", version)
    wire.send(subscribe(version, 1, (bad, 0)))
    if version == V5:
        assert wire.expect(DISCONNECT).reason in (0x81, 0x8F)
    assert wire.next() is None


@statement("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-3.3.2-3", version=5)
@statement("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-3.3.2-3", "MQTT-3.8.3-2", version=311)
@pytest.mark.parametrize(
    ("filter", "matching", "others"),
    [
        ("a/#", ["a", "a/", "a/b", "a/b/c"], ["ab", "b/a"]),
        ("a/+", ["a/", "a/b"], ["a", "a/b/c"]),
        ("+/b", ["/b", "a/b"], ["b", "a/b/"]),
        ("a/+/c/#", ["a/b/c", "a//c/d", "a/b/c/d/e"], ["a/c", "a/b/d"]),
        ("a//b", ["a//b"], ["a/b", "a/x/b"]),
        ("a/", ["a/"], ["a"]),
    ],
    ids=["hash", "plus", "first-plus", "both", "empty-level", "trailing"],
)
def test_filters_match_as_section_4_7_says(
    client: Clients, topic: Topic, version: int, filter: str, matching: list[str], others: list[str]
) -> None:
    wire = client("c", version)
    wire.subscribe((topic(filter), 0))
    for name in [*matching, *others]:
        wire.send(publish(version, topic(name), name.encode()))
    assert payloads(wire.pending()) == [name.encode() for name in matching]


@statement("MQTT-4.7.2-1", version=5)
@statement("MQTT-4.7.2-1", version=311)
@pytest.mark.parametrize("filter", ["#", "+/{}", "+/#"], ids=["hash", "plus", "plus-hash"])
def test_leading_wildcards_leave_dollar_topics_alone(client: Clients, topic: Topic, version: int, filter: str) -> None:
    name = topic("x")
    wire = client("c", version)
    wire.subscribe((filter.format(name), 0))
    wire.send(publish(version, f"$internal/{name}", b"no"), publish(version, f"plain/{name}", b"yes"))
    assert [m.payload for m in wire.pending() if m.topic.endswith(name.encode())] == [b"yes"]


@statement("MQTT-4.7.3-1", version=5)
@statement("MQTT-4.7.3-1", version=311)
@pytest.mark.parametrize("kind", ["publish", "subscribe", "unsubscribe"])
def test_empty_topics_and_filters_are_refused(client: Clients, version: int, kind: str) -> None:
    wire = client("refused", version)
    wire.send(
        {
            "publish": publish(version, ""),
            "subscribe": subscribe(version, 1, ("", 0)),
            "unsubscribe": unsubscribe(version, 1, ""),
        }[kind]
    )
    if version == V5:
        assert wire.expect(DISCONNECT).reason in (0x81, 0x82, 0x8F, 0x90)
    assert wire.next() is None


@statement("MQTT-4.7.3-3", version=5)
@statement("MQTT-4.7.3-3", version=311)
def test_a_topic_of_65535_bytes_is_taken(client: Clients, topic: Topic, version: int) -> None:
    """A longer one can't be written: its length has two bytes."""
    name = topic("x" * 65_535)[:65_535]
    wire = client("c", version)
    wire.subscribe((name, 1))
    wire.send(publish(version, name, b"long", qos=1, packet_id=1))
    kinds = {}
    for _ in range(2):
        found = wire.next()
        assert found is not None
        kinds[found.kind] = found
    assert kinds[PUBLISH].topic == name.encode()
    assert kinds[PUBACK].reason == 0


@statement("MQTT-4.7.3-4", version=5)
@statement("MQTT-4.7.3-4", version=311)
def test_matching_normalizes_nothing(client: Clients, topic: Topic, version: int) -> None:
    wire = client("c", version)
    wire.subscribe((topic("\u00e9"), 0), (topic("Case"), 0), (topic("a b"), 0))
    for name in ("e\u0301", "case", "CASE", "a%20b", "a  b", "a b "):
        wire.send(publish(version, topic(name), b"no"))
    for name in ("\u00e9", "Case", "a b"):
        wire.send(publish(version, topic(name), b"yes"))
    assert payloads(wire.pending()) == [b"yes"] * 3


@statement("MQTT-4.8.0-1", version=311)
@statement("MQTT-4.13.1-1", version=5)
@pytest.mark.parametrize(
    "sent",
    [
        packet(0x30, b"\0\5a"),
        packet(0x32, text("a")),
        packet(0x40, b"\0"),
        packet(0x82, b"\0"),
        packet(0x82, b"\0\1\0\1"),
        packet(0x10, b""),
        packet(0x20, b"\0\0"),
        packet(0x90, b"\0\1\0"),
        packet(0xB0, b"\0\1"),
        packet(0xD0),
        packet(0xC0, b"x"),
    ],
    ids=[
        *("publish-topic", "publish-id", "puback", "subscribe-id", "subscribe-filter", "connect"),
        *("connack", "suback", "unsuback", "pingresp", "pingreq-body"),
    ],
)
def test_packets_that_are_cut_overlong_or_a_servers_are_refused(client: Clients, version: int, sent: bytes) -> None:
    wire = client("refused", version)
    wire.send(sent)
    if version == V5:
        assert wire.expect(DISCONNECT).reason in (0x81, 0x82)
    assert wire.next() is None


@statement("MQTT-4.13.1-1", version=5)
@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"\x02\x01\x00\x01\x00", 0x82),
        (b"\x01\x02", 0x82),
        (b"\x11\0\0\0\1", 0x81),
        (b"\x7f\x00", 0x81),
        (b"\x80\x01\x00", 0x81),
        (b"\x02\0\0", 0x81),
    ],
    ids=["twice", "out-of-range", "of-connect", "unknown", "unknown-long", "cut"],
)
def test_properties_that_do_not_belong_are_refused(client: Clients, version: int, block: bytes, reason: int) -> None:
    """The first is the Payload Format Indicator twice; the second has the value 2."""
    if reason == 0x82 and block[0] == 2:
        block = b"\x01\x00\x01\x00"
    wire = client("refused", version)
    wire.send(packet(0x30, text("a"), bytes((len(block),)), block))
    found = wire.expect(DISCONNECT).reason
    assert found == reason or (found in (0x81, 0x82) and block[0] in (0x11, 0x7F, 0x80))
    assert wire.next() is None


@statement("MQTT-4.8.0-2", version=311)
@statement("MQTT-3.2.2-15", version=5)
def test_a_packet_above_the_maximum_size_ends_the_connection(client: Clients, version: int) -> None:
    wire = client("large", version)
    wire.send(b"\x30\xff\xff\xff\x7f")
    wire.refused(0x95)


@statement("MQTT-3.12.4-1", version=5)
@statement("MQTT-3.12.4-1", version=311)
def test_pingreq_is_answered(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.quiet()
    wire.quiet()


@statement("MQTT-2.2.1-6", version=5)
@statement("MQTT-2.3.1-7", version=311)
def test_suback_and_unsuback_have_the_identifier_of_what_they_answer(
    client: Clients, topic: Topic, version: int
) -> None:
    wire = client("c", version)
    for packet_id in (1, 255, 256, 65_535):
        wire.send(subscribe(version, packet_id, (topic("a"), 0)))
        assert wire.expect(SUBACK).packet_id == packet_id
        wire.send(unsubscribe(version, packet_id, topic("a")))
        assert wire.expect(11).packet_id == packet_id


@statement("MQTT-2.2.2-2", version=311)
def test_dup_at_qos_0_is_refused(client: Clients, version: int) -> None:
    is_refused(client, V311, publish(version, "a", dup=True))
