"""MQTT over WebSocket: frames however they are cut, and each thing that a client may not do."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import WS_FRAME_MAX_BYTES
from flockmq.mqtt.reason import Reason
from flockmq.transport.websocket import WebSocket

BINARY, TEXT, CONTINUATION, CLOSE, PING, PONG = 2, 1, 0, 8, 9, 10
HEAD = {
    "Host": "broker.example.com",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


def request(line: str = "GET /mqtt HTTP/1.1", **changed: str | None) -> bytes:
    """A browser's request; `sec_websocket_key=None` leaves a header out."""
    head = {
        **HEAD,
        **{name.replace("_", "-").title().replace("Websocket", "WebSocket"): v for name, v in changed.items()},
    }
    return "\r\n".join(
        [line, *(f"{name}: {value}" for name, value in head.items() if value is not None), "", ""]
    ).encode()


def frame(
    opcode: int, payload: bytes, *, fin: bool = True, mask: bytes | None = b"\x0f\xf0\x55\xaa", bits: int = 0
) -> bytes:
    size = len(payload)
    masked = 0 if mask is None else 0x80
    if size < 126:
        length = bytes((masked | size,))
    elif size < 65_536:
        length = bytes((masked | 126,)) + struct.pack(">H", size)
    else:
        length = bytes((masked | 127,)) + struct.pack(">Q", size)
    head = bytes(((0x80 if fin else 0) | bits | opcode,)) + length
    if mask is None:
        return head + payload
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def opened(path: str = "/mqtt") -> WebSocket:
    websocket = WebSocket(path, ())
    assert websocket.unwrap(request(f"GET {path} HTTP/1.1")) == b""
    assert websocket.wrap(b"").startswith(b"HTTP/1.1 101 ")
    return websocket


def closing(code: int) -> bytes:
    return frame(CLOSE, struct.pack(">H", code), mask=None)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=6), st.data())
def test_payloads_come_out_in_order_however_frames_and_reads_are_cut(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(
        frame(
            BINARY if number == 0 else CONTINUATION,
            payload,
            fin=number == len(payloads) - 1,
            mask=data.draw(st.binary(min_size=4, max_size=4)),
        )
        + (frame(PING, b"?") if data.draw(st.booleans()) else b"")
        for number, payload in enumerate(payloads)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    websocket = opened()
    got = b"".join(
        websocket.unwrap(stream[start:end]) for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    )
    assert websocket.fault is None
    assert got == b"".join(payloads)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 300_000])
def test_each_form_of_length_is_written_and_read(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    assert opened().unwrap(frame(BINARY, payload)) == payload
    if size:
        assert opened().wrap(payload) == frame(BINARY, payload, mask=None)


def test_a_frame_is_passed_on_before_it_is_whole() -> None:
    websocket = opened()
    whole = frame(BINARY, bytes(1_000_000), mask=b"abcd")
    assert websocket.unwrap(whole[:1000]) == bytes(986)
    assert websocket.unwrap(whole[1000:1003]) == bytes(3)


def test_of_many_pings_the_last_is_answered() -> None:
    websocket = opened()
    assert websocket.unwrap(frame(PING, b"one") + frame(PONG, b"x") + frame(PING, b"two")) == b""
    assert websocket.has_answer
    assert websocket.wrap(b"data") == frame(PONG, b"two", mask=None) + frame(BINARY, b"data", mask=None)
    assert websocket.wrap(b"") == b""


def test_a_close_is_answered_and_what_came_before_it_counts() -> None:
    websocket = opened()
    assert websocket.unwrap(frame(BINARY, b"last") + frame(CLOSE, b"\x03\xe8") + frame(BINARY, b"late")) == b"last"
    assert websocket.has_ended
    assert websocket.wrap(b"") == closing(1000)
    assert websocket.unwrap(frame(BINARY, b"later")) == b""


def test_nothing_is_sent_behind_a_close() -> None:
    """A connection that is paused ends later: until then there may be messages for its client."""
    websocket = opened()
    websocket.unwrap(frame(CLOSE, b"\x03\xe8"))
    assert websocket.wrap(b"before") == frame(BINARY, b"before", mask=None) + closing(1000)
    assert websocket.wrap(b"behind") == b""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(TEXT, b"hello"), 1003),
        (frame(BINARY, b"x", mask=None), 1002),
        (frame(BINARY, b"x", bits=0x40), 1002),
        (frame(3, b"x"), 1002),
        (frame(11, b"x"), 1002),
        (frame(CONTINUATION, b"x"), 1002),
        (frame(BINARY, b"x", fin=False) + frame(BINARY, b"y"), 1002),
        (frame(PING, b"x", fin=False), 1002),
        (frame(PING, bytes(126)), 1002),
        (b"\x82\xfe\x00\x05" + bytes(9), 1002),
        (b"\x82\xff" + struct.pack(">Q", 65_535), 1002),
        (b"\x82\xff" + struct.pack(">Q", 1 << 63), 1002),
        (b"\x82\xff" + struct.pack(">Q", WS_FRAME_MAX_BYTES + 1), 1009),
    ],
)
def test_a_violation_closes_with_its_code_and_nothing_more_is_read(data: bytes, code: int) -> None:
    websocket = opened()
    websocket.unwrap(data)
    assert websocket.fault is not None
    assert websocket.wrap(b"") == closing(code)
    assert websocket.unwrap(frame(BINARY, b"more")) == b""


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.SUCCESS, 1000),
        (Reason.SERVER_SHUTTING_DOWN, 1001),
        (Reason.MALFORMED_PACKET, 1002),
        (Reason.BANNED, 1008),
    ],
)
def test_our_own_end_is_said_once_behind_the_last_packet(reason: int, code: int) -> None:
    websocket = opened()
    websocket.farewell(reason)
    assert websocket.wrap(b"bye") == frame(BINARY, b"bye", mask=None) + closing(code)
    websocket.farewell(reason)
    assert not websocket.has_answer


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    websocket = opened()
    websocket.unwrap(data)
    websocket.wrap(b"")
    WebSocket("/mqtt", ()).unwrap(b"GET " + data)
