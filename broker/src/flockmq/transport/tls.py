"""TLS as a layer: OpenSSL with two memory buffers, without a socket of its own.

OpenSSL's object takes 45 KiB during a handshake and 18 KiB afterwards (measured). It is created when a complete
ClientHello has arrived, so a client that sends nothing, or sends byte by byte, costs only what it sent. Invariant: at
most one record and one read are kept before that.

OpenSSL reserves room for a handshake message as soon as it has read how long the message will be, up to 128 KiB. So a
ClientHello that claims to be longer than TLS_HELLO_MAX_BYTES is refused. A later message may be a chain of
certificates, and can be encrypted: a client that sent a part of what follows its ClientHello counts as if it had
claimed the most.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import FILTER_ANSWERS_MAX_BYTES, READ_MAX_BYTES, TLS_HELLO_MAX_BYTES
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import ClientCertificate
from flockmq.transport.layer import Layer
from flockmq.transport.tls_certificates import TlsCertificates, certificate_ended, client_certificate

_HANDSHAKE_RECORD: Final = 0x16
_RECORD_HEAD_BYTES: Final = 5
_HEADS_BYTES: Final = _RECORD_HEAD_BYTES + 4
"""A record's head, and that of the first handshake message in it."""


@mypyc_attr(acyclic=True)
class Tls(Layer):
    """The server's side. `has_hello`: a complete ClientHello has arrived; the next `unwrap` answers it, which takes
    about a millisecond. `is_amid_message`: OpenSSL may have reserved TLS_MESSAGE_BYTES for what the client continues.
    `is_open`: the handshake is complete.
    """

    __slots__ = ("_certificates", "_in", "_kept", "_object", "_out", "has_hello", "is_amid_message", "is_open")

    def __init__(self, certificates: TlsCertificates) -> None:
        super().__init__()
        self._certificates = certificates
        self._object: ssl.SSLObject | None = None
        self._in: ssl.MemoryBIO | None = None
        self._out: ssl.MemoryBIO | None = None
        self._kept: bytes = b""
        self.has_hello: bool = False
        self.is_amid_message: bool = False
        self.is_open: bool = False

    def unwrap(self, data: bytes) -> bytes:
        if self.has_ended or self.fault is not None:
            return b""
        continues = len(data) > 0
        if self._object is None:
            if not self.has_hello:
                self._hello(data)
                return b""
            data = self._begin(data)
            continues = len(data) > _record_bytes(data)
        incoming, outgoing, tls = self._in, self._out, self._object
        assert incoming is not None
        assert outgoing is not None
        assert tls is not None
        if data:
            incoming.write(data)
        plain: list[bytes] = []
        try:
            if not self.is_open:
                tls.do_handshake()
                if certificate_ended(tls, self._certificates.now_s()):
                    self.fault = PacketError(Reason.NOT_AUTHORIZED, "TLS", "certificate has expired")
                    return b""
                self.is_open = True
            while True:
                piece = tls.read(READ_MAX_BYTES)
                if not piece:
                    self.has_ended = True
                    break
                plain.append(piece)
        except ssl.SSLWantReadError:
            self.is_amid_message = not self.is_open and (self.is_amid_message or continues)
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        except ssl.SSLError as error:
            self.fault = PacketError(Reason.UNSPECIFIED_ERROR, "TLS", _why(error))
        self.has_answer = outgoing.pending > 0
        if self.is_open and outgoing.pending > FILTER_ANSWERS_MAX_BYTES:
            self.fault = PacketError(Reason.QUOTA_EXCEEDED, "TLS", "the client asks for keys and reads no answer")
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def has_begun(self) -> bool:
        return self._object is not None

    def _hello(self, data: bytes) -> None:
        """Collect bytes until one record is complete."""
        if not data:
            return
        data = self._kept + data
        self._kept = data
        if data[0] != _HANDSHAKE_RECORD or data[1:2] not in (b"", b"\x03"):
            self.fault = PacketError(Reason.PROTOCOL_ERROR, "TLS", "the first bytes are no TLS handshake")
        elif len(data) >= _RECORD_HEAD_BYTES:
            size = _record_bytes(data)
            claimed = _HEADS_BYTES + int.from_bytes(data[6:_HEADS_BYTES], "big") if len(data) >= _HEADS_BYTES else size
            if size < _HEADS_BYTES or max(size, claimed) > TLS_HELLO_MAX_BYTES:
                self.fault = PacketError(Reason.PROTOCOL_ERROR, "TLS", f"a ClientHello of {max(size, claimed)} bytes")
            else:
                self.has_hello = len(data) >= size

    def _begin(self, data: bytes) -> bytes:
        """Create OpenSSL's object; returns all bytes so far."""
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = self._certificates.context.wrap_bio(self._in, self._out, server_side=True)
        data = self._kept + data
        self._kept = b""
        return data

    def wrap(self, data: bytes) -> bytes:
        outgoing, tls = self._out, self._object
        if outgoing is None or tls is None:
            return b""
        if data:
            try:
                tls.write(data)
            except ssl.SSLError:  # After our close_notify, or the peer's alert.
                self.has_ended = True
        self.has_answer = False
        return outgoing.read()

    def farewell(self, reason: int) -> None:
        tls, outgoing = self._object, self._out
        if tls is not None and outgoing is not None and self.is_open:
            # It waits for the peer's close_notify, which isn't needed.
            with contextlib.suppress(ssl.SSLError, OSError):
                tls.unwrap()
            self.has_answer = outgoing.pending > 0

    def certificate(self) -> ClientCertificate | None:
        """The verified certificate of the client; None: there is none."""
        if self._object is None or not self.is_open:
            return None
        return client_certificate(self._object)


def _record_bytes(data: bytes) -> int:
    """The size of the record that begins here, its head included."""
    return _RECORD_HEAD_BYTES + (data[3] << 8 | data[4])


def _why(error: ssl.SSLError) -> str:
    """OpenSSL's reason, such as `tlsv1 alert unknown ca` or `certificate revoked`."""
    verified = getattr(error, "verify_message", "")
    return str(verified or (error.reason or "failed").replace("_", " ").lower())
