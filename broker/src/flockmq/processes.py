"""Child processes that can't outlive this one, however it ends; and what to say of a child that ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

LAST_BYTES: Final = 8192
"""How much of a log is read to find its last lines."""
PR_SET_PDEATHSIG: Final = 1


def die_with_parent(death_signal: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """A `preexec_fn`: the kernel sends `death_signal` to the child when the thread that started it ends.

    Call it, and start the child, on the main thread. None where the kernel has no such thing (macOS): there a parent
    that was killed by SIGKILL leaves its children behind.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, death_signal.value, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)

    return ask_the_kernel


def how_it_ended(code: int) -> str:
    """By its exit code, as `subprocess` gives it."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def last_lines(log: Path, lines: int, start: int = 0) -> list[str]:
    """The end of its log, of what was written from `start` on; nothing if that can't be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - LAST_BYTES))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
