"""TLS of the management port, with files that are reloaded when they change.

The listening context passes each handshake on to the context of the latest files.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from flockmq.pem_files import PemFiles, load_chain

SECTION: Final = "management"


class ManagementTls:
    def __init__(self, certfile: Path, keyfile: Path) -> None:
        """Raises ConfigError."""
        self._certfile = certfile
        self._keyfile = keyfile
        self._pem = PemFiles(SECTION, [("certfile", certfile), ("keyfile", keyfile)], self._context)
        self.listening = self._context()
        self.listening.sni_callback = self._greeted

    def refresh(self) -> None:
        """Reload the files if one has changed."""
        self._pem.refresh()

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_chain(context, f"{SECTION}.certfile", self._certfile, self._keyfile)
        return context

    def _greeted(self, connection: ssl.SSLObject, host: str | None, listening: ssl.SSLContext) -> None:
        """Use the latest files for this handshake. OpenSSL calls this at each ClientHello, even without SNI."""
        connection.context = self._pem.made
