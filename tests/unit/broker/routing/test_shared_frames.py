"""Deals: to whom a QoS 2 message goes of each shared subscription, and its id there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.mqtt import encode
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.properties import subscription_identifier
from flockmq.routing.message_id import is_node_source, number_of, origin_of, session_source, source_of
from flockmq.routing.shared_frames import encoded_deal, find_deal, origin_in, unwrap, without_identifiers, wrap

SESSION = session_source(b"12345678")
FILTERS = st.binary(min_size=1, max_size=40)


@given(named=st.dictionaries(FILTERS, st.tuples(st.text(max_size=300), st.integers(0, 2**32 - 1))), other=FILTERS)
def test_of_each_group_it_is_known_who_gets_it(named: dict[bytes, tuple[str, int]], other: bytes) -> None:
    chunk = b"".join(encoded_deal(share_filter, *whom) for share_filter, whom in named.items())
    for share_filter, (owner, number) in named.items():
        deal = find_deal(chunk, share_filter)
        assert deal is not None
        assert (deal.owner, deal.number) == (owner, number)
    assert (find_deal(chunk, other) is None) == (other not in named)


def test_in_each_group_a_message_has_another_source_and_the_same_number() -> None:
    ids = [
        origin_in(origin_of(SESSION, number), group) for group in (b"$share/g/t", b"$share/h/t") for number in (7, 8)
    ]
    assert [number_of(name) for name in ids] == [7, 8, 7, 8]
    assert source_of(ids[0]) == source_of(ids[1]) != source_of(ids[2]) == source_of(ids[3])
    assert SESSION not in {source_of(name) for name in ids}
    assert not any(is_node_source(source_of(name)) for name in ids), "a slot keeps marks of nodes for longer"


@given(st.binary(min_size=1, max_size=20), st.integers(0, 2**32 - 1), st.integers(0, 3), st.binary(max_size=20))
def test_items_are_read_as_they_were_written(name: bytes, number: int, flags: int, packets: bytes) -> None:
    chunk = wrap(name, number, flags, packets)
    items = unwrap(chunk * 2)
    assert [(item.filter, item.number, item.flags, item.run) for item in items] == [(name, number, flags, packets)] * 2
    for cut in range(1, len(chunk)):
        with pytest.raises(PacketError):
            unwrap(chunk[:cut])


@given(st.lists(st.integers(1, 268_435_455), max_size=3), st.sampled_from([1, 2]), st.binary(max_size=200))
def test_identifiers_are_taken_out_of_a_packet(identifiers: list[int], qos: int, payload: bytes) -> None:
    rest = b"\x01\x01"
    plain = encode.publish(5, b"t", payload, qos=qos, packet_id=5, encoded_properties=rest)
    session_proxy = b"".join(map(subscription_identifier, identifiers))
    packet = encode.publish(5, b"t", payload, qos=qos, packet_id=5, encoded_properties=session_proxy + rest)
    assert without_identifiers(packet) == plain
