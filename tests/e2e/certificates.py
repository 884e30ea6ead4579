"""Certificates for TLS listeners: each made on the spot, by an authority of its own."""

import ssl

import trustme
from harness import Json


def certificate_secret(name: str) -> Json:
    """A Secret, as `kubectl create secret tls` makes it, for the host `localhost`."""
    certificate = trustme.CA().issue_cert("localhost")
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems).decode()
    data = {"tls.crt": chain, "tls.key": certificate.private_key_pem.bytes().decode()}
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "stringData": data}


def authority_secret(name: str) -> Json:
    """A server's certificate for the host `name`, beside the authority that signed it (`ca.crt`)."""
    authority = trustme.CA()
    certificate = authority.issue_cert(name)
    data = {
        "tls.crt": b"".join(pem.bytes() for pem in certificate.cert_chain_pems).decode(),
        "tls.key": certificate.private_key_pem.bytes().decode(),
        "ca.crt": authority.cert_pem.bytes().decode(),
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def trusting(secret: Json) -> ssl.SSLContext:
    """What a client needs to trust exactly this certificate."""
    context = ssl.create_default_context(cadata=secret["stringData"]["tls.crt"])
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False  # it is reached at 127.0.0.1
    return context


def certificate_in(secret: Json) -> bytes:
    """In DER."""
    return ssl.PEM_cert_to_DER_cert(secret["stringData"]["tls.crt"])


def served_at(host: str, port: int) -> bytes:
    """The certificate that a listener shows, trusted or not, in DER."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, port), timeout=10))
