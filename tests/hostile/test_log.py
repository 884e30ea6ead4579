"""Nobody fills a node's log by long names; how many lines there may be is in `unit/broker/test_logs.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from conformance.wire import V5, V311, Wire, connect
from integration.dev.commands import Commands

NAME: Final = "n" * 30_000
TIMES: Final = 20
LINE_MAX: Final = 1000
CONFIG: Final = """
[authentication]
allow_anonymous = true
[flapping]
enable = true
max_count = 2
ban_time = "1s"
"""


@pytest.mark.parametrize("config", ["", CONFIG], ids=["refused", "violating"])
@pytest.mark.parametrize("version", [V311, V5])
def test_long_names_are_short_lines(tmp_path: Path, version: int, config: str) -> None:
    """Refused by the chain where nobody anonymous is let in; else let in, and violating what it said."""
    commands = Commands()
    chain = '[[authentication.chain]]\nmechanism = "password_based:built_in_database"\n'
    (tmp_path / "node.toml").write_text("[mqtt]\nmax_clientid_len = 65535\n" + (config or chain))
    try:
        command, told = commands.start_node("--config", str(tmp_path / "node.toml"), "--data-dir", str(tmp_path))
        before = len(command.errors())
        for number in range(TIMES):
            with Wire(told["listeners"]["tcp:default"], version) as wire:
                name = f"{NAME}{number % 5}"
                wire.send(connect(version, name, user_name=name.encode(), password=b"p"), b"\x00\x00")
                while wire.next() is not None:
                    pass
        lines = command.errors()[before:].splitlines()
        assert max(len(line) for line in lines) < LINE_MAX
        assert any("nnn'…" in line for line in lines)
    finally:
        commands.end_all()
