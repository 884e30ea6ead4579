"""A slot knows what it took."""

from __future__ import annotations

from flockmq.delivery.slot_acceptance import Deduplicator, number_bytes
from flockmq.routing.message_id import node_source, session_source

NODE, OTHER = node_source("a@1"), node_source("b@1")


def session(n: int) -> bytes:
    return session_source(b"\xff" + n.to_bytes(7, "big"))


def test_what_is_not_above_the_last_number_of_its_source_is_a_repeat() -> None:
    marks = Deduplicator()
    assert marks.is_new(NODE, 0)
    marks.set(NODE, 5)
    assert [marks.is_new(NODE, n) for n in (4, 5, 6)] == [False, False, True]
    assert marks.is_new(OTHER, 1)
    assert marks.is_new(session(1), 1)


def test_sessions_that_were_not_heard_for_longest_fall_out_nodes_never() -> None:
    marks = Deduplicator(max_sessions=2)
    assert [marks.set(source, 1) for source in (NODE, OTHER, session(1), session(2))] == [b""] * 4
    assert marks.set(session(1), 2) == b""
    assert marks.set(session(3), 1) == session(2)
    assert marks.is_new(session(2), 1)
    assert not marks.is_new(session(1), 2)
    assert not marks.is_new(NODE, 1)
    assert len(marks) == 4


def test_what_is_stored_comes_back_within_the_bound() -> None:
    stored = {NODE: number_bytes(7), **{session(n): number_bytes(2**64 - 1) for n in range(4)}}
    marks = Deduplicator(max_sessions=3)
    surplus = marks.restore(stored)
    assert len(surplus) == 1
    assert not marks.is_new(NODE, 7)
    assert dict(marks.items()) == {s: int.from_bytes(raw, "big") for s, raw in stored.items() if s not in surplus}


def test_a_node_that_is_gone_is_known_until_it_is_forgotten() -> None:
    marks = Deduplicator()
    marks.restore({NODE: number_bytes(7), OTHER: number_bytes(8), session(1): number_bytes(9)})
    assert marks.unknown_nodes({OTHER}) == [NODE]
    assert not marks.is_new(NODE, 7)
    assert marks.forget(NODE)
    assert not marks.forget(NODE)
    assert marks.is_new(NODE, 1)
    assert len(marks) == 2
