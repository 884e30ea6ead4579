"""TLS on cluster links: TLS 1.3 with a certificate on both sides, each verified against the cluster's own authority.

Names aren't looked at, because pods' addresses change: whoever has a certificate of this authority may go on to the
handshake with the cluster's key, which stays inside. A certificate may say which roles its node has, by URIs among its
alternative names: `urn:flockmq:role:core`, `urn:flockmq:role:replicant`. Then no other role is believed of it. One that
says none, as those that were made for the first release, is any node's.

When a file changes, new links use what it says now, and links that are up stay: so an authority is rotated by a bundle
with both, then new certificates, then the bundle without the old one.
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
"""How long a link that is closed in order waits for the other side's close_notify."""


@dataclass(frozen=True, slots=True)
class LinkFiles:
    """PEM files: what this node shows, its key, and whose certificates it believes."""

    certfile: Path
    keyfile: Path
    cacertfile: Path


def roles_in(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The roles that it says, as `SSLSocket.getpeercert` has it; empty: it says none."""
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
            context.num_tickets = 0  # no link is resumed: each proves itself anew
        load_chain(context, f"{SECTION}.certfile", self._files.certfile, self._files.keyfile)
        load_trust(context, f"{SECTION}.cacertfile", self._files.cacertfile)
        return context


class _TlsOptions(TypedDict, total=False):
    ssl: ssl.SSLContext
    ssl_handshake_timeout: float
    ssl_shutdown_timeout: float


def tls_options(context: ssl.SSLContext | None) -> _TlsOptions:
    """What the event loop is told of TLS for a connection; nothing where links have none."""
    if context is None:
        return {}
    return {
        "ssl": context,
        "ssl_handshake_timeout": bounds.LINK_HANDSHAKE_MAX_S,
        "ssl_shutdown_timeout": SHUTDOWN_MAX_S,
    }
