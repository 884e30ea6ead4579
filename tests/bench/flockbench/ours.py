"""FlockMQ, twice: the same sources interpreted and compiled; and, to see what a change costs, as it was before it.

Each runs from a copy of the sources in the cache, so none depends on, or changes, what is built in the checkout; the
copy's name carries a hash of the sources, and `flockmq --version` has to agree that it runs as its column says.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from flockbench.brokers import Broker, Installed, Launch, Site
from flockbench.errors import Missing
from flockbench.packages import step

REPOSITORY: Final = Path(__file__).resolve().parents[3]
BROKER: Final = REPOSITORY / "broker"
BEFORE: Final = "before"
SOURCES: Final = ("**/*.py", "**/*.lua", "**/*.toml")
WATCHED: Final = Path(__file__).with_name("watched.py")
"""Runs `flockmq` and tells its pauses; for the measurements of `pauses`."""
SETTINGS: Final = """\
[mqtt]
max_inflight = 1000
[listeners.ssl.default]
bind = "127.0.0.1:{site.tls}"
certfile = "{site.certificate}"
keyfile = "{site.key}"
[listeners.ws.default]
bind = "127.0.0.1:{site.websocket}"
"""
"""The window is as wide as the peers' are set: what is measured is the broker, not its default of 32."""


def command(*arguments: str) -> tuple[str, ...]:
    """The project's interpreter, which has the broker's dependencies: `make bench` runs by it."""
    return (sys.executable, *arguments)


def stage(cache: Path, kind: str) -> dict[str, str]:
    """The environment in which `kind` (interpreted, compiled) runs; makes the copy when the sources have changed."""
    folder = cache / f"flockmq-{kind}-{_digest()}"
    if not folder.exists():
        _make(folder, BROKER, compiled=kind == "compiled")
    return _environment(folder)


def broker(kind: str, *, watched: bool = False) -> Broker:
    return Broker(kind, f"FlockMQ {kind}", lambda cache: _install(stage(cache, kind), kind, watched))


OURS: Final = (broker("interpreted"), broker("compiled"))


def before(commit: str) -> Broker:
    """As it was, compiled."""

    def install(cache: Path) -> Installed:
        sha = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
        folder = cache / f"flockmq-before-{sha[:12]}"
        if not folder.exists():
            with tempfile.TemporaryDirectory() as sources:
                subprocess.run(["tar", "-x", "-C", sources], input=_git("archive", sha, BROKER.name), check=True)
                _make(folder, Path(sources, BROKER.name), compiled=True)
        return _install(_environment(folder), "compiled", watched=False)

    return Broker(BEFORE, f"FlockMQ at {commit[:12]}", install)


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", "-C", REPOSITORY, *arguments], capture_output=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        raise Missing(error.stderr.decode(errors="replace").strip()) from None


def _environment(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": ""}


def _install(environment: dict[str, str], kind: str, watched: bool) -> Installed:
    version = step([*command("-m", "flockmq"), "--version"], environment).strip()
    if f"({kind}," not in version:
        raise Missing(f"the copy should run {kind}, but says {version!r}")
    program = command(str(WATCHED)) if watched else command("-m", "flockmq")
    options = ("--log-level", "warning", "--management", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0")

    def launch(site: Site) -> Launch:
        files = {"flockmq.toml": SETTINGS.format(site=site)}
        alone = ("run", "--role", "single", "--data-dir", "data", "--config", "flockmq.toml", *options)
        return Launch((*program, *alone, "--listen", f"127.0.0.1:{site.mqtt}"), files, environment)

    def cluster(site: Site) -> Launch:
        together = ("dev", "--cores", "1", "--replicants", "2", "--port", str(site.mqtt), "--management-port", "0")
        return Launch((*program, *together), {}, environment)

    return Installed(version.removeprefix("flockmq "), launch, apart={"cluster": cluster})


@functools.cache
def _digest() -> str:
    """Of the broker's sources as they were when the run began: a change gives the next run a new copy."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in BROKER.glob(pattern)):
        digest.update(str(path.relative_to(BROKER)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _make(folder: Path, sources: Path, *, compiled: bool) -> None:
    for older in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
        shutil.rmtree(older)
    unfinished = folder.with_suffix(".unfinished")
    shutil.copytree(sources, unfinished, ignore=shutil.ignore_patterns("*.so", "__pycache__", "build", "*.egg-info"))
    if compiled:
        step([*command("setup.py"), "--quiet", "build_ext", "--inplace"], {"FLOCKMQ_MYPYC": "1"}, cwd=unfinished)
    unfinished.rename(folder)
