"""`flockmq ctl`, run to its end."""

from __future__ import annotations

import os
import subprocess
import sys

from integration.dev.commands import PATIENCE_S


def run_ctl(
    port: int, *arguments: str, at: str = "http://127.0.0.1", key: str = "", stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """At the management port of a node; `key`: the API key."""
    command = [sys.executable, "-P", "-m", "flockmq", "ctl", "--url", f"{at}:{port}", *arguments]
    environment = {**os.environ, "FLOCKMQ_API_KEY": key} if key else None
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment
    )
