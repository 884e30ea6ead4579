"""The peers: how each is had when it is missing, and the settings under which it does its best.

What is installed goes into the cache folder and nowhere else: no service is started, no system package changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from flockbench.brokers import Broker, Installed, Launch
from flockbench.errors import Missing

NATS_VERSION: Final = "v2.15.2"
AMQTT_VERSION: Final = "0.12.1"

MOSQUITTO_CONF: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 0
sys_interval 0
connection_messages false
log_type error
"""

NATS_CONF: Final = """\
server_name: bench
listen: "127.0.0.1:{second_port}"
jetstream {{ store_dir: "jetstream", limits: {{ default_max_consumers: -1 }} }}
mqtt {{ listen: "127.0.0.1:{port}" }}
"""

AMQTT_CONF: Final = """\
listeners:
  default: {{type: tcp, bind: "127.0.0.1:{port}", max_connections: 20000}}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin: {{allow_anonymous: true}}
"""


def install_mosquitto(cache: Path) -> Installed:
    """The system's own, or Debian's package unpacked (with the libraries it lacks) into the cache."""
    unpacked = cache / "mosquitto"
    binary = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if binary is None:
        if not (unpacked / "usr/sbin/mosquitto").exists():
            _unpack_debian("mosquitto", unpacked)
        binary = str(unpacked / "usr/sbin/mosquitto")
    libraries = ":".join(str(path) for path in (unpacked / "usr/lib").glob("*-linux-gnu"))
    environment = {"LD_LIBRARY_PATH": libraries} if libraries else {}
    version = _version([binary, "-h"], environment)

    def launch(port: int, _: int) -> Launch:
        command = (binary, "-c", "mosquitto.conf")
        return Launch(command, {"mosquitto.conf": MOSQUITTO_CONF.format(port=port)}, environment)

    return Installed(version, launch)


def install_nats(cache: Path) -> Installed:
    """The system's own, or built by Go into the cache."""
    folder = cache / f"nats-{NATS_VERSION}"
    binary = shutil.which("nats-server") or shutil.which("nats-server", path=folder)
    if binary is None:
        module = f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"
        _install(["go", "install", module], {"GOBIN": str(folder)})
        binary = str(folder / "nats-server")

    def launch(port: int, second_port: int) -> Launch:
        files = {"nats.conf": NATS_CONF.format(port=port, second_port=second_port)}
        return Launch((binary, "-c", "nats.conf"), files)

    return Installed(_version([binary, "--version"]), launch)


def install_amqtt(cache: Path) -> Installed:
    """A virtual environment of its own in the cache."""
    folder = cache / f"amqtt-{AMQTT_VERSION}"
    binary = folder / "bin/amqtt"
    if not binary.exists():
        _install([sys.executable, "-m", "venv", "--clear", str(folder)])
        _install([str(folder / "bin/pip"), "install", "--quiet", f"amqtt=={AMQTT_VERSION}"])

    def launch(port: int, _: int) -> Launch:
        return Launch((str(binary), "-c", "amqtt.yaml"), {"amqtt.yaml": AMQTT_CONF.format(port=port)})

    return Installed(_version([str(binary), "--version"]), launch)


PEERS: Final = (
    Broker("mosquitto", "Mosquitto", install_mosquitto),
    Broker("nats", "NATS", install_nats),
    Broker("amqtt", "amqtt", install_amqtt, idle_connections=1_000),
)


def _unpack_debian(package: str, into: Path) -> None:
    """Download `package` and those of its dependencies that aren't installed, and unpack them into `into`."""
    unfinished = into.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    simulate = ["apt-get", "--simulate", "--no-install-recommends", "install", package]
    try:
        plan = _install(simulate)
    except Missing:
        _install(["apt-get", "update", "--quiet"])
        plan = _install(simulate)
    wanted = re.findall(r"^Inst (\S+)", plan, re.MULTILINE)
    _install(["apt-get", "download", *wanted], cwd=unfinished)
    for archive in unfinished.glob("*.deb"):
        _install(["dpkg-deb", "--extract", str(archive), str(unfinished)])
        archive.unlink()
    unfinished.rename(into)


def _install(command: list[str], environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run one step of an installation and return what it printed; Missing says which step failed, and why."""
    try:
        done = subprocess.run(
            command, env=os.environ | (environment or {}), cwd=cwd, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise Missing(f"`{' '.join(command)}` can't run: there is no {command[0]} on this machine") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"`{' '.join(command)}` failed: {said[-1] if said else f'status {done.returncode}'}")
    return done.stdout


def _version(command: list[str], environment: dict[str, str] | None = None) -> str:
    """The first number with dots that the command prints. (Mosquitto's `-h` ends with status 3.)"""
    done = subprocess.run(command, env=os.environ | (environment or {}), capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
    if not found:
        raise Missing(f"`{' '.join(command)}` tells no version: {(done.stdout + done.stderr).strip()[:200]}")
    return found[0]
