"""Nodes that begin at once: a process that has imported what `flockmq run` needs, and forks for each one.

Importing takes a node longer than starting does, and tests start hundreds. `start` asks the fork server of this test
process, which it starts when it is first asked, and which ends with it. What it forks runs `flockmq.cli.main` with the
arguments, environment, folder and files that it is given, and ends as any Python process does.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

REQUEST_MAX: Final = 64 * 1024
"""Bytes: the environment is the most of it."""
DESCRIPTORS_MAX: Final = 4
OWN_DESCRIPTORS: Final = 32
"""More than the server has."""


class Forked:
    """What tests need of a subprocess.Popen: it isn't a child of this process, but of the fork server."""

    def __init__(self, pid: int, stdout: int, ended: int) -> None:
        self.pid = pid
        self.stdout = os.fdopen(stdout, "r")
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        return self._within(0)

    def wait(self, timeout: float) -> int:
        """Seconds. Raises subprocess.TimeoutExpired."""
        code = self._within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("flockmq", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _within(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(int(os.read(self._ended, 16)))
            os.close(self._ended)
        return self.returncode


def start(arguments: Sequence[str], environment: Mapping[str, str], stderr: int, kept: int) -> Forked:
    """`flockmq ARGUMENTS…` with `environment` as its whole environment, and the descriptor `kept` under its number."""
    out, out_of_it = os.pipe()
    ended, ended_of_it = os.pipe()
    request = {"arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd()), "kept": kept}
    server = _server()
    socket.send_fds(server, [json.dumps(request).encode()], [ended_of_it, out_of_it, stderr, kept])
    os.close(out_of_it)
    os.close(ended_of_it)
    return Forked(int(server.recv(16)), out, ended)


@cache
def _server() -> socket.socket:
    """The way to the fork server of this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        ours.setsockopt(socket.SOL_SOCKET, size, 4 * REQUEST_MAX)
    with its:
        server = subprocess.Popen([sys.executable, "-P", __file__, str(its.fileno())], pass_fds=[its.fileno()])

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


# --- the server -------------------------------------------------------------------------------------------------------


def serve(control: socket.socket) -> list[str] | None:
    """Fork for each request, until nobody can ask any more. In a forked process it gives what that has to run."""
    running: dict[int, int] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_who_ended(running)
        if control in ready:
            text, descriptors, _, _ = socket.recv_fds(control, REQUEST_MAX, DESCRIPTORS_MAX)
            if not text:
                return None
            pid = os.fork()
            if pid == 0:
                control.detach()  # its number may be another file's from here on
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return _as_asked(json.loads(text), descriptors)
            running[pid], *others = descriptors
            for descriptor in others:
                os.close(descriptor)
            control.send(str(pid).encode())


def _tell_who_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        ended = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody asks any more
            os.write(ended, str(status).encode())
        os.close(ended)


def _as_asked(request: dict[str, Any], descriptors: Sequence[int]) -> list[str]:
    """Give this forked process its files, folder and environment; what it has to run."""
    above = max(OWN_DESCRIPTORS, request["kept"] + 1)
    _, *high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in descriptors]
    os.closerange(3, above)
    for descriptor, number in zip(high, (1, 2, request["kept"]), strict=True):
        os.dup2(descriptor, number)
    os.closerange(above, above + DESCRIPTORS_MAX)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    arguments: list[str] = request["arguments"]
    sys.argv = ["flockmq", *arguments]
    return arguments


if __name__ == "__main__":
    import gc

    import flockmq.node.redis_startup
    import flockmq.node.run
    import flockmq.redis.embedded  # noqa: F401
    from flockmq import cli

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the tests'
    gc.freeze()
    own_arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if own_arguments is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main(own_arguments)
