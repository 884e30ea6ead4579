"""Collects a TLS client's first bytes until its ClientHello is whole: a handshake message, which may be fragmented over
records (RFC 8446 section 5.1). No I/O.

Invariants: at most TLS_HELLO_MAX_BYTES, heads of records included, and one read are kept. A ClientHello that says that
it is longer is refused as soon as it has said so. Each record is looked at once, however its bytes trickle in.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import TLS_HELLO_MAX_BYTES
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.reason import Reason

_HANDSHAKE_RECORD: Final = 0x16
_RECORD_HEAD_BYTES: Final = 5
_MESSAGE_HEAD_BYTES: Final = 4


@mypyc_attr(acyclic=True)
class ClientHello:
    """`data`: all bytes so far. `end`: where the last whole record ends; if `is_whole`, the ClientHello ends in it."""

    __slots__ = ("_head", "_message_bytes", "data", "end", "is_whole")

    def __init__(self) -> None:
        self.data: bytes = b""
        self.end: int = 0
        self.is_whole: bool = False
        self._head: bytes = b""
        """The message's first bytes in whole records."""
        self._message_bytes: int = 0

    def add(self, data: bytes) -> None:
        """Raises PacketError if these bytes are no ClientHello, or a too long one."""
        self.data += data
        while not self.is_whole and self.end < len(self.data) and self._take_record():
            pass

    def _take_record(self) -> bool:
        """Take the record after the last whole one. Returns False if it isn't whole. Raises PacketError."""
        data, at = self.data, self.end
        if data[at] != _HANDSHAKE_RECORD or data[at + 1 : at + 2] not in (b"", b"\x03"):
            raise _refusal("the first bytes are no TLS handshake")
        start = at + _RECORD_HEAD_BYTES
        if len(data) < start:
            return False
        end = start + (data[at + 3] << 8 | data[at + 4])
        if end == start:
            raise _refusal("a ClientHello with an empty record")
        head = self._head + data[start : min(end, start + _MESSAGE_HEAD_BYTES - len(self._head))]
        is_length_known = len(head) == _MESSAGE_HEAD_BYTES
        message_bytes = _MESSAGE_HEAD_BYTES + int.from_bytes(head[1:], "big") if is_length_known else 0
        total_bytes = max(end, _RECORD_HEAD_BYTES + message_bytes)
        if total_bytes > TLS_HELLO_MAX_BYTES:
            raise _refusal(f"a ClientHello of {total_bytes} bytes or more")
        if len(data) < end:
            return False
        self.end = end
        self._head = head
        self._message_bytes += end - start
        self.is_whole = is_length_known and self._message_bytes >= message_bytes
        return True


def _refusal(why: str) -> PacketError:
    return PacketError(Reason.PROTOCOL_ERROR, "TLS", why)
