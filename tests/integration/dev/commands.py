"""Real `flockmq` commands, each with a temporary folder of its own, by which every process it leaves is found.

A process belongs to a command if its TMPDIR is that folder, or if it works in a folder below (a Valkey overwrites its
environment with its title).
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
from pathlib import Path
from typing import Any, Final

PATIENCE_S: Final = 60
"""How long an event may take on a busy machine before the test gives up."""


class Command:
    """One running `flockmq` and all processes below it."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], ready_fd: int | None) -> None:
        self.folder = tempfile.mkdtemp(prefix="flockmq-test-")
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flockmq", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment | {"TMPDIR": self.folder},
            pass_fds=() if ready_fd is None else (ready_fd,),
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
                if ours and wanted <= environment:
                    found.append(int(process.name))
        return found

    def files(self) -> list[str]:
        """What is left in its temporary folder."""
        return [path.name for path in Path(self.folder).iterdir()]

    def wait_until_none_is_left(self) -> None:
        """Await the end of every process of it; fails when one stays."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                try:
                    assert select.select([descriptor], [], [], PATIENCE_S)[0], f"process {pid} is left"
                finally:
                    os.close(descriptor)

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
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self, number: signal.Signals) -> int:
        """Send a signal; gives the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


class Commands:
    """Starts commands, and ends whatever a test leaves."""

    def __init__(self) -> None:
        self._started: list[Command] = []

    def start(self, *arguments: str, environment: dict[str, str] | None = None, ready_fd: int | None = None) -> Command:
        command = Command(arguments, environment or {}, ready_fd)
        self._started.append(command)
        return command

    def start_node(self, *arguments: str, environment: dict[str, str] | None = None) -> tuple[Command, dict[str, Any]]:
        """`flockmq run` on free ports, and the ports it tells once it is ready."""
        told, tell = os.pipe()
        free = ("--listen", "127.0.0.1:0", "--management", "127.0.0.1:0", "--ready-fd", str(tell))
        try:
            command = self.start("run", *free, *arguments, environment=environment, ready_fd=tell)
        finally:
            os.close(tell)
        with os.fdopen(told) as pipe:
            line = pipe.readline()
        assert line, command.errors()
        return command, json.loads(line)

    def refused(self, *arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
        """A command that can't work: its exit code, and its one error line without the prefix."""
        command = self.start(*arguments, environment=environment)
        _, errors = command.process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in errors
        last = errors.splitlines()[-1]
        assert last.startswith("flockmq: error: ")
        return command.process.returncode, last.removeprefix("flockmq: error: ")

    def end_all(self) -> None:
        for command in self._started:
            for pid in command.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            command.process.communicate()
            shutil.rmtree(command.folder)
