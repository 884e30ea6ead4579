"""When a ClientHello is whole, however it is fragmented over records, and what isn't waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import TLS_HELLO_MAX_BYTES
from flockmq.mqtt.errors import PacketError
from flockmq.transport.client_hello import ClientHello


def record(content: bytes, kind: int = 0x16) -> bytes:
    return bytes([kind, 3, 1]) + len(content).to_bytes(2, "big") + content


def message(size: int) -> bytes:
    return b"\x01" + size.to_bytes(3, "big") + bytes(size)


def records(content: bytes, size: int) -> bytes:
    return b"".join(record(content[at : at + size]) for at in range(0, len(content), size))


@given(st.integers(0, 40), st.integers(1, 50), st.integers(1, 60))
def test_it_is_whole_with_the_record_in_which_it_ends(message_bytes: int, record_bytes: int, read_bytes: int) -> None:
    data = records(message(message_bytes), record_bytes)
    hello = ClientHello()
    for at in range(0, len(data), read_bytes):
        assert not hello.is_whole
        hello.add(data[at : at + read_bytes])
    assert hello.is_whole
    assert (hello.data, hello.end) == (data, len(data))


def test_what_follows_is_kept_unread() -> None:
    hello = ClientHello()
    data = records(message(20), 7)
    hello.add(data + b"\x17what follows")
    assert hello.is_whole
    assert hello.end == len(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(record(b"\x01") + record(b"", 0x15), id="an alert between"),
        pytest.param(record(b"\x01") + b"\x16\x02", id="a record of another version"),
        pytest.param(record(b""), id="an empty record, which RFC 8446 forbids"),
        pytest.param(record(b"\x01") + record(b""), id="an empty one between"),
        pytest.param(record(b"\x01\x02\x01") + b"\x16\x03\x01\x00\x01\x40", id="its length is in two records"),
        pytest.param(records(message(TLS_HELLO_MAX_BYTES - 9), 1)[:-1], id="too long with the heads of its records"),
    ],
)
def test_what_is_no_client_hello_is_refused(data: bytes) -> None:
    hello = ClientHello()
    with pytest.raises(PacketError):
        hello.add(data)
    assert not hello.is_whole


def test_its_length_is_bounded_as_soon_as_it_is_known() -> None:
    longest, longer = ClientHello(), ClientHello()
    longest.add(record(message(TLS_HELLO_MAX_BYTES - 9)))
    assert longest.is_whole
    head = message(TLS_HELLO_MAX_BYTES - 8)[:4]
    longer.add(record(head[:3]) + record(head[3:])[:-1])
    with pytest.raises(PacketError, match=f"of {TLS_HELLO_MAX_BYTES + 1} bytes"):
        longer.add(head[3:])
