"""Child processes that end with this process, and reports about children that have ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

LAST_BYTES: Final = 8192
"""The last lines of a log are searched in this many bytes."""
PR_SET_PDEATHSIG: Final = 1


def die_with_parent(death_signal: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """A `preexec_fn` that makes the kernel send `death_signal` to the child when the thread that started it ends.

    Call it, and start the child, on the main thread. Returns None on systems without this feature (macOS). There, a
    parent that is killed by SIGKILL leaves its children behind.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, death_signal.value, 0, 0, 0)
        if os.getppid() != parent:  # the parent has already ended
            os._exit(1)

    return ask_the_kernel


def how_it_ended(code: int) -> str:
    """Describe the end of a process by its exit code, as `subprocess` returns it."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def last_lines(log: Path, lines: int, start: int = 0) -> list[str]:
    """The last lines of a log after the position `start`; empty if it can't be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - LAST_BYTES))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
