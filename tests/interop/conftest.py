"""One node with every transport, and certificates that are made on the spot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from integration.dev.commands import Commands

CONFIG = """
[listeners.ssl.default]
bind = "127.0.0.1:0"
certfile = "{certificate}"
keyfile = "{key}"
[listeners.ws.default]
bind = "127.0.0.1:0"
[listeners.wss.default]
bind = "127.0.0.1:0"
certfile = "{certificate}"
keyfile = "{key}"
"""


@dataclass(frozen=True)
class Transports:
    """Ports of one node by transport (tcp, ssl, ws, wss), and the file of the authority to trust."""

    ports: dict[str, int]
    cafile: str


@pytest.fixture(scope="package")
def transports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transports]:
    folder: Path = tmp_path_factory.mktemp("interop")
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")
    names = {"certificate": folder / "server.pem", "key": folder / "server.key"}
    server.cert_chain_pems[0].write_to_path(names["certificate"])
    server.private_key_pem.write_to_path(names["key"])
    cafile = folder / "authority.pem"
    authority.cert_pem.write_to_path(cafile)
    config = folder / "flockmq.toml"
    config.write_text(CONFIG.format(**names))
    commands = Commands()
    try:
        _, told = commands.start_node("--config", str(config), "--data-dir", str(folder / "data"))
        listeners = told["listeners"]
        assert isinstance(listeners, dict)
        yield Transports({name.partition(":")[0]: port for name, port in listeners.items()}, str(cafile))
    finally:
        commands.end_all()
