"""Certificates made for a test, and files of them as an operator lays them out."""

from __future__ import annotations

import contextlib
import datetime
import ssl
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from flockmq.config.listener_settings import ServerNameSettings, SslListenerSettings


class Pki:
    """One authority, its files in `folder`; or one that another signed, whose files lie beside."""

    def __init__(self, folder: Path, authority: trustme.CA | None = None) -> None:
        self.folder = folder
        self.authority = authority or trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "ca.pem")

    def intermediate(self, name: str) -> Pki:
        (self.folder / name).mkdir()
        return Pki(self.folder / name, self.authority.create_child_ca())

    def server(self, *hosts: str, name: str = "server") -> tuple[Path, Path]:
        """Certificate and key; written anew each time."""
        return self._written(self.authority.issue_cert(*hosts), name)

    def _written(self, leaf: trustme.LeafCert, name: str) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(key)
        return certificate, key

    def client(self, common_name: str) -> ssl.SSLContext:
        """A client that shows a certificate with this name."""
        leaf = self.authority.issue_cert("client.example.com", common_name=common_name)
        certificate, key = self._written(leaf, f"client-{common_name}")
        context = self.trusting()
        context.load_cert_chain(certificate, key)
        return context

    def trusting(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def revoking(self, *revoked: str | Pki) -> Path:
        """A revocation list that names these clients and authorities."""
        issuer = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        now = datetime.datetime.now(datetime.UTC)
        crl = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
        crl = crl.last_update(now - datetime.timedelta(days=1)).next_update(now + datetime.timedelta(days=1))
        for one in revoked:
            file = one.folder / "ca.pem" if isinstance(one, Pki) else self.folder / f"client-{one}.pem"
            serial = x509.load_pem_x509_certificate(file.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            crl = crl.add_revoked_certificate(entry.build())
        key = serialization.load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        file = self.folder / "crl.pem"
        file.write_bytes(crl.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))  # type: ignore[arg-type]
        return file

    def settings(self, **changed: object) -> SslListenerSettings:
        if "certfile" not in changed:
            changed["certfile"], changed["keyfile"] = self.server("broker.example.com")
        return SslListenerSettings(bind=None, **changed)  # type: ignore[arg-type]

    def named(self, host: str) -> ServerNameSettings:
        certificate, key = self.server(host, name=host.replace("*", "any"))
        return ServerNameSettings(host=host, certfile=certificate, keyfile=key)


class Client:
    """The client's side of a handshake, without a socket."""

    def __init__(
        self, context: ssl.SSLContext, host: str = "broker.example.com", session: ssl.SSLSession | None = None
    ) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname=host, session=session)
        self.is_open = False

    def say(self, data: bytes = b"") -> bytes:
        """What goes to the server: of the handshake as far as it has come, and then `data`."""
        try:
            if not self.is_open:
                self.tls.do_handshake()
                self.is_open = True
            if data:
                self.tls.write(data)
        except ssl.SSLWantReadError:
            pass
        return self._out.read()

    def hear(self, data: bytes) -> bytes:
        """The plain text of what came from the server; b"" also at its close_notify."""
        self._in.write(data)
        plain = b""
        try:
            if not self.is_open:
                self.tls.do_handshake()
                self.is_open = True
            while piece := self.tls.read(65_536):
                plain += piece
        except ssl.SSLWantReadError:
            pass
        return plain

    def goodbye(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._out.read()

    def names(self) -> set[str]:
        """The hosts that the server's certificate is for."""
        certificate = self.tls.getpeercert()
        assert certificate is not None
        return {str(name[1]) for name in certificate["subjectAltName"]}
