"""What clients send: round trips, every rule by its statement, every cut of every packet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.reasoncodes import ReasonCode

from flockmq.bounds import PACKET_MAX_FILTERS
from flockmq.mqtt import decode, encode, frame
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import V5, V31, V311
from flockmq.mqtt.packets import Connect, ConnectWill, SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.wire import binary

VERSIONS = [V31, V311, V5]
NAMES = {V31: b"MQIsdp", V311: b"MQTT", V5: b"MQTT"}
ACKS = [frame.PUBACK, frame.PUBREC, frame.PUBREL, frame.PUBCOMP]

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20).map(str.encode)
ids = st.integers(1, 65_535)


def body(packet: bytes) -> bytes:
    length, start = frame.remaining_length(packet, 1)
    assert length == len(packet) - start
    return packet[start:]


def with_properties() -> Properties:
    made = Properties()
    made.user_properties = [(b"name", b"value")]
    return made


def fields(packet: object) -> dict[str, object]:
    """A packet as plain data, properties and all."""
    found: dict[str, object] = {}
    for name in [name for name in dir(packet) if not name.startswith("_")]:
        value = getattr(packet, name)
        found[name] = fields(value) if isinstance(value, (ConnectWill, Properties, SubscribeEntry)) else value
    return found


@st.composite
def wills(draw: st.DrawFn, version: int) -> ConnectWill:
    own = None
    if version == V5 and draw(st.booleans()):
        own = with_properties()
        own.will_delay_interval = draw(st.integers(0, 2**32 - 1))
    return ConnectWill(draw(texts), draw(st.binary(max_size=30)), draw(st.integers(0, 2)), draw(st.booleans()), own)


@st.composite
def connects(draw: st.DrawFn) -> Connect:
    version = draw(st.sampled_from(VERSIONS))
    user_name = draw(st.none() | texts)
    own = None
    if version == V5 and draw(st.booleans()):
        own = with_properties()
        own.session_expiry_interval = draw(st.integers(0, 2**32 - 1))
    return Connect(
        version,
        draw(texts),
        clean_start=draw(st.booleans()),
        keep_alive_s=draw(st.integers(0, 65_535)),
        will=draw(st.none() | wills(version)),
        user_name=user_name,
        password=draw(st.none() | st.binary(max_size=30)) if user_name is not None or version == V5 else None,
        properties=own,
    )


@given(connects())
def test_connect_is_read_as_it_was_written(packet: Connect) -> None:
    encoded = encode.connect(packet)
    frame.check_flags(encoded[0], 0)
    assert fields(decode.connect(body(encoded))) == fields(packet)
    assert decode.answer_version(body(encoded)) == max(packet.version, V311)


@given(st.sampled_from(VERSIONS), ids, st.lists(st.tuples(texts, st.integers(0, 2)), min_size=1, max_size=5), st.data())
def test_subscribe_is_read_as_it_was_written(
    version: int, packet_id: int, entries: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    more = st.integers(0, 11).map(lambda bits: bits << 2) if version == V5 else st.just(0)
    subscriptions = [SubscribeEntry(b"f" + topic_filter, qos | data.draw(more)) for topic_filter, qos in entries]
    own = with_properties() if version == V5 and data.draw(st.booleans()) else None
    encoded = encode.subscribe(version, packet_id, subscriptions, own)
    frame.check_flags(encoded[0], version)
    packet = decode.subscribe(version, body(encoded))
    assert packet.packet_id == packet_id
    assert [fields(s) for s in packet.subscriptions] == [fields(s) for s in subscriptions]
    assert (packet.properties is None) == (own is None)


def test_subscription_options() -> None:
    options = SubscribeEntry(b"a", 0b0010_1101)
    assert (options.qos, options.no_local, options.retain_as_published, options.retain_handling) == (1, True, True, 2)
    options = SubscribeEntry(b"a", 0b0001_0010)
    assert (options.qos, options.no_local, options.retain_as_published, options.retain_handling) == (2, False, False, 1)


@given(st.sampled_from(VERSIONS), ids, st.lists(texts.map(lambda text: b"f" + text), min_size=1, max_size=5))
def test_unsubscribe_is_read_as_it_was_written(version: int, packet_id: int, filters: list[bytes]) -> None:
    encoded = encode.unsubscribe(version, packet_id, filters, with_properties() if version == V5 else None)
    frame.check_flags(encoded[0], version)
    packet = decode.unsubscribe(version, body(encoded))
    assert (packet.packet_id, packet.filters) == (packet_id, filters)


@pytest.mark.parametrize("packet_type", ACKS)
@given(ids, st.booleans())
def test_acks_are_read_in_every_form(packet_type: int, packet_id: int, properties: bool) -> None:
    for version in VERSIONS:
        assert decode.ack(packet_type, version, body(encode.pub_ack(packet_type, version, packet_id))) == (packet_id, 0)
    reason = Reason.PACKET_IDENTIFIER_NOT_FOUND if packet_type >= frame.PUBREL else Reason.QUOTA_EXCEEDED
    encoded = encode.pub_ack(packet_type, V5, packet_id, reason, with_properties() if properties else None)
    frame.check_flags(encoded[0], V5)
    assert decode.ack(packet_type, V5, body(encoded)) == (packet_id, reason)


@pytest.mark.parametrize("packet_type", ACKS)
def test_acks_take_the_reasons_of_the_specification_alone(packet_type: int) -> None:
    allowed = {
        code
        for code, names in ReasonCode(packet_type, "Success").names.items()
        if any(packet_type in packets for packets in names.values())
    }
    statement = f"MQTT-3.{packet_type}.2-1"
    for reason in range(256):
        if reason in allowed:
            assert decode.ack(packet_type, V5, bytes([0, 1, reason])) == (1, reason)
        else:
            with pytest.raises(PacketError) as refused:
                decode.ack(packet_type, V5, bytes([0, 1, reason]))
            assert (refused.value.reason, refused.value.statement) == (Reason.PROTOCOL_ERROR, statement)


def test_disconnect_in_every_form() -> None:
    for version in VERSIONS:
        assert decode.disconnect(version, b"").reason == 0
    assert decode.disconnect(V5, b"\x04").reason == Reason.DISCONNECT_WITH_WILL
    made = Properties()
    made.session_expiry_interval = 60
    packet = decode.disconnect(V5, body(encode.disconnect(V5, 0, made)))
    assert packet.reason == 0
    assert packet.properties is not None
    assert packet.properties.session_expiry_interval == 60


def test_auth_continues_an_exchange() -> None:
    made = Properties()
    made.authentication_method, made.authentication_data = b"SCRAM-SHA-256", b"\0\xff"
    packet = decode.auth(body(encode.auth(Reason.CONTINUE_AUTHENTICATION, made)))
    assert packet.reason == Reason.CONTINUE_AUTHENTICATION
    assert packet.properties is not None
    assert (packet.properties.authentication_method, packet.properties.authentication_data) == (
        b"SCRAM-SHA-256",
        b"\0\xff",
    )


def test_publish_properties_are_read_in_place() -> None:
    assert decode.publish_properties(b"xx\0payload", 2, 10) == (None, 3)
    properties, start = decode.publish_properties(b"xx\x05\x02\0\0\0\x09payload", 2, 15)
    assert properties is not None
    assert (properties.message_expiry_interval, start) == (9, 8)


@pytest.mark.parametrize("data", [b"xx\x05\x02\0\0\0\x09payload", b"xx\x80"])
def test_publish_properties_end_where_the_packet_ends(data: bytes) -> None:
    for end in range(2, min(len(data), 8)):
        with pytest.raises(PacketError):
            decode.publish_properties(data, 2, end)


def test_version_3_1_may_leave_out_user_name_and_password_that_its_flags_promise() -> None:
    packet = decode.connect(binary(b"MQIsdp") + b"\x03\xc2\0\x3c" + binary(b"id"))
    assert (packet.client_id, packet.user_name, packet.password) == (b"id", None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_client_id_asks_for_one_where_that_is_allowed(version: int) -> None:
    encoded = body(encode.connect(Connect(version, b"", clean_start=True)))
    if version == V31:
        with pytest.raises(PacketError):
            decode.connect(encoded)
    else:
        assert decode.connect(encoded).client_id == b""


def head(version: int, flags: int, name: bytes | None = None) -> bytes:
    return binary(NAMES[version] if name is None else name) + bytes([version, flags]) + b"\0\x3c"


MALFORMED, PROTOCOL = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR
CONNECT_ERRORS = [
    ("MQTT-3.1.2-1", Reason.UNSUPPORTED_PROTOCOL_VERSION, binary(b"MQTX") + b"\x05\x02\0\0\0" + binary(b"id")),
    ("MQTT-3.1.2-1", Reason.UNSUPPORTED_PROTOCOL_VERSION, binary(b"") + b"\x04\x02\0\0" + binary(b"id")),
    ("MQTT-3.1.2-2", Reason.UNSUPPORTED_PROTOCOL_VERSION, binary(b"MQTT") + b"\x06\x02\0\0\0" + binary(b"id")),
    ("MQTT-3.1.2-2", Reason.UNSUPPORTED_PROTOCOL_VERSION, binary(b"MQTT") + b"\x03\x02\0\0" + binary(b"id")),
    ("MQTT-3.1.2-2", Reason.UNSUPPORTED_PROTOCOL_VERSION, binary(b"MQIsdp") + b"\x04\x02\0\0" + binary(b"id")),
    ("MQTT-3.1.2-3", MALFORMED, head(V311, 0x03) + binary(b"id")),
    ("MQTT-3.1.2-3", MALFORMED, head(V5, 0x03) + b"\0" + binary(b"id")),
    ("MQTT-3.1.2-11", MALFORMED, head(V311, 0x0A) + binary(b"id")),
    ("MQTT-3.1.2-11", MALFORMED, head(V5, 0x12) + b"\0" + binary(b"id")),
    ("MQTT-3.1.2-12", MALFORMED, head(V5, 0x1E) + b"\0" + binary(b"id") + b"\0" + binary(b"t") + binary(b"")),
    ("MQTT-3.1.2-12", MALFORMED, head(V31, 0x1E) + binary(b"id") + binary(b"t") + binary(b"")),
    ("MQTT-3.1.2-13", MALFORMED, head(V5, 0x22) + b"\0" + binary(b"id")),
    ("MQTT-3.1.2-22", MALFORMED, head(V311, 0x42) + binary(b"id") + binary(b"secret")),
    ("MQTT-3.1.3-8", Reason.CLIENT_IDENTIFIER_NOT_VALID, head(V311, 0x00) + binary(b"")),
    ("MQTT-1.5.4-1", MALFORMED, head(V311, 0x02) + binary(b"\xff")),
    ("MQTT-1.5.4-2", MALFORMED, head(V311, 0x02) + binary(b"a\0")),
    ("MQTT-1.5.4-1", MALFORMED, head(V311, 0x82) + binary(b"id") + binary(b"\xc0\x80")),
    ("MQTT-4.7.0-1", MALFORMED, head(V311, 0x06) + binary(b"id") + binary(b"a/+") + binary(b"")),
    ("MQTT-4.7.3-1", MALFORMED, head(V311, 0x06) + binary(b"id") + binary(b"") + binary(b"")),
    ("section 3.1.2.11.10", PROTOCOL, head(V5, 0x02) + b"\x04\x16" + binary(b"x") + binary(b"id")),
    (
        "section 2.2.2.2",
        MALFORMED,
        head(V5, 0x06) + b"\0" + binary(b"id") + b"\x05\x11\0\0\0\0" + binary(b"t") + b"\0\0",
    ),
    ("MQTT-4.13.1-1", MALFORMED, head(V5, 0x02) + b"\0" + binary(b"id") + b"\0"),
]
SUBSCRIBE_ERRORS = [
    (V311, "MQTT-2.2.1-3", MALFORMED, b"\0\0" + binary(b"a") + b"\0"),
    (V5, "MQTT-2.2.1-3", MALFORMED, b"\0\0\0" + binary(b"a") + b"\0"),
    (V311, "MQTT-3.8.3-2", PROTOCOL, b"\0\1"),
    (V5, "MQTT-3.8.3-2", PROTOCOL, b"\0\1\0"),
    (V311, "MQTT-3-8.3-4", MALFORMED, b"\0\1" + binary(b"a") + b"\x03"),
    (V311, "MQTT-3-8.3-4", MALFORMED, b"\0\1" + binary(b"a") + b"\x04"),
    (V5, "MQTT-3.8.3-5", MALFORMED, b"\0\1\0" + binary(b"a") + b"\x40"),
    (V5, "MQTT-3.8.3-5", MALFORMED, b"\0\1\0" + binary(b"a") + b"\x80"),
    (V5, "section 3.8.3.1", PROTOCOL, b"\0\1\0" + binary(b"a") + b"\x03"),
    (V5, "section 3.8.3.1", PROTOCOL, b"\0\1\0" + binary(b"a") + b"\x30"),
    (V5, "MQTT-3.8.3-4", PROTOCOL, b"\0\1\0" + binary(b"$share/g/a") + b"\x04"),
    (V5, "MQTT-4.8.2-1", MALFORMED, b"\0\1\0" + binary(b"$share//a") + b"\0"),
    (V311, "MQTT-4.8.2-2", MALFORMED, b"\0\1" + binary(b"$share/g") + b"\0"),
    (V311, "MQTT-4.7.1-1", MALFORMED, b"\0\1" + binary(b"a/#/b") + b"\0"),
    (V311, "MQTT-4.7.3-1", MALFORMED, b"\0\1" + binary(b"") + b"\0"),
    (V311, "MQTT-1.5.4-2", MALFORMED, b"\0\1" + binary(b"\0") + b"\0"),
    (V311, "MQTT-4.13.1-1", MALFORMED, b"\0\1" + binary(b"a")),
    (V5, "section 2.2.2.2", MALFORMED, b"\0\1\x03\x23\0\1" + binary(b"a") + b"\0"),
]
UNSUBSCRIBE_ERRORS = [
    (V311, "MQTT-2.2.1-3", MALFORMED, b"\0\0" + binary(b"a")),
    (V311, "MQTT-3.10.3-2", PROTOCOL, b"\0\1"),
    (V5, "MQTT-3.10.3-2", PROTOCOL, b"\0\1\0"),
    (V5, "MQTT-4.7.1-2", MALFORMED, b"\0\1\0" + binary(b"a+")),
    (V311, "MQTT-1.5.4-1", MALFORMED, b"\0\1" + binary(b"\xff")),
]
OTHER_ERRORS: list[tuple[str, Reason, Callable[[], object]]] = [
    ("MQTT-2.2.1-3", MALFORMED, lambda: decode.ack(frame.PUBACK, V311, b"\0\0")),
    ("MQTT-4.13.1-1", MALFORMED, lambda: decode.ack(frame.PUBACK, V311, b"\0\1\0")),
    ("MQTT-4.13.1-1", MALFORMED, lambda: decode.ack(frame.PUBREL, V5, b"\0\1\0\0\0")),
    ("section 2.2.2.2", MALFORMED, lambda: decode.ack(frame.PUBREC, V5, b"\0\1\0\x02\x01\x01")),
    ("MQTT-4.13.1-1", MALFORMED, lambda: decode.disconnect(V311, b"\0")),
    ("MQTT-3.14.2-1", PROTOCOL, lambda: decode.disconnect(V5, b"\x8e")),
    ("section 2.2.2.2", MALFORMED, lambda: decode.disconnect(V5, b"\0\x03\x21\0\1")),
    ("section 3.14.2.2.5", PROTOCOL, lambda: decode.disconnect(V5, b"\0\x04\x1c\0\x01a")),
    ("MQTT-3.15.2-1", PROTOCOL, lambda: decode.auth(b"\x00\x00")),
    ("section 3.15.2.2.2", PROTOCOL, lambda: decode.auth(b"\x18\x00")),
    ("section 3.15.2.2.2", PROTOCOL, lambda: decode.auth(b"")),
    ("MQTT-4.13.1-1", MALFORMED, lambda: decode.pingreq(b"\0")),
]


def refusal(statement: str, reason: Reason, read: Callable[[], object]) -> None:
    with pytest.raises(PacketError) as refused:
        read()
    assert (refused.value.statement, refused.value.reason) == (statement, reason)
    assert statement in str(refused.value)


@pytest.mark.parametrize(("statement", "reason", "data"), CONNECT_ERRORS)
def test_bad_connect(statement: str, reason: Reason, data: bytes) -> None:
    refusal(statement, reason, lambda: decode.connect(data))


@pytest.mark.parametrize(("version", "statement", "reason", "data"), SUBSCRIBE_ERRORS)
def test_bad_subscribe(version: int, statement: str, reason: Reason, data: bytes) -> None:
    refusal(statement, reason, lambda: decode.subscribe(version, data))


@pytest.mark.parametrize(("version", "statement", "reason", "data"), UNSUBSCRIBE_ERRORS)
def test_bad_unsubscribe(version: int, statement: str, reason: Reason, data: bytes) -> None:
    refusal(statement, reason, lambda: decode.unsubscribe(version, data))


@pytest.mark.parametrize(("statement", "reason", "read"), OTHER_ERRORS)
def test_other_bad_packets(statement: str, reason: Reason, read: Callable[[], object]) -> None:
    refusal(statement, reason, read)


def test_filters_in_one_packet_are_bounded() -> None:
    most = [b"f"] * PACKET_MAX_FILTERS
    assert len(decode.unsubscribe(V311, body(encode.unsubscribe(V311, 1, most))).filters) == PACKET_MAX_FILTERS
    one_more = body(encode.unsubscribe(V311, 1, [*most, b"f"]))
    refusal("MQTT-3.10.3-1", Reason.QUOTA_EXCEEDED, lambda: decode.unsubscribe(V311, one_more))


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"", V311),
        (b"\0", V311),
        (b"\0\4MQTT", V311),
        (b"\0\4MQTT\x09", V5),
        (b"\0\4MQTT\1", V311),
        (b"\xff\xff\5", V311),
    ],
)
def test_a_refusal_is_written_in_a_version_the_client_may_know(data: bytes, version: int) -> None:
    assert decode.answer_version(data) == version


def samples() -> dict[str, tuple[bytes, Callable[[bytes], object]]]:
    own = with_properties()
    auth = with_properties()
    auth.authentication_method = b"m"
    will = ConnectWill(b"will/topic", b"gone", 1, True, None)
    found: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
        "disconnect 5": (encode.disconnect(V5, 0x04, own), partial(decode.disconnect, V5)),
        "auth": (encode.auth(0x18, auth), decode.auth),
    }
    for version in VERSIONS:
        mine = own if version == V5 else None
        connect = Connect(version, b"id", will=will, user_name=b"u", password=b"p", properties=mine)
        two = [SubscribeEntry(b"a/+", 1), SubscribeEntry(b"b/#", 2)]
        found[f"connect {version}"] = (encode.connect(connect), decode.connect)
        found[f"subscribe {version}"] = (
            encode.subscribe(version, 7, two, mine),
            partial(decode.subscribe, version),
        )
        found[f"unsubscribe {version}"] = (
            encode.unsubscribe(version, 7, [b"a/+", b"b"], mine),
            partial(decode.unsubscribe, version),
        )
        found[f"puback {version}"] = (
            encode.pub_ack(frame.PUBACK, version, 7, 0, mine),
            partial(decode.ack, frame.PUBACK, version),
        )
    return found


# Cuts that leave a whole packet behind: fields at the end that may be left out.
SHORT_FORMS = {
    "connect 3": {-3, -6},  # MQTT 3.1 may leave out password and user name
    "subscribe 3": {-6},
    "subscribe 4": {-6},
    "subscribe 5": {-6},
    "unsubscribe 3": {-3},
    "unsubscribe 4": {-3},
    "unsubscribe 5": {-3},
    "puback 5": {2, 3},
    "disconnect 5": {0, 1},
}


@pytest.mark.parametrize("name", samples())
def test_every_cut_of_a_packet_is_refused_or_is_a_shorter_packet(name: str) -> None:
    packet, read = samples()[name]
    for cut in range(1, len(packet)):
        length, start = frame.remaining_length(packet[:cut], 1)
        assert length == frame.INCOMPLETE or start + length > cut  # the frame says that more is to come
    whole = body(packet)
    read(whole)
    short = {cut % len(whole) if cut < 0 else cut for cut in SHORT_FORMS.get(name, set())}
    for cut in range(len(whole)):
        if cut in short:
            read(whole[:cut])
        else:
            with pytest.raises(PacketError):
                read(whole[:cut])


@pytest.mark.parametrize("name", samples())
def test_a_byte_too_many_is_refused(name: str) -> None:
    packet, read = samples()[name]
    with pytest.raises(PacketError):
        read(body(packet) + b"\0")


@pytest.mark.parametrize("name", samples())
@given(data=st.data())
def test_whatever_byte_is_changed_only_packet_error_is_raised(name: str, data: st.DataObject) -> None:
    packet, read = samples()[name]
    changed = bytearray(body(packet))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(PacketError):
        read(bytes(changed))
