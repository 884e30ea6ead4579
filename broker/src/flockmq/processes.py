"""Child processes that can't outlive us, whatever ends us."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

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
