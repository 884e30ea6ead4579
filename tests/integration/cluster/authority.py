"""Certificates of cluster links, as an operator lays them out in files."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from flockmq.membership.link_certificates import LinkFiles


class Authority:
    """One authority, its files in `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes()
        self.cacertfile = folder / f"{name}.pem"
        self.cacertfile.write_bytes(self.pem)

    def files(self, name: str, *roles: str) -> LinkFiles:
        """A node's files, written anew each time; the certificate says its roles, if any."""
        certfile, keyfile = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.load_pem_x509_certificate(self.pem)
        signer = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        names = [x509.DNSName(f"{name}.example.com")]
        uris = [x509.UniformResourceIdentifier(f"urn:flockmq:role:{role}") for role in roles]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(authority.not_valid_before_utc)
            .not_valid_after(authority.not_valid_after_utc)
            .add_extension(x509.SubjectAlternativeName([*names, *uris]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        certfile.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        keyfile.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return LinkFiles(certfile, keyfile, self.cacertfile)
