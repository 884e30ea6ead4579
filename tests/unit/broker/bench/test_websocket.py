"""Frames lose their heads wherever they are cut; what opens no WebSocket is told."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.bench import websocket


def server_frame(payload: bytes) -> bytes:
    length = len(payload)
    if length < 126:
        return bytes((0x82, length)) + payload
    return (
        bytes((0x82, 126)) + length.to_bytes(2, "big") if length < 1 << 16 else b"\x82\x7f" + length.to_bytes(8)
    ) + payload


@settings(max_examples=50)
@given(
    lengths=st.lists(st.integers(0, 300) | st.integers(65_530, 66_000), max_size=5),
    size=st.integers(7, 300),
)
def test_what_the_server_sent_comes_out_as_one_stream(lengths: list[int], size: int) -> None:
    payloads = [bytes(place % 251 for place in range(length)) for length in lengths]
    stream = b"".join(map(server_frame, payloads))
    incoming, out = websocket.WebSocketFrames(), b""
    for at in range(0, len(stream), size):
        chunk = bytearray(stream[at : at + size])
        out += bytes(chunk[: incoming.unwrap(memoryview(chunk), len(chunk))])
    assert out == b"".join(payloads)


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536])
def test_a_frame_is_masked_and_holds_its_packet(length: int) -> None:
    packet = bytes(number % 251 for number in range(length))
    sent = websocket.frame(packet)
    assert sent[0] == 0x82
    assert sent[1] & 0x80
    head = {126: 4, 127: 10}.get(sent[1] & 0x7F, 2)
    key, body = sent[head : head + 4], sent[head + 4 :]
    assert bytes(byte ^ key[place % 4] for place, byte in enumerate(body)) == packet


def test_a_close_frame_ends_the_run() -> None:
    with pytest.raises(ValueError, match="closes the WebSocket"):
        websocket.WebSocketFrames().unwrap(memoryview(bytearray(b"\x88\x00")), 2)


ACCEPT = base64.b64encode(hashlib.sha1(websocket.KEY + websocket.MAGIC).digest()).decode()


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        ("HTTP/1.1 101 X\r\nsec-websocket-accept: ACCEPT\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n", None),
        ("HTTP/1.1 101 X\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n", "the subprotocol mqtt wasn't chosen"),
        ("HTTP/1.1 101 X\r\n\r\n", "Sec-WebSocket-Accept doesn't answer this request"),
        ("HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 404 Not Found"),
    ],
)
def test_an_answer_opens_a_websocket_or_says_why_not(answer: str, refusal: str | None) -> None:
    assert websocket.refusal(answer.replace("ACCEPT", ACCEPT).encode()) == refusal
