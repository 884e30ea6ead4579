"""The layers of one client's connection: PROXY header, TLS, WebSocket, in this order. No I/O.

 socket ──▶ [PROXY] ──▶ [TLS] ──▶ [WebSocket] ──▶ channel        unwrap
 socket ◀───────────── [TLS] ◀── [WebSocket] ◀── channel        wrap, FILTER_SLICE_MAX_BYTES at a time

Invariants: less than two slices are wrapped and not yet written. Everything else waits unwrapped in the connection's
`out`, where it is bounded. A client that reads nothing can't make layers create answers without limit.
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
    """`layers`: from the socket inwards, without the PROXY header, which is only removed once. `wrapped`: what the
    layers returned and the socket hasn't taken. `at`: how much of the first waiting chunk was wrapped already.
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
        """The client's certificate that TLS verified. `named`: the certificate in the PROXY header counts if TLS has
        none.
        """
        tls, header = self.tls, self.header
        certificate = None if tls is None else tls.certificate()
        return header.certificate if certificate is None and header is not None and named else certificate

    def unwrap(self, data: bytes) -> bytes:
        """Returns what MQTT gets for these bytes, which follow the PROXY header."""
        for layer in self.layers:
            data = layer.unwrap(data)
        return data

    def wrap(self, out: list[bytes]) -> int:
        """Wrap a slice of `out` and the layers' own answers. Returns how many bytes were taken from `out`."""
        data = self._slice(out) if out else b""
        taken = len(data)
        for layer in reversed(self.layers):
            data = layer.wrap(data)
        self.wrapped = data
        return taken

    def _slice(self, out: list[bytes]) -> bytes:
        """Remove and return the first FILTER_SLICE_MAX_BYTES."""
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
        """Let the layers prepare closing messages, the innermost first. Returns False if this was done before."""
        if self.said_goodbye:
            return False
        self.said_goodbye = True
        for layer in reversed(self.layers):
            layer.farewell(reason)
        return True

    def release(self) -> None:
        """The descriptor was closed: free memory. The data of the PROXY header is kept."""
        self.layers.clear()
        self.tls = None
        self.wrapped = b""
