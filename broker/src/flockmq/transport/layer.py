"""What stands between a descriptor's bytes and MQTT's: TLS or WebSocket. Bytes in, bytes out, no I/O.

A layer may have something to say of its own, a handshake or a pong. It keeps that until the connection asks for it
with `wrap`.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.mqtt.errors import PacketError


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Layer:
    """`has_answer`: `wrap(b"")` would give something. `fault`: the peer broke the rules; `has_ended`: it said goodbye.
    After either the layer unwraps nothing more.
    """

    __slots__ = ("fault", "has_answer", "has_ended")

    def __init__(self) -> None:
        self.has_answer: bool = False
        self.has_ended: bool = False
        self.fault: PacketError | None = None

    def unwrap(self, data: bytes) -> bytes:
        """What the next layer gets for these bytes, perhaps nothing yet. Never raises for what a client sent."""
        raise NotImplementedError(type(self).__name__)

    def wrap(self, data: bytes) -> bytes:
        """What goes out: the layer's own answers, and `data`, which may be empty."""
        raise NotImplementedError(type(self).__name__)

    def farewell(self, reason: int) -> None:
        """The connection ends with this MQTT reason code: prepare the last words for `wrap(b"")`."""
