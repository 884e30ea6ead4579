"""Deals: to whom a QoS 2 message goes of each shared subscription, and its id there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.routing.message_id import is_node_source, number_of, origin_of, session_source, source_of
from flockmq.routing.shared_frames import encoded_deal, find_deal, origin_in

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
