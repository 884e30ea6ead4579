"""Mosquitto (C): the one of this system's release, and the newest that Debian has."""

from __future__ import annotations

import getpass
import os
import shutil
from pathlib import Path
from typing import Final

from flockbench.brokers import Installed, Launch, Site
from flockbench.errors import Missing
from flockbench.packages import debian, debian_unstable, libraries, version

CONFIGURATION: Final = """\
user {user}
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 0
sys_interval 0
connection_messages false
log_type error
listener {site.mqtt} 127.0.0.1
listener {site.tls} 127.0.0.1
certfile {site.certificate}
keyfile {site.key}
listener {site.websocket} 127.0.0.1
protocol websockets
"""


def install(cache: Path) -> Installed:
    """The system's own, or its release's package unpacked."""
    binary = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if binary is not None:
        return _installed(binary, {}, "2.0")
    folder = debian(cache, "mosquitto-stable", ["mosquitto"])
    paths = ":".join(map(str, libraries(folder)))
    return _installed(str(folder / "usr/sbin/mosquitto"), {"LD_LIBRARY_PATH": paths}, "2.0")


def install_newest(cache: Path) -> Installed:
    folder = debian_unstable(cache, "mosquitto-unstable", ["mosquitto"], ["usr/sbin/mosquitto"])
    return _installed(str(folder / "usr/sbin/mosquitto"), {}, "2.1")


def _installed(binary: str, environment: dict[str, str], series: str) -> Installed:
    found = version([binary, "-h"], environment)
    if not found.startswith(f"{series}."):
        raise Missing(f"this column is for {series}, but the package registry has {found}")

    def launch(site: Site) -> Launch:
        files = {"mosquitto.conf": CONFIGURATION.format(site=site, user=getpass.getuser())}
        return Launch((binary, "-c", "mosquitto.conf"), files, environment)

    return Installed(found, launch)
