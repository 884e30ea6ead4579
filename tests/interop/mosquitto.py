"""A Mosquitto of our own: the second broker that answers are compared with."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ports import free_port

PATIENCE_S: Final = 20.0
PLACES: Final = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"

CONFIG: Final = """
listener {port} 127.0.0.1
allow_anonymous true
persistence false
queue_qos0_messages true
max_inflight_messages 32
max_queued_messages 1000
log_dest none
"""


def program(name: str) -> str:
    """Where it is; what to install if it isn't."""
    found = shutil.which(name) or shutil.which(name, path=PLACES)
    assert found, f"{name} isn't installed; on Debian and Ubuntu: apt-get install mosquitto mosquitto-clients"
    return found


@contextlib.contextmanager
def running(folder: Path) -> Iterator[int]:
    """The port of a Mosquitto that lives as long as the context."""
    port = free_port()
    config = folder / "mosquitto.conf"
    config.write_text(CONFIG.format(port=port))
    process = subprocess.Popen([program("mosquitto"), "-c", str(config)])
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None, f"Mosquitto ended with {process.returncode}"
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "Mosquitto doesn't listen"
                time.sleep(0.01)
        yield port
    finally:
        process.kill()
        process.wait()
