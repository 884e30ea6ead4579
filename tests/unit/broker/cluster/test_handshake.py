from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.cluster.frames import GREETING, FrameReader
from flockmq.cluster.handshake import Dialer, HandshakeError, Identity, Listener, refusal

KEY = b"sixteen bytes key"
CORE = Identity("core-0@00112233aabbccdd", "core")
EDGE = Identity("edge-7@0123456789abcdef", "replicant")


def body(encoded: bytes) -> bytes:
    ((kind, greeting),) = FrameReader(512).feed(encoded)
    assert kind == GREETING
    return greeting


def test_two_that_hold_the_key_know_each_other() -> None:
    dialer, listener = Dialer(KEY, EDGE), Listener(KEY, CORE)
    challenge = listener.receive(body(dialer.hello()))
    proof = dialer.receive(body(challenge))
    assert (dialer.peer, listener.peer) == (None, None)
    answer = listener.receive(body(proof))
    assert listener.peer == EDGE
    assert dialer.receive(body(answer)) == b""
    assert dialer.peer == CORE


def test_a_dialer_with_another_key_learns_nothing_made_with_the_key() -> None:
    dialer, listener = Dialer(b"another key of some length", EDGE), Listener(KEY, CORE)
    proof = dialer.receive(body(listener.receive(body(dialer.hello()))))
    with pytest.raises(HandshakeError, match="cluster's key"):
        listener.receive(body(proof))
    assert listener.peer is None


def test_a_listener_with_another_key_is_not_believed() -> None:
    """It can't check the proof, so it just goes on."""
    impostor = Listener(b"another key of some length", CORE)
    dialer = Dialer(KEY, EDGE)
    dialer.receive(body(impostor.receive(body(dialer.hello()))))
    forged = Dialer(b"another key of some length", EDGE)
    other = Listener(b"another key of some length", CORE)
    answer = other.receive(body(forged.receive(body(other.receive(body(forged.hello()))))))
    with pytest.raises(HandshakeError, match="cluster's key"):
        dialer.receive(body(answer))
    assert dialer.peer is None


def test_a_proof_is_not_taken_back_by_its_maker() -> None:
    """Reflection: a stranger relays the dialer's own proof to it."""
    dialer, listener = Dialer(KEY, EDGE), Listener(KEY, CORE)
    proof = dialer.receive(body(listener.receive(body(dialer.hello()))))
    with pytest.raises(HandshakeError):
        dialer.receive(body(proof))


def test_a_recorded_proof_is_worth_nothing_to_another_listener() -> None:
    dialer, listener = Dialer(KEY, EDGE), Listener(KEY, CORE)
    hello = body(dialer.hello())
    proof = dialer.receive(body(listener.receive(hello)))
    later = Listener(KEY, CORE)
    later.receive(hello)
    with pytest.raises(HandshakeError):
        later.receive(body(proof))


@pytest.mark.parametrize("position", range(0, 110, 3))
def test_no_byte_of_the_greetings_can_be_changed_on_the_way(position: int) -> None:
    dialer, listener = Dialer(KEY, EDGE), Listener(KEY, CORE)
    hello = bytearray(body(dialer.hello()))
    hello[position % len(hello)] ^= 1
    with pytest.raises(HandshakeError):
        listener.receive(body(dialer.receive(body(listener.receive(bytes(hello))))))
    assert listener.peer is None


def test_a_node_that_dials_itself_notices() -> None:
    dialer, listener = Dialer(KEY, CORE), Listener(KEY, CORE)
    with pytest.raises(HandshakeError, match="this node itself"):
        dialer.receive(body(listener.receive(body(dialer.hello()))))
    assert dialer.itself


def test_a_refusal_says_why_and_is_cut_short() -> None:
    with pytest.raises(HandshakeError, match="it refused this node: 'no thanks'"):
        Dialer(KEY, EDGE).receive(body(refusal("no thanks")))


@pytest.mark.parametrize("name", ["", "no-hex", "a b@0123456789abcdef", "a@XYZ", "x" * 300 + "@0123456789abcdef"])
def test_incarnations_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(HandshakeError, match="no role and incarnation"):
        Listener(KEY, CORE).receive(body(Dialer(KEY, Identity(name, "core")).hello()))


@given(st.lists(st.binary(max_size=100), max_size=4))
def test_strangers_get_no_further_than_an_error(greetings: list[bytes]) -> None:
    listener = Listener(KEY, CORE)
    for greeting in greetings:
        with pytest.raises(HandshakeError):
            listener.receive(greeting)
    assert listener.peer is None
