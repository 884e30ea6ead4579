"""What nodes and owners tell one another survives the wire."""

from __future__ import annotations

import msgspec
import pytest

from flockmq.session_rpc import messages

SESSION_REQUEST = messages.SessionRequest(
    5, False, 60, 32, 0, "default", b"12345678", messages.WillRow(3, 5, b"packet")
)
WANTED = [messages.WantedSubscription(b"a/#", 2)]
TOKEN = messages.pack_token((7 << 112) + 3)


@pytest.mark.parametrize(
    ("decode", "items"),
    [
        (messages.decode_attaches, [(1, b"c", SESSION_REQUEST), (2, b"d", None)]),
        (messages.decode_answers, [(1, messages.ADMITTED, TOKEN, messages.DURABLE | messages.PRESENT)]),
        (messages.decode_clients, [(b"c", TOKEN)]),
        (messages.decode_detaches, [(b"c", TOKEN, -1, True, b"a nonce!")]),
        (messages.decode_registers, [(b"c", TOKEN, SESSION_REQUEST, b"\4\0\1"), (b"d", TOKEN, None, b"")]),
        (messages.decode_reports, [(TOKEN, b"\4\0\1")]),
        (
            messages.decode_asks,
            [
                (1, 0, b"c", TOKEN, messages.SubscribeQuestion(WANTED, b"\x0b\1", b"nonce")),
                (2, 0, b"c", TOKEN, messages.UnsubscribeQuestion([b"a/#"], b"nonce")),
                (3, 0, b"c", TOKEN, messages.ReceiveQuestion(9, b"deals")),
            ],
        ),
        (messages.decode_replies, [(1, b"")]),
    ],
)
def test_notes_come_as_they_were_put(decode: object, items: list[object]) -> None:
    assert callable(decode)
    first, *others = (note for _, note in messages.batches(items, 1, 1))
    assert decode(first) + [item for other in others for item in decode(other)] == items


def test_a_question_of_the_first_release_names_nobody() -> None:
    asked = messages.encode([(3, 0, b"c", TOKEN, (2, 9))])
    assert messages.decode_asks(asked) == [(3, 0, b"c", TOKEN, messages.ReceiveQuestion(9))]


class FirstSubscribeQuestion(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Of the first release."""

    wanted: list[messages.WantedSubscription]
    identifiers: bytes


def test_a_SUBSCRIBE_of_the_first_release_has_no_nonce_and_that_release_reads_one_that_has() -> None:
    first = FirstSubscribeQuestion(WANTED, b"")
    asked = messages.encode([(1, 0, b"c", TOKEN, first)])
    assert messages.decode_asks(asked) == [(1, 0, b"c", TOKEN, messages.SubscribeQuestion(WANTED, b"", b""))]
    told = messages.encode(messages.SubscribeQuestion(WANTED, b"", b"12345678"))
    assert msgspec.msgpack.decode(told, type=FirstSubscribeQuestion) == first


def test_a_token_larger_than_64_bits_travels() -> None:
    assert messages.unpack_token(TOKEN) == (7 << 112) + 3


def test_deliveries_for_many_clients_share_a_frame() -> None:
    items = [(1, b"one"), (2 << 100, b""), (3, b"three" * 100)]
    frame = b"".join(messages.delivery(token, chunk) for token, chunk in items)
    assert list(messages.deliveries(frame)) == items


@pytest.mark.parametrize("cut", [1, 4, 10, 20, 22])
def test_a_frame_that_ends_amid_packets_is_refused(cut: int) -> None:
    frame = messages.delivery(1, b"one")
    with pytest.raises(ValueError, match="ends within"):
        list(messages.deliveries(frame[:-cut]))


def test_a_note_is_no_larger_than_a_link_takes() -> None:
    items = [(number, bytes(1000)) for number in range(50)]
    counts, notes = zip(*messages.batches(items, 20, 5000), strict=True)
    assert sum(counts) == len(items)
    assert all(len(note) <= 5000 for note in notes)
    assert [item for note in notes for item in messages.decode_replies(note)] == items
    assert len(list(messages.batches(items[:1], 20, 10))) == 1
