"""TLS as a layer: OpenSSL with two memory buffers, without a socket of its own.

OpenSSL's object takes 45 KiB during a handshake and 18 KiB afterwards (measured). It is created when a complete
ClientHello has arrived, so a client that sends nothing, or sends byte by byte, costs only what it sent.

OpenSSL reserves room for a handshake message as soon as it has read how long the message will be, up to 128 KiB. So a
ClientHello that claims to be longer than TLS_HELLO_MAX_BYTES is refused. A later message may be a chain of
certificates, and can be encrypted: a client that sent a part of what follows its ClientHello counts as if it had
claimed the most.
"""

from __future__ import annotations

import contextlib
import ssl

from mypy_extensions import mypyc_attr

from flockmq.bounds import FILTER_ANSWERS_MAX_BYTES, READ_MAX_BYTES
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import ClientCertificate
from flockmq.transport.client_hello import ClientHello
from flockmq.transport.layer import Layer
from flockmq.transport.tls_certificates import TlsCertificates, certificate_ended, client_certificate


@mypyc_attr(acyclic=True)
class Tls(Layer):
    """The server's side. `has_hello`: a complete ClientHello has arrived; the next `unwrap` answers it, which takes
    about a millisecond. `is_amid_message`: OpenSSL may have reserved TLS_MESSAGE_BYTES for what the client continues.
    `is_open`: the handshake is complete.
    """

    __slots__ = ("_certificates", "_hello", "_in", "_object", "_out", "has_hello", "is_amid_message", "is_open")

    def __init__(self, certificates: TlsCertificates) -> None:
        super().__init__()
        self._certificates = certificates
        self._object: ssl.SSLObject | None = None
        self._in: ssl.MemoryBIO | None = None
        self._out: ssl.MemoryBIO | None = None
        self._hello: ClientHello | None = ClientHello()
        self.has_hello: bool = False
        self.is_amid_message: bool = False
        self.is_open: bool = False

    def unwrap(self, data: bytes) -> bytes:
        if self.has_ended or self.fault is not None:
            return b""
        continues = len(data) > 0
        hello = self._hello
        if hello is not None:
            if not self.has_hello:
                self._await_hello(hello, data)
                return b""
            data = self._begin(hello, data)
            continues = len(data) > hello.end
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

    def _await_hello(self, hello: ClientHello, data: bytes) -> None:
        try:
            hello.add(data)
        except PacketError as error:
            self.fault = error
        self.has_hello = hello.is_whole

    def _begin(self, hello: ClientHello, data: bytes) -> bytes:
        """Create OpenSSL's object; returns all bytes so far."""
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = self._certificates.context.wrap_bio(self._in, self._out, server_side=True)
        self._hello = None
        return hello.data + data

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


def _why(error: ssl.SSLError) -> str:
    """OpenSSL's reason, such as `tlsv1 alert unknown ca` or `certificate revoked`."""
    verified = getattr(error, "verify_message", "")
    return str(verified or (error.reason or "failed").replace("_", " ").lower())
