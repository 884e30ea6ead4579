"""One connection to the broker: TCP, TLS, or WebSocket over either.

During setup a link blocks, with a timeout. After `make_nonblocking`, `send` and `receive_into` make one system call and
never wait.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import struct
from typing import Final

from flockmq.bench import websocket
from flockmq.bench.errors import Failed
from flockmq.bench.target import BenchTarget
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect, SubscribeEntry

ANSWER_MAX_S: Final = 10
"""How long a blocking call waits for the broker."""
KEEP_ALIVE_S: Final = 0xFFFF
"""The largest value: an idle connection stays silent. (Some brokers refuse 0, which means no keep-alive.)"""
PATIENCE: Final = struct.pack("ll", ANSWER_MAX_S, 0)
GRANTED_MAX: Final = 2
"""The highest reason code of a SUBACK that isn't a refusal."""

WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class BenchLink:
    """A connected socket. Raises Failed, with the broker's address, for every error of the broker or the connection."""

    __slots__ = ("_socket", "target", "unsent")

    def __init__(self, target: BenchTarget) -> None:
        self.target = target
        self.unsent: bytes | memoryview = b""
        """Posted bytes that the socket hasn't taken."""
        try:
            family, address = target.resolved()
            plain = socket.socket(family, socket.SOCK_STREAM)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, PATIENCE)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, PATIENCE)
            plain.connect(address)
            self._socket = plain if target.tls is None else target.tls.wrap_socket(plain, server_hostname=target.host)
        except OSError as error:
            raise Failed(f"{target}: no connection: {error.strerror or error}{_mend(error)}") from None

    def fileno(self) -> int:
        return self._socket.fileno()

    def make_nonblocking(self) -> None:
        self._socket.setblocking(False)

    def framed(self, packet: bytes) -> bytes:
        """The packet in the form in which this link sends it."""
        return packet

    def send(self, data: bytes | memoryview) -> int:
        """Send framed bytes. Returns how many the socket took; 0: it is full."""
        try:
            return self._socket.send(data)
        except WOULD_BLOCK:
            return 0
        except OSError as error:
            raise self._broken(error) from None

    def receive_into(self, buffer: memoryview) -> int:
        """Receive MQTT bytes. Returns how many; 0: there are none now."""
        try:
            count = self._socket.recv_into(buffer)
        except WOULD_BLOCK:
            return 0
        except OSError as error:
            raise self._broken(error) from None
        if count == 0:
            raise Failed(f"{self.target}: the broker closed the connection")
        return count

    def post(self, framed: bytes | memoryview) -> bool:
        """Send as much as the socket takes, and keep the rest for `flush`. Returns False if there is a rest."""
        took = self.send(framed)
        if took < len(framed):
            self.unsent = memoryview(framed)[took:]
            return False
        return True

    def flush(self) -> bool:
        """Send more of what was posted. Returns True if nothing is left."""
        if self.unsent:
            self.unsent = self.unsent[self.send(self.unsent) :]
        return not self.unsent

    def write(self, packet: bytes) -> None:
        """Send a complete packet; waits for the socket."""
        rest = memoryview(self.framed(packet))
        while rest:
            sent = self.send(rest)
            if sent == 0:
                raise Failed(f"{self.target}: the broker read nothing for {ANSWER_MAX_S} s")
            rest = rest[sent:]

    def read(self, count: int) -> bytes:
        """Read exactly `count` bytes; waits for them."""
        data = bytearray(count)
        view, got = memoryview(data), 0
        while got < count:
            received = self.receive_into(view[got:])
            if received == 0:
                raise Failed(f"{self.target}: no answer within {ANSWER_MAX_S} s")
            got += received
        return bytes(data)

    def read_packet(self) -> bytes:
        """Read the next complete packet; waits for it."""
        head = self.read(2)
        while head[-1] & 0x80:
            head += self.read(1)
        return head + self.read(frame.remaining_length(head, 1)[0])

    def close(self) -> None:
        """Send DISCONNECT, then reset the connection, so that no socket stays in TIME_WAIT."""
        with contextlib.suppress(Failed):
            self.send(self.framed(encode.disconnect(frame.V311)))
        self.abort()

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _broken(self, error: OSError) -> Failed:
        return Failed(f"{self.target}: the connection broke: {error.strerror or error}")


class WebSocketLink(BenchLink):
    """Sends packets in binary messages. A broker may split its frames anywhere; `receive_into` returns only the
    payload.
    """

    __slots__ = ("_incoming",)

    def __init__(self, target: BenchTarget) -> None:
        super().__init__(target)
        self._incoming = websocket.WebSocketFrames()
        self._socket.sendall(websocket.request(target.host, target.port, target.path))
        answer = bytearray()
        while not answer.endswith(b"\r\n\r\n"):
            byte = self._socket.recv(1)
            if not byte or len(answer) > websocket.ANSWER_MAX_BYTES:
                raise Failed(f"{target}: no WebSocket here: {bytes(answer[:80])!r}")
            answer += byte
        if why := websocket.refusal(bytes(answer)):
            raise Failed(f"{target}: no WebSocket here: {why}")

    def framed(self, packet: bytes) -> bytes:
        return websocket.frame(packet)

    def receive_into(self, buffer: memoryview) -> int:
        while received := super().receive_into(buffer):
            try:
                if count := self._incoming.unwrap(buffer, received):
                    return count
            except ValueError as why:
                raise Failed(f"{self.target}: {why}") from None
        return 0


def connect(target: BenchTarget, client_id: str, *, lasting: bool = False) -> BenchLink:
    """Connect up to CONNACK, with a clean session or, if `lasting`, with a durable one."""
    link = begin(target, client_id, lasting=lasting)
    try:
        finish(link)
    except Failed:
        link.abort()
        raise
    return link


def begin(target: BenchTarget, client_id: str, *, lasting: bool = False) -> BenchLink:
    """First half of `connect`: send CONNECT."""
    link = WebSocketLink(target) if target.websocket else BenchLink(target)
    login = Connect(
        frame.V311,
        client_id.encode(),
        clean_start=not lasting,
        keep_alive_s=KEEP_ALIVE_S,
        user_name=target.username,
        password=target.password,
    )
    link.write(encode.connect(login))
    return link


def forget(target: BenchTarget, client_id: str) -> None:
    """End a durable session and drop its messages."""
    connect(target, client_id).close()


def finish(link: BenchLink) -> None:
    """Second half of `connect`: wait for CONNACK."""
    connack = link.read(4)
    if connack[0] >> 4 != frame.CONNACK:
        raise Failed(f"{link.target}: answered CONNECT with {connack.hex(' ')}")
    if connack[3]:
        raise Failed(f"{link.target}: CONNECT refused: return code {connack[3]} [MQTT-3.2.2-3]")


def subscribe(link: BenchLink, filters: list[str], qos: int) -> None:
    """Subscribe up to SUBACK. Each filter must be granted with the requested QoS."""
    ask(link, filters, qos)
    granted(link, filters, qos)


def ask(link: BenchLink, filters: list[str], qos: int) -> None:
    """First half of `subscribe`: send SUBSCRIBE."""
    link.write(encode.subscribe(frame.V311, 1, [SubscribeEntry(name.encode(), qos) for name in filters]))


def granted(link: BenchLink, filters: list[str], qos: int) -> None:
    """Second half of `subscribe`: wait for SUBACK."""
    suback = link.read_packet()
    if suback[0] >> 4 != frame.SUBACK:
        raise Failed(f"{link.target}: answered SUBSCRIBE with {suback[:8].hex(' ')}")
    for name, code in zip(filters, suback[-len(filters) :], strict=True):
        if code > GRANTED_MAX:
            raise Failed(f"{link.target}: SUBSCRIBE to {name} at QoS {qos} refused: 0x{code:02x}")
        if code != qos:
            raise Failed(f"{link.target}: SUBSCRIBE to {name} at QoS {qos} granted at QoS {code} only")


def _mend(error: OSError) -> str:
    return "; raise the limit of open files (ulimit -n)" if error.errno == errno.EMFILE else ""
