"""A plugin that is installed as its users would install it, and a node that finds it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integration.broker.conftest import Node
from integration.dev.commands import Commands

GREETER = Path(__file__).parent / "greeter"
API_KEY = "an integration test's API key, 32 letters"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH that holds the package, with its entry point."""
    source = tmp_path_factory.mktemp("source") / "greeter"
    shutil.copytree(GREETER, source)
    target = tmp_path_factory.mktemp("installed")
    install = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([sys.executable, "-m", "pip", *install, "--target", str(target), str(source)], check=True)
    return target


class Place:
    """Where nodes with plugins run: each with its configuration."""

    def __init__(self, flockmq: Commands, folder: Path, installed: Path) -> None:
        self.flockmq = flockmq
        self.environment = {
            "PYTHONPATH": os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", ""))),
            "FLOCKMQ_MANAGEMENT__API_KEY": API_KEY,
        }
        self.arguments = ("--config", str(folder / "flockmq.toml"), "--data-dir", str(folder / "data"))
        self._file = folder / "flockmq.toml"

    def node(self, configuration: str) -> Node:
        self._file.write_text(configuration)
        command, ports = self.flockmq.start_node("--name", "n1", *self.arguments, environment=self.environment)
        return Node("n1", command, ports)

    def refused(self, configuration: str) -> tuple[int, str]:
        self._file.write_text(configuration)
        return self.flockmq.refused("run", "--listen", "127.0.0.1:0", *self.arguments, environment=self.environment)


@pytest.fixture
def place(flockmq: Commands, tmp_path: Path, installed: Path) -> Place:
    return Place(flockmq, tmp_path, installed)
