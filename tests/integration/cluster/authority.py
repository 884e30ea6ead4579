"""Certificates of cluster links, as an operator lays them out in files."""

from __future__ import annotations

from pathlib import Path

import trustme

from flockmq.cluster.certificates import LinkFiles


class Authority:
    """One authority, its files in `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes()
        self.cacertfile = folder / f"{name}.pem"
        self.cacertfile.write_bytes(self.pem)

    def files(self, name: str) -> LinkFiles:
        """A node's files, written anew each time."""
        certfile, keyfile = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        leaf = self._ca.issue_cert(f"{name}.example.com")
        certfile.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(keyfile)
        return LinkFiles(certfile, keyfile, self.cacertfile)
