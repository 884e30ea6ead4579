"""TLS of the management port, by files that are read again when they change.

A handshake uses what the files said last: the listening context hands each ClientHello over to that.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from flockmq.pem_files import PemFiles, load_chain

SECTION: Final = "management"


class ManagementCertificates:
    def __init__(self, certfile: Path, keyfile: Path) -> None:
        """Raises ConfigError."""
        self._certfile = certfile
        self._keyfile = keyfile
        self._pem = PemFiles(SECTION, [("certfile", certfile), ("keyfile", keyfile)], self._context)
        self.listening = self._context()
        self.listening.sni_callback = self._greeted

    def refresh(self) -> None:
        """Read the files again if one changed."""
        self._pem.refresh()

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_chain(context, f"{SECTION}.certfile", self._certfile, self._keyfile)
        return context

    def _greeted(self, connection: ssl.SSLObject, host: str | None, listening: ssl.SSLContext) -> None:
        """Called at each ClientHello, whether it names a host or not."""
        connection.context = self._pem.made
