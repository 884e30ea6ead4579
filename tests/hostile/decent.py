"""What an attack is measured by: the memory of the node, and the round trips of a client that does nothing wrong."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import trustme

from conformance.wire import PUBLISH, V5, Wire, connect, publish
from integration.dev.commands import Command, Commands

ROUND_TRIPS: Final = 400
CONFIG: Final = """
[listeners.ssl.default]
bind = "127.0.0.1:0"
certfile = "{folder}/server.pem"
keyfile = "{folder}/server.key"
"""


def start(commands: Commands, folder: Path) -> tuple[Command, dict[str, int]]:
    """A node, and the ports of its listeners by name."""
    leaf = trustme.CA().issue_cert("localhost")
    leaf.private_key_pem.write_to_path(folder / "server.key")
    leaf.cert_chain_pems[0].write_to_path(folder / "server.pem")
    (folder / "node.toml").write_text(CONFIG.format(folder=folder))
    command, told = commands.start_node("--config", str(folder / "node.toml"), "--data-dir", str(folder / "data"))
    return command, told["listeners"]


class Decent(Wire):
    """A client that publishes to itself, one message at a time."""

    def __init__(self, port: int) -> None:
        super().__init__(port, V5)
        self.send(connect(V5, "decent"))
        assert self.next() is not None
        self.subscribe(("decent", 0))

    def p99_s(self) -> float:
        taken = []
        for _ in range(ROUND_TRIPS):
            begun = time.perf_counter()
            self.send(publish(V5, "decent", b"x"))
            assert self.expect(PUBLISH).payload == b"x"
            taken.append(time.perf_counter() - begun)
        return sorted(taken)[ROUND_TRIPS * 99 // 100]


def peak_mib(command: Command) -> float:
    """The most memory that the node had resident since `forget_peak`."""
    status = Path(f"/proc/{command.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def forget_peak(command: Command) -> None:
    Path(f"/proc/{command.process.pid}/clear_refs").write_text("5")


def used_s(command: Command) -> float:
    """The processor time of the node's main thread, which runs its event loop."""
    return int(Path(f"/proc/{command.process.pid}/schedstat").read_text().split()[0]) / 1e9
