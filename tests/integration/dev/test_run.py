"""`flockmq run`: one node from start to stop, and each address that can't be had."""

from __future__ import annotations

import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from integration.dev.commands import Commands


def test_a_single_node_tells_its_ports_is_ready_and_stops_cleanly(flockmq: Commands, tmp_path: Path) -> None:
    command, ports = flockmq.start_node("--data-dir", str(tmp_path))
    with socket.create_connection(("127.0.0.1", ports["mqtt"])):
        pass
    with urllib.request.urlopen(f"http://127.0.0.1:{ports['management']}/readyz") as answer:
        assert answer.status == 200
    command.process.send_signal(signal.SIGHUP)  # which is for certificates, and no end
    with urllib.request.urlopen(f"http://127.0.0.1:{ports['management']}/metrics") as answer:
        assert b"flockmq_ready 1.0\n" in answer.read()
    assert command.end(signal.SIGTERM) == 0, command.errors()
    assert command.pids() == []


def test_two_nodes_never_share_the_embedded_valkeys_files(flockmq: Commands, tmp_path: Path) -> None:
    flockmq.start_node("--data-dir", str(tmp_path))
    code, line = flockmq.refused("run", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert (code, line) == (
        1,
        f"node.data_dir: {tmp_path / 'valkey'} is in use by another node; name another by --data-dir",
    )


@pytest.mark.parametrize(
    ("option", "key"), [("--listen", "listeners.tcp.default.bind"), ("--management", "management.listen")]
)
def test_an_address_in_use_is_one_line_and_exit_code_4(
    flockmq: Commands, tmp_path: Path, option: str, key: str
) -> None:
    addresses = {"--listen": "127.0.0.1:0", "--management": "127.0.0.1:0"}
    with socket.create_server(("127.0.0.1", 0)) as held:
        addresses[option] = f"127.0.0.1:{held.getsockname()[1]}"
        arguments = [word for pair in addresses.items() for word in pair]
        code, line = flockmq.refused("run", *arguments, "--data-dir", str(tmp_path))
    assert code == 4
    assert line == f"{key}: {addresses[option]} is in use; choose another with {option} HOST:PORT"


def test_a_data_folder_that_can_not_be_made_is_named(flockmq: Commands, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, line = flockmq.refused("run", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "file"))
    assert code == 2
    why = f"{tmp_path / 'file' / 'valkey'} can't be written: Not a directory"
    assert line == f"node.data_dir: {why}; name a folder that can be, by --data-dir"
