"""Real `flockmq` commands, each with a temporary folder of its own, by which every process it leaves is found.

A process belongs to a command if its TMPDIR is that folder, if it works in a folder below (a Valkey overwrites its
environment with its title), or if it is a child of the command's own process (a Valkey may have its data elsewhere).

Nodes are forked from a process that has imported what they need, but where it matters how a command begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from integration.dev import fork_server

PATIENCE_S: Final = 60
"""How long an event may take on a busy machine before the test gives up."""

LOG_SHOWN: Final = 8000
"""Characters."""


class Command:
    """One running `flockmq` and all processes below it."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        environment: dict[str, str],
        ready_fd: int | None = None,
        *,
        forked: bool = False,
        cgroup: Path | None = None,
    ) -> None:
        self.arguments = arguments
        self.folder = tempfile.mkdtemp(prefix="flockmq-test-")
        self._log = Path(f"{self.folder}.log")
        environment = os.environ | environment | {"TMPDIR": self.folder}
        kept = () if ready_fd is None else (ready_fd,)
        self.process: subprocess.Popen[str] | fork_server.Forked
        with self._log.open("ab") as log:
            if forked:
                self.process = fork_server.start(arguments, environment, log.fileno(), *kept)
            else:
                command = (sys.executable, "-P", "-m", "flockmq", *arguments)
                self.process = subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=environment,
                    pass_fds=kept,
                    preexec_fn=None if cgroup is None else partial(_enter, cgroup),  # noqa: PLW1509 - it only writes a file
                )

    def pids(self, *variables: str) -> list[int]:
        """Of this command's processes; with `variables`, of those that have them all in their environment."""
        wanted = {text.encode() for text in variables}
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = set((process / "environ").read_bytes().split(b"\0"))
                ours = f"TMPDIR={self.folder}".encode() in environment
                ours = ours or str((process / "cwd").readlink()).startswith(self.folder)
                ours = ours or self.process.pid in (int(process.name), _parent(process))
                if ours and wanted <= environment:
                    found.append(int(process.name))
        return found

    def files(self) -> list[str]:
        """What is left in its temporary folder."""
        return [path.name for path in Path(self.folder).iterdir()]

    def wait_until_none_is_left(self) -> None:
        """Await the end of every process of it; fails when one stays."""
        for pid in self.pids():
            _wait_for_end(pid)

    def kill_all(self) -> None:
        """SIGKILL, for every process of it; they have ended then."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _wait_for_end(pid)
        self.process.wait(PATIENCE_S)

    def until(self, text: str) -> str:
        """Read standard output up to the line that holds `text`."""
        out = self.process.stdout
        assert out is not None
        seen = []
        for line in out:
            seen.append(line)
            if text in line:
                return "".join(seen)
        raise AssertionError(f"{text!r} isn't in:\n{''.join(seen)}\n{self.errors()}")

    def errors(self) -> str:
        """What it has written to standard error until now."""
        return self._log.read_text()

    def forget(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self.folder)
        self._log.unlink()

    def end(self, number: signal.Signals) -> int:
        """Send a signal; gives the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def _enter(cgroup: Path) -> None:
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))


def _parent(process: Path) -> int:
    """The parent's pid. The name in `stat` may hold spaces and brackets: fields are counted behind it."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def _wait_for_end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], PATIENCE_S)[0], f"process {pid} is left"
        finally:
            os.close(descriptor)


class Commands:
    """Starts commands, and ends whatever a test leaves. `forks`: nodes."""

    def __init__(self, *, forks: bool = True) -> None:
        self._forks = forks
        self._started: list[Command] = []

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> Command:
        return self._begun(Command(arguments, environment or {}))

    def _begun(self, command: Command) -> Command:
        self._started.append(command)
        return command

    def start_node(
        self, *arguments: str, environment: dict[str, str] | None = None, cgroup: Path | None = None
    ) -> tuple[Command, dict[str, Any]]:
        """`flockmq run` on free ports, and the ports it tells once it is ready. Its cluster isn't rolled back: what all
        nodes understand is used at once. `cgroup`: the folder of the one in which it runs."""
        command, told = self.begin_node(*arguments, environment=environment, cgroup=cgroup)
        return command, self.ready(command, told)

    def begin_node(
        self, *arguments: str, environment: dict[str, str] | None = None, cgroup: Path | None = None
    ) -> tuple[Command, int]:
        """One that isn't waited for, and where it tells its ports."""
        told, tell = os.pipe()
        environment = environment or {}
        forked = self._forks and "PYTHONPATH" not in environment and cgroup is None
        free = ("--listen", "127.0.0.1:0", "--management", "127.0.0.1:0", "--ready-fd", str(tell))
        try:
            return self._begun(
                Command(("run", *free, *arguments), environment, tell, forked=forked, cgroup=cgroup)
            ), told
        finally:
            os.close(tell)

    def ready(self, command: Command, told: int) -> dict[str, Any]:
        """Its ports, once it is ready."""
        with os.fdopen(told) as pipe:
            line = pipe.readline()
        assert line, command.errors()
        ports: dict[str, Any] = json.loads(line)
        return ports

    def refused(self, *arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
        """A command that can't work: its exit code, and its one error line without the prefix."""
        command = self.start(*arguments, environment=environment)
        command.process.wait(PATIENCE_S)
        errors = command.errors()
        assert "Traceback" not in errors
        last = errors.splitlines()[-1]
        assert last.startswith("flockmq: error: ")
        return command.process.returncode, last.removeprefix("flockmq: error: ")

    def end_all(self) -> None:
        """Prints the end of each one's log, which pytest shows where the test failed."""
        for command in self._started:
            command.kill_all()
            print(f"--- {' '.join(command.arguments)}\n{command.errors()[-LOG_SHOWN:]}")
            command.forget()
