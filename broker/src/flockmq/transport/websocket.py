"""MQTT over WebSocket (RFC 6455, MQTT section 6): unwraps received frames, and wraps sent data into frames.

Payload is passed on before its frame is complete, so no frame is kept: MQTT packets needn't be aligned with frames
[MQTT-6.0.0-2]. Invariants: at most WS_HEAD_MAX_BYTES of a request and 14 + 125 bytes of a frame are kept. At most one
pong waits, for the last ping (section 5.5.3).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import WS_FRAME_MAX_BYTES, WS_HEAD_MAX_BYTES
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.reason import Reason
from flockmq.transport import websocket_upgrade
from flockmq.transport.layer import Layer

_CONTINUATION: Final = 0x0
_TEXT: Final = 0x1
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_PONG: Final = 0xA
_FIN: Final = 0x80

_NORMAL: Final = 1000
_GOING_AWAY: Final = 1001
_PROTOCOL_ERROR: Final = 1002
_UNSUPPORTED_DATA: Final = 1003
_POLICY_VIOLATION: Final = 1008
_TOO_BIG: Final = 1009

_CLOSE_CODES: Final = {
    int(Reason.SUCCESS): _NORMAL,
    int(Reason.MALFORMED_PACKET): _PROTOCOL_ERROR,
    int(Reason.PROTOCOL_ERROR): _PROTOCOL_ERROR,
    int(Reason.PACKET_TOO_LARGE): _TOO_BIG,
    int(Reason.SERVER_SHUTTING_DOWN): _GOING_AWAY,
}


@mypyc_attr(acyclic=True)
class WebSocket(Layer):
    """The server's side of one client's WebSocket. `path` and `allowed_origins`: the listener's."""

    __slots__ = (
        "_answers", "_close_code", "_fragmented", "_kept", "_left", "_mask", "_pong", "_said_goodbye",
        "allowed_origins", "is_open", "path",
    )  # fmt: skip

    def __init__(self, path: str, allowed_origins: tuple[str, ...]) -> None:
        super().__init__()
        self.path = path
        self.allowed_origins = allowed_origins
        self._kept: bytes = b""
        self._left: int = 0
        self._mask: bytes = b""
        self._fragmented: bool = False
        self._answers: bytes = b""
        self._pong: bytes = b""
        self._close_code: int = 0
        self._said_goodbye: bool = False
        self.is_open: bool = False

    # Bytes in.

    def unwrap(self, data: bytes) -> bytes:
        if self.has_ended or self.fault is not None:
            return b""
        payloads: list[bytes] = []
        try:
            self._take(data, payloads)
        except PacketError as error:
            self.fault = error
        return payloads[0] if len(payloads) == 1 else b"".join(payloads)

    def _take(self, data: bytes, payloads: list[bytes]) -> None:
        if self._kept:
            data = self._kept + data
            self._kept = b""
        at = 0
        end = len(data)
        if not self.is_open:
            at = data.find(b"\r\n\r\n", 0, WS_HEAD_MAX_BYTES) + 4
            if at < 4:
                self._wait_for_head(data)
                return
            self._open(data[: at - 4])
        while at < end and not self.has_ended:
            if self._left:
                stop = min(end, at + self._left)
                payloads.append(self._unmasked(data[at:stop]))
                self._left -= stop - at
            else:
                stop = self._frame(data, at, end)
                if stop == 0:
                    self._kept = data[at:]
                    return
            at = stop

    def _wait_for_head(self, data: bytes) -> None:
        start = data[:4]
        if start != b"GET "[: len(start)]:
            self._refuse(
                websocket_upgrade.UpgradeRefused(400, "this is a WebSocket listener; open a WebSocket with GET")
            )
        if len(data) >= WS_HEAD_MAX_BYTES:
            self._refuse(websocket_upgrade.UpgradeRefused(431, f"the request's head is over {WS_HEAD_MAX_BYTES} bytes"))
        self._kept = data

    def _open(self, head: bytes) -> None:
        try:
            self._answer(websocket_upgrade.accept(head, self.path, self.allowed_origins))
        except websocket_upgrade.UpgradeRefused as refused:
            self._refuse(refused)
        self.is_open = True

    def _refuse(self, refused: websocket_upgrade.UpgradeRefused) -> None:
        self._answer(refused.response())
        raise PacketError(Reason.PROTOCOL_ERROR, "RFC 6455 section 4.2", str(refused))

    def _frame(self, data: bytes, at: int, end: int) -> int:
        """Parse a frame's header, or a complete control frame. Returns where the next bytes start; 0:
        more are needed.
        """
        if end - at < 2:
            return 0
        first = data[at]
        second = data[at + 1]
        opcode = first & 0x0F
        if first & 0x70:
            raise self._violation(_PROTOCOL_ERROR, "a frame with reserved bits; no extension was agreed on", "5.2")
        if not second & 0x80:
            raise self._violation(_PROTOCOL_ERROR, "a client's frame without a mask", "5.1")
        length = second & 0x7F
        start = at + 2
        if length == 126:
            start += 2
            if start > end:
                return 0
            length = data[at + 2] << 8 | data[at + 3]
            if length < 126:
                raise self._violation(_PROTOCOL_ERROR, "a length that isn't in its shortest form", "5.2")
        elif length == 127:
            start += 8
            if start > end:
                return 0
            length = int.from_bytes(data[at + 2 : start], "big")
            if length < 65_536 or length >> 63:
                raise self._violation(_PROTOCOL_ERROR, "a length that isn't in its shortest form", "5.2")
        if length > WS_FRAME_MAX_BYTES:
            raise self._violation(_TOO_BIG, f"a frame of {length} bytes; the bound is {WS_FRAME_MAX_BYTES}", "10.4")
        self._check(opcode, first, length)
        if start + 4 > end:
            return 0
        mask = data[start : start + 4]
        start += 4
        if opcode >= _CLOSE:
            if start + length > end:
                return 0
            self._mask = mask
            self._control(opcode, self._unmasked(data[start : start + length]))
            return start + length
        self._fragmented = not first & _FIN
        self._left = length
        self._mask = mask
        return start

    def _check(self, opcode: int, first: int, length: int) -> None:
        """Raises PacketError if such a frame isn't allowed now."""
        if opcode == _TEXT:
            raise self._violation(_UNSUPPORTED_DATA, "a text frame; MQTT takes binary ones [MQTT-6.0.0-1]", "7.4.1")
        if opcode >= _CLOSE:
            if opcode > _PONG:
                raise self._violation(_PROTOCOL_ERROR, f"opcode {opcode}", "5.2")
            if not first & _FIN or length > 125:
                raise self._violation(_PROTOCOL_ERROR, "a control frame that is fragmented or over 125 bytes", "5.5")
        elif opcode > _BINARY:
            raise self._violation(_PROTOCOL_ERROR, f"opcode {opcode}", "5.2")
        elif self._fragmented != (opcode == _CONTINUATION):
            raise self._violation(_PROTOCOL_ERROR, "a fragment out of order", "5.4")

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self._pong = bytes((_FIN | _PONG, len(payload))) + payload
            self.has_answer = True
        elif opcode == _CLOSE:
            self._close(_NORMAL)
            self.has_ended = True

    def _unmasked(self, data: bytes) -> bytes:
        """Unmask `data`, and rotate the mask for the next bytes of the frame."""
        mask = self._mask
        size = len(data)
        if mask != b"\0\0\0\0":
            pattern = mask if size == 4 else (mask * (size // 4 + 1))[:size]
            data = (int.from_bytes(data, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")
            turned = size & 3
            if turned:
                self._mask = mask[turned:] + mask[:turned]
        return data

    def _violation(self, code: int, what: str, section: str) -> PacketError:
        self._close(code)
        reason = Reason.PACKET_TOO_LARGE if code == _TOO_BIG else Reason.PROTOCOL_ERROR
        return PacketError(reason, f"RFC 6455 section {section}", f"WebSocket: {what}")

    # Bytes out.

    def wrap(self, data: bytes) -> bytes:
        if self._said_goodbye and not self._close_code:
            return b""  # The close frame was sent.
        if data:
            size = len(data)
            if size < 126:
                head = bytes((_FIN | _BINARY, size))
            elif size < 65_536:
                head = bytes((_FIN | _BINARY, 126, size >> 8, size & 0xFF))
            else:
                head = bytes((_FIN | _BINARY, 127)) + size.to_bytes(8, "big")
            data = head + data
        if self.has_answer:
            self.has_answer = False
            if self._close_code:
                close = bytes((_FIN | _CLOSE, 2, self._close_code >> 8, self._close_code & 0xFF))
                self._close_code = 0
                data = self._answers + data + close
            else:
                data = self._answers + self._pong + data
            self._answers = self._pong = b""
        return data

    def farewell(self, reason: int) -> None:
        self._close(_CLOSE_CODES.get(reason, _POLICY_VIOLATION))

    def _answer(self, response: bytes) -> None:
        self._answers += response
        self.has_answer = True

    def _close(self, code: int) -> None:
        """Send a close frame once; nothing is sent after it."""
        if self.is_open and not self._said_goodbye:
            self._said_goodbye = True
            self._close_code = code
            self.has_answer = True
