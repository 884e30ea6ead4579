"""One node for all tests of a file: plain, over TLS, and over WebSocket with and without it."""

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
certfile = "{folder}/server.pem"
keyfile = "{folder}/server.key"
[listeners.ws.default]
bind = "127.0.0.1:0"
[listeners.wss.default]
bind = "127.0.0.1:0"
certfile = "{folder}/server.pem"
keyfile = "{folder}/server.key"
path = "/over/there"
"""


@dataclass
class Broker:
    """Its addresses by scheme, and the certificate to trust."""

    port: int
    urls: dict[str, str]
    cafile: Path


@pytest.fixture(scope="module")
def flockmq() -> Iterator[Commands]:
    commands = Commands()
    yield commands
    commands.end_all()


@pytest.fixture(scope="module")
def broker(flockmq: Commands, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    folder = tmp_path_factory.mktemp("broker")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    leaf = authority.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(folder / "server.pem")
    leaf.private_key_pem.write_to_path(folder / "server.key")
    (folder / "flockmq.toml").write_text(CONFIG.format(folder=folder))
    _, ports = flockmq.start_node("--config", str(folder / "flockmq.toml"), "--data-dir", str(folder / "data"))
    listeners = ports["listeners"]
    urls = {
        "mqtt": f"mqtt://127.0.0.1:{ports['mqtt']}",
        "mqtts": f"mqtts://127.0.0.1:{listeners['ssl:default']}",
        "ws": f"ws://127.0.0.1:{listeners['ws:default']}",
        "wss": f"wss://127.0.0.1:{listeners['wss:default']}/over/there",
    }
    return Broker(ports["mqtt"], urls, folder / "ca.pem")


@pytest.fixture(scope="module")
def port(broker: Broker) -> int:
    """Where it listens for plain MQTT."""
    return broker.port
