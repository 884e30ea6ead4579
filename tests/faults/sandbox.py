"""A place of our own, which the kernel clears away: own networks, mounts and process ids, with no way out.

`enter` runs this program again inside. Whatever ends it, all its processes, network namespaces and file systems end
with it. Needs root, or a kernel that lets users have namespaces of their own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flockmq.processes import die_with_parent

INSIDE: Final = "FAULTS_SANDBOX"
FOLDER: Final = Path("/run/flockmq")
"""In memory, and of the sandbox alone."""
NAMESPACES: Final = ("--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child=SIGKILL")
NEEDED: Final = ("unshare", "nsenter", "ip", "iptables", "mount")


def missing() -> list[str]:
    """Programs that the sandbox needs and this machine hasn't."""
    return [program for program in NEEDED if shutil.which(program, path=_path()) is None]


def command(program: Sequence[str]) -> list[str]:
    """What runs `program` inside."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *as_root, *NAMESPACES, *program]


def enter(program: Sequence[str]) -> int:
    """Run `program` inside; its exit code. Ctrl-C ends it, and all that it started."""
    inside = subprocess.Popen(
        command(program),
        env=environment() | {INSIDE: "1"},
        preexec_fn=die_with_parent(signal.SIGKILL),  # noqa: PLW1509 - there are no threads yet
    )
    try:
        return inside.wait()
    except KeyboardInterrupt:
        inside.kill()
        inside.wait()
        return 130


def is_inside() -> bool:
    return INSIDE in os.environ


def furnish() -> None:
    """Once, inside: an own /run with FOLDER in it, and a loopback."""
    run("mount", "-t", "tmpfs", "none", "/run")
    Path("/run/netns").mkdir()
    FOLDER.mkdir()
    run("ip", "link", "set", "lo", "up")


def environment() -> dict[str, str]:
    return os.environ | {"PATH": _path()}


def succeeds(*arguments: str) -> bool:
    return not _ran(arguments).returncode


def run(*arguments: str) -> None:
    """Raises SystemExit with what the program said."""
    done = _ran(arguments)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: {done.stderr.strip() or done.returncode}")


def _ran(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
