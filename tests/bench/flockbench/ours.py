"""FlockMQ, twice: the same sources interpreted and compiled.

Each runs from a copy of the sources in the cache, so neither depends on, nor changes, what is built in the checkout;
the copy's name carries a hash of the sources, and `flockmq --version` has to agree that it runs as its column says.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from flockbench.brokers import Broker, Installed, Launch
from flockbench.errors import Missing

REPOSITORY: Final = Path(__file__).resolve().parents[3]
BROKER: Final = REPOSITORY / "broker"
SOURCES: Final = ("**/*.py", "**/*.lua", "**/*.toml")
COMMAND: Final = (sys.executable, "-c", "from flockmq.cli import main; main()")
"""The interpreter that runs the benchmark has the broker's dependencies: `make bench` uses the project's."""


def install_interpreted(cache: Path) -> Installed:
    return _install(cache, "interpreted")


def install_compiled(cache: Path) -> Installed:
    return _install(cache, "compiled")


OURS: Final = (
    Broker("interpreted", "FlockMQ interpreted", install_interpreted),
    Broker("compiled", "FlockMQ compiled", install_compiled),
)


def _install(cache: Path, kind: str) -> Installed:
    stage = cache / f"flockmq-{kind}-{_digest()}"
    if not stage.exists():
        _stage(stage, compiled=kind == "compiled")
    environment = {"PYTHONPATH": str(stage / "src"), "PYTHONDONTWRITEBYTECODE": ""}
    version = _run([*COMMAND, "--version"], environment)
    if f"({kind}," not in version:
        raise Missing(f"the copy in {stage.name} should run {kind}, but says {version!r}")

    def launch(port: int, second_port: int) -> Launch:
        options = ("run", "--role", "single", "--log-level", "warning", "--data-dir", "data")
        addresses = ("--listen", f"127.0.0.1:{port}", "--management", f"127.0.0.1:{second_port}")
        return Launch((*COMMAND, *options, *addresses, "--cluster-listen", "127.0.0.1:0"), {}, environment)

    return Installed(version.removeprefix("flockmq "), launch)


def _digest() -> str:
    """Of the broker's sources: a change gives a new copy."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in BROKER.glob(pattern)):
        digest.update(str(path.relative_to(BROKER)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _stage(stage: Path, compiled: bool) -> None:
    for older in stage.parent.glob(f"{stage.name.rpartition('-')[0]}-*"):
        shutil.rmtree(older)
    unfinished = stage.with_suffix(".unfinished")
    shutil.copytree(BROKER, unfinished, ignore=shutil.ignore_patterns("*.so", "__pycache__", "build", "*.egg-info"))
    if compiled:
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        _run(command, {"FLOCKMQ_MYPYC": "1"}, cwd=unfinished)
    unfinished.rename(stage)


def _run(command: list[str], environment: dict[str, str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, env=os.environ | environment, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"`{' '.join(command[1:])}` failed: {said[-1] if said else f'status {done.returncode}'}")
    return done.stdout.strip()
