"""One process of a host: it is started again when it ends, as Kubernetes would, unless it is held down."""

from __future__ import annotations

import asyncio
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from faults import sandbox

RESTART_MIN_S: Final = 0.3
RESTART_MAX_S: Final = 3.0
STEADY_S: Final = 30.0
GRACE_S: Final = 20.0


class Command(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]
    """Besides ours."""


class Supervised:
    """`command()` is asked at each start; `on_end` hears (exit code, last line of the log) of an end that nobody asked
    for."""

    def __init__(
        self, command: Callable[[], Command], folder: Path, log: Path, on_end: Callable[[int, str], None]
    ) -> None:
        self._command = command
        self._folder = folder
        self._log = log
        self._on_end = on_end
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_held = False
        self._asked_to_end = False
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None and not self._is_paused

    async def start(self) -> None:
        self._is_held = False
        if self._watching is None:
            await self._spawn()
            self._watching = asyncio.create_task(self._keep_running())

    async def kill(self) -> None:
        """SIGKILL, and stay down until `start`."""
        self._is_held = self._asked_to_end = True
        self._signal(signal.SIGKILL)
        await self._ended()

    async def drain(self) -> None:
        """SIGTERM, as a pod that is deleted gets it, SIGKILL when its grace is over; and stay down until `start`."""
        self._is_held = self._asked_to_end = True
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self._ended()
        except TimeoutError:
            await self.kill()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._signal(signal.SIGCONT)

    async def _ended(self) -> None:
        if self._watching is not None:
            await asyncio.shield(self._watching)
            self._watching = None
        self._is_paused = False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _spawn(self) -> None:
        command = self._command()
        self._asked_to_end = False
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command.arguments,
                env=sandbox.environment() | command.environment,
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # who stands still must not have the others hung up when a shell's job ends
            )

    async def _keep_running(self) -> None:
        wait_s = RESTART_MIN_S
        while True:
            assert self._process is not None
            started = time.monotonic()
            code = await self._process.wait()
            self._is_paused = False
            if not self._asked_to_end:
                self._on_end(code, self._last_line())
            if time.monotonic() - started > STEADY_S:
                wait_s = RESTART_MIN_S
            if not self._is_held:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RESTART_MAX_S)
            if self._is_held:
                return
            await self._spawn()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else ""
