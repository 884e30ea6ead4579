"""What stands between a descriptor's bytes and MQTT's: TLS, WebSocket, a PROXY header. Bytes in, bytes out, no I/O.

A filtered connection has a few of them, from the socket inwards. What a filter has to say of its own accord, a
handshake or a pong, waits in it until the connection asks for it with `wrap`.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.mqtt.errors import PacketError


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Layer:
    """`has_answer`: `wrap(b"")` would give something. `fault`: the peer broke the rules; `has_ended`: it said goodbye;
    after either, nothing more is unwrapped.
    """

    __slots__ = ("fault", "has_answer", "has_ended")

    def __init__(self) -> None:
        self.has_answer: bool = False
        self.has_ended: bool = False
        self.fault: PacketError | None = None

    def unwrap(self, data: bytes) -> bytes:
        """What the next filter gets for these bytes, perhaps nothing yet. Never raises for what a client sent."""
        raise NotImplementedError(type(self).__name__)

    def wrap(self, data: bytes) -> bytes:
        """What goes out for answers that wait, and for `data`, which may be empty."""
        raise NotImplementedError(type(self).__name__)

    def farewell(self, reason: int) -> None:
        """The connection ends with this MQTT reason code: leave the last words for `wrap(b"")`."""
