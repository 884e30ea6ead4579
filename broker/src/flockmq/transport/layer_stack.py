"""What stands between one client's descriptor and MQTT: PROXY header, TLS, WebSocket, in this order. No I/O.

    socket ──▶ [PROXY] ──▶ [TLS] ──▶ [WebSocket] ──▶ channel        unwrap
    socket ◀───────────── [TLS] ◀── [WebSocket] ◀── channel        wrap, FILTER_SLICE_MAX_BYTES at a time

What always holds: what was wrapped and not written yet is less than two slices. What waits stands in the connection's
`out`, in plain, where its bounds are; a client that reads nothing can't make layers answer without end.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import FILTER_SLICE_MAX_BYTES
from flockmq.protocol.client import ClientCertificate
from flockmq.transport.layer import Layer
from flockmq.transport.listener import Listener
from flockmq.transport.proxy_protocol import ProxyHeader
from flockmq.transport.tls import Tls
from flockmq.transport.websocket import WebSocket


@mypyc_attr(acyclic=True)
class LayerStack:
    """`layers` from the socket inwards, without the PROXY header, which is taken off once. `wrapped` is what they gave
    and the socket hasn't taken; `at`: how much of the first chunk that waits was wrapped already.
    """

    __slots__ = ("at", "header", "is_shaking_hands", "layers", "said_goodbye", "tls", "wrapped")

    def __init__(self, listener: Listener) -> None:
        self.layers: list[Layer] = []
        self.header: ProxyHeader | None = None if listener.proxy is None else ProxyHeader()
        self.tls: Tls | None = None
        self.wrapped: bytes = b""
        self.at: int = 0
        self.said_goodbye: bool = False
        self.is_shaking_hands: bool = listener.certificates is not None
        if listener.certificates is not None:
            self.tls = Tls(listener.certificates)
            self.layers.append(self.tls)
        if listener.path:
            self.layers.append(WebSocket(listener.path, listener.allowed_origins))

    def certificate(self, *, named: bool) -> ClientCertificate | None:
        """The client's, which TLS verified. `named`: one that the PROXY header names counts in its place."""
        tls, header = self.tls, self.header
        certificate = None if tls is None else tls.certificate()
        return header.certificate if certificate is None and header is not None and named else certificate

    def unwrap(self, data: bytes) -> bytes:
        """What MQTT gets for these bytes, which came behind the PROXY header."""
        for layer in self.layers:
            data = layer.unwrap(data)
        return data

    def wrap(self, out: list[bytes]) -> int:
        """Wrap a slice of what waits, and what the layers have to say; how many bytes were taken of `out`."""
        data = self._slice(out) if out else b""
        taken = len(data)
        for layer in reversed(self.layers):
            data = layer.wrap(data)
        self.wrapped = data
        return taken

    def _slice(self, out: list[bytes]) -> bytes:
        """The first FILTER_SLICE_MAX_BYTES of what waits."""
        taken: list[bytes] = []
        room = FILTER_SLICE_MAX_BYTES
        whole = 0
        for chunk in out:
            at = self.at
            if len(chunk) - at > room:
                taken.append(chunk[at : at + room])
                self.at = at + room
                break
            taken.append(chunk[at:] if at else chunk)
            room -= len(chunk) - at
            self.at = 0
            whole += 1
        del out[:whole]
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def say_goodbye(self, reason: int) -> bool:
        """The last words of the innermost layer go through the outer ones, before theirs. False: they were said."""
        if self.said_goodbye:
            return False
        self.said_goodbye = True
        for layer in reversed(self.layers):
            layer.farewell(reason)
        return True

    def release(self) -> None:
        """The descriptor was closed: let go of what takes memory. What the PROXY header said is still asked for."""
        self.layers.clear()
        self.tls = None
        self.wrapped = b""
