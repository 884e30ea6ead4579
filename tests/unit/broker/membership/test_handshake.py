from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.membership.cluster_version import NEWEST, ClusterVersion
from flockmq.membership.frames import GREETING, FrameReader
from flockmq.membership.handshake import HandshakeDialer, HandshakeError, HandshakeListener, Identity, refusal

KEY = b"sixteen bytes key"
CORE = Identity("core-0@00112233aabbccdd", "core")
REPLICANT = Identity("replicant-7@0123456789abcdef", "replicant")


def body(encoded: bytes) -> bytes:
    ((kind, greeting),) = FrameReader(512).feed(encoded)
    assert kind == GREETING
    return greeting


def test_two_that_hold_the_key_know_each_other() -> None:
    dialer, listener = (
        HandshakeDialer(KEY, REPLICANT, ClusterVersion()),
        HandshakeListener([KEY], CORE, ClusterVersion()),
    )
    challenge = listener.receive(body(dialer.hello()))
    proof = dialer.receive(body(challenge))
    assert (dialer.peer, listener.peer) == (None, None)
    answer = listener.receive(body(proof))
    assert listener.peer == REPLICANT
    assert dialer.receive(body(answer)) == b""
    assert dialer.peer == CORE


def shake(dialer: HandshakeDialer, listener: HandshakeListener) -> None:
    answer = dialer.receive(body(listener.receive(body(dialer.hello()))))
    dialer.receive(body(listener.receive(body(answer))))


def at(current: int, newest: int) -> ClusterVersion:
    version = ClusterVersion(newest)
    version.raised(current)
    return version


@pytest.mark.parametrize(("of_dialer", "of_listener"), [((1, 1), (1, 2)), ((1, 2), (2, 2)), ((2, 3), (1, 2))])
def test_where_the_versions_of_both_meet_each_knows_what_the_other_speaks(
    of_dialer: tuple[int, int], of_listener: tuple[int, int]
) -> None:
    dialer, listener = HandshakeDialer(KEY, REPLICANT, at(*of_dialer)), HandshakeListener([KEY], CORE, at(*of_listener))
    shake(dialer, listener)
    assert (dialer.newest, listener.newest) == (of_listener[1], of_dialer[1])


@pytest.mark.parametrize(("of_dialer", "of_listener"), [((1, 1), (2, 2)), ((2, 2), (1, 1)), ((3, 3), (1, 2))])
def test_where_they_do_not_meet_the_listener_says_who_is_to_be_upgraded(
    of_dialer: tuple[int, int], of_listener: tuple[int, int]
) -> None:
    with pytest.raises(HandshakeError, match=r"speaks \d at most: upgrade"):
        shake(HandshakeDialer(KEY, REPLICANT, at(*of_dialer)), HandshakeListener([KEY], CORE, at(*of_listener)))


@pytest.mark.parametrize("side", ["dialer", "listener"])
def test_a_raise_during_the_handshake_refuses_whom_it_leaves_behind(side: str) -> None:
    raised, old = ClusterVersion(2), ClusterVersion(1)
    dialer = HandshakeDialer(KEY, REPLICANT, raised if side == "dialer" else old)
    listener = HandshakeListener([KEY], CORE, raised if side == "listener" else old)
    proof = dialer.receive(body(listener.receive(body(dialer.hello()))))
    if side == "listener":
        raised.raised(2)
        with pytest.raises(HandshakeError, match="the cluster is at version 2"):
            listener.receive(body(proof))
    else:
        answer = listener.receive(body(proof))
        raised.raised(2)
        with pytest.raises(HandshakeError, match="the cluster is at version 2"):
            dialer.receive(body(answer))


class FirstHello(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """As the first release had it."""

    protocol_version: int
    identity: Identity
    nonce: bytes


class FirstChallenge(FirstHello, tag=1): ...


def test_the_first_release_takes_our_greetings_until_the_cluster_is_raised() -> None:
    version = ClusterVersion()
    first = msgspec.msgpack.Decoder(FirstHello | FirstChallenge)
    assert first.decode(body(HandshakeDialer(KEY, REPLICANT, version).hello())).protocol_version == 1
    hello = msgspec.msgpack.encode(FirstHello(1, REPLICANT, bytes(32)))
    assert first.decode(body(HandshakeListener([KEY], CORE, version).receive(hello))).protocol_version == 1
    version.raised(2)
    assert first.decode(body(HandshakeDialer(KEY, REPLICANT, version).hello())).protocol_version == 2


def test_we_take_the_greetings_of_the_first_release() -> None:
    listener = HandshakeListener([KEY], CORE, ClusterVersion(NEWEST))
    listener.receive(msgspec.msgpack.encode(FirstHello(1, REPLICANT, bytes(32))))
    assert listener.newest == 1


def test_a_dialer_with_another_key_learns_nothing_made_with_the_key() -> None:
    dialer, listener = (
        HandshakeDialer(b"another key of some length", REPLICANT, ClusterVersion()),
        HandshakeListener([KEY], CORE, ClusterVersion()),
    )
    proof = dialer.receive(body(listener.receive(body(dialer.hello()))))
    with pytest.raises(HandshakeError, match="cluster's key"):
        listener.receive(body(proof))
    assert listener.peer is None


NEW = b"the key that comes after it"


@pytest.mark.parametrize(
    ("dialer", "listener"),
    [
        ([KEY], [KEY, NEW]),  # the new one is only taken yet; a node of the first release knows one
        ([KEY, NEW], [KEY]),
        ([KEY, NEW], [NEW, KEY]),
        ([NEW, KEY], [KEY, NEW]),
        ([NEW], [NEW, KEY]),
        ([NEW, KEY], [NEW]),
    ],
)
def test_nodes_a_step_apart_know_each_other_while_the_key_is_replaced(
    dialer: list[bytes], listener: list[bytes]
) -> None:
    one, other = (
        HandshakeDialer(dialer[0], REPLICANT, ClusterVersion()),
        HandshakeListener(listener, CORE, ClusterVersion()),
    )
    shake(one, other)
    assert (one.peer, other.peer) == (CORE, REPLICANT)


def test_who_holds_the_key_that_was_replaced_is_refused() -> None:
    with pytest.raises(HandshakeError, match="cluster's key"):
        shake(HandshakeDialer(KEY, REPLICANT, ClusterVersion()), HandshakeListener([NEW], CORE, ClusterVersion()))


def test_a_listener_with_another_key_is_not_believed() -> None:
    """It can't check the proof, so it just goes on."""
    impostor = HandshakeListener([b"another key of some length"], CORE, ClusterVersion())
    dialer = HandshakeDialer(KEY, REPLICANT, ClusterVersion())
    dialer.receive(body(impostor.receive(body(dialer.hello()))))
    forged = HandshakeDialer(b"another key of some length", REPLICANT, ClusterVersion())
    other = HandshakeListener([b"another key of some length"], CORE, ClusterVersion())
    answer = other.receive(body(forged.receive(body(other.receive(body(forged.hello()))))))
    with pytest.raises(HandshakeError, match="cluster's key"):
        dialer.receive(body(answer))
    assert dialer.peer is None


def test_a_proof_is_not_taken_back_by_its_maker() -> None:
    """Reflection: a stranger relays the dialer's own proof to it."""
    dialer, listener = (
        HandshakeDialer(KEY, REPLICANT, ClusterVersion()),
        HandshakeListener([KEY], CORE, ClusterVersion()),
    )
    proof = dialer.receive(body(listener.receive(body(dialer.hello()))))
    with pytest.raises(HandshakeError):
        dialer.receive(body(proof))


def test_a_recorded_proof_is_worth_nothing_to_another_listener() -> None:
    dialer, listener = (
        HandshakeDialer(KEY, REPLICANT, ClusterVersion()),
        HandshakeListener([KEY], CORE, ClusterVersion()),
    )
    hello = body(dialer.hello())
    proof = dialer.receive(body(listener.receive(hello)))
    later = HandshakeListener([KEY], CORE, ClusterVersion())
    later.receive(hello)
    with pytest.raises(HandshakeError):
        later.receive(body(proof))


@pytest.mark.parametrize("position", range(0, 110, 3))
def test_no_byte_of_the_greetings_can_be_changed_on_the_way(position: int) -> None:
    dialer, listener = (
        HandshakeDialer(KEY, REPLICANT, ClusterVersion()),
        HandshakeListener([KEY], CORE, ClusterVersion()),
    )
    hello = bytearray(body(dialer.hello()))
    hello[position % len(hello)] ^= 1
    with pytest.raises(HandshakeError):
        listener.receive(body(dialer.receive(body(listener.receive(bytes(hello))))))
    assert listener.peer is None


def test_a_node_that_dials_itself_notices() -> None:
    dialer, listener = HandshakeDialer(KEY, CORE, ClusterVersion()), HandshakeListener([KEY], CORE, ClusterVersion())
    with pytest.raises(HandshakeError, match="this node itself"):
        dialer.receive(body(listener.receive(body(dialer.hello()))))
    assert dialer.itself


def test_a_refusal_says_why_and_is_cut_short() -> None:
    with pytest.raises(HandshakeError, match="it refused this node: 'no thanks'"):
        HandshakeDialer(KEY, REPLICANT, ClusterVersion()).receive(body(refusal("no thanks")))


@pytest.mark.parametrize("name", ["", "no-hex", "a b@0123456789abcdef", "a@XYZ", "x" * 300 + "@0123456789abcdef"])
def test_incarnations_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(HandshakeError, match="no role and incarnation"):
        HandshakeListener([KEY], CORE, ClusterVersion()).receive(
            body(HandshakeDialer(KEY, Identity(name, "core"), ClusterVersion()).hello())
        )


@given(st.lists(st.binary(max_size=100), max_size=4))
def test_strangers_get_no_further_than_an_error(greetings: list[bytes]) -> None:
    listener = HandshakeListener([KEY], CORE, ClusterVersion())
    for greeting in greetings:
        with pytest.raises(HandshakeError):
            listener.receive(greeting)
    assert listener.peer is None


def test_a_name_that_is_no_utf_8_is_an_error() -> None:
    hello = body(HandshakeDialer(KEY, CORE, ClusterVersion()).hello())
    name = CORE.incarnation.encode()
    assert name in hello
    with pytest.raises(HandshakeError, match="doesn't speak the cluster protocol"):
        HandshakeListener([KEY], CORE, ClusterVersion()).receive(hello.replace(name, b"\x80" + name[1:]))
