"""TLS on cluster links: TLS 1.3, with a certificate on both sides, each verified with the cluster's own CA.

Host names aren't checked, because pods' addresses change. A node with a certificate of this CA may start the handshake
with the cluster key, which runs inside TLS. A certificate may name the roles of its node, by URIs in its subject
alternative names: `urn:flockmq:role:core`, `urn:flockmq:role:replicant`. Then the node may have no other role. A
certificate without such URIs, as made for the first release, is valid for any node.

When a file changes, new links use the new content, and links that are up stay. So the CA is rotated in three steps: a
bundle with both CAs, then new certificates, then the bundle without the old CA.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

from flockmq import bounds
from flockmq.pem_files import PemFiles, load_chain, load_trust

SECTION: Final = "cluster"
ROLE_URI: Final = "urn:flockmq:role:"
SHUTDOWN_MAX_S: Final = 1.0
"""How long an orderly closed link waits for the peer's close_notify."""


@dataclass(frozen=True, slots=True)
class LinkFiles:
    """PEM files: this node's certificate, its key, and the CAs that it trusts."""

    certfile: Path
    keyfile: Path
    cacertfile: Path


def roles_in(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The roles in a certificate, given as `SSLSocket.getpeercert` returns it. Empty: it names none."""
    names = (certificate or {}).get("subjectAltName", ())
    return frozenset(name.removeprefix(ROLE_URI) for kind, name in names if kind == "URI" and name.startswith(ROLE_URI))


class LinkCertificates:
    """OpenSSL's contexts for the links of one node."""

    def __init__(self, files: LinkFiles) -> None:
        """Raises ConfigError."""
        self._files = files
        named = [("certfile", files.certfile), ("keyfile", files.keyfile), ("cacertfile", files.cacertfile)]
        self._pem = PemFiles(SECTION, named, self._make)

    @property
    def listening(self) -> ssl.SSLContext:
        return self._pem.made[0]

    @property
    def dialling(self) -> ssl.SSLContext:
        return self._pem.made[1]

    def refresh(self) -> None:
        """Read the files again if one changed."""
        self._pem.refresh()

    def _make(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        return self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, side: int) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        if side == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0  # no TLS session is resumed: each link authenticates
        load_chain(context, f"{SECTION}.certfile", self._files.certfile, self._files.keyfile)
        load_trust(context, f"{SECTION}.cacertfile", self._files.cacertfile)
        return context


class _TlsOptions(TypedDict, total=False):
    ssl: ssl.SSLContext
    ssl_handshake_timeout: float
    ssl_shutdown_timeout: float


def tls_options(context: ssl.SSLContext | None) -> _TlsOptions:
    """The event loop's TLS options for a connection; empty if links don't use TLS."""
    if context is None:
        return {}
    return {
        "ssl": context,
        "ssl_handshake_timeout": bounds.LINK_HANDSHAKE_MAX_S,
        "ssl_shutdown_timeout": SHUTDOWN_MAX_S,
    }
