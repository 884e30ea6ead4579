"""A protocol layer between a socket and MQTT: TLS or WebSocket. Bytes in, bytes out, no I/O.

A layer may have output of its own, such as a handshake or a pong. It keeps that until the connection calls `wrap`.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.mqtt.errors import PacketError


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Layer:
    """`has_answer`: `wrap(b"")` would return something. `fault`: the peer violated the protocol. `has_ended`: the peer
    closed the layer. After either of these, the layer unwraps nothing more.
    """

    __slots__ = ("fault", "has_answer", "has_ended")

    def __init__(self) -> None:
        self.has_answer: bool = False
        self.has_ended: bool = False
        self.fault: PacketError | None = None

    def unwrap(self, data: bytes) -> bytes:
        """Process received bytes. Returns what the next layer gets, maybe nothing yet. Never raises for what a client
        sent.
        """
        raise NotImplementedError(type(self).__name__)

    def wrap(self, data: bytes) -> bytes:
        """Returns the bytes to send: the layer's own answers, and `data` (may be empty) in the layer's form."""
        raise NotImplementedError(type(self).__name__)

    def farewell(self, reason: int) -> None:
        """The connection ends with this MQTT reason code: prepare a closing message for `wrap(b"")`."""
