"""A host of a lab: its processes, its link, its small volume, its clock; and what may happen to each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from faults import sandbox
from faults.network import Wire
from faults.shim import Shim
from faults.supervised import Command, Supervised

OnEnd = Callable[["Host", int, str], None]
"""(host, exit code, the last line of its log), of an end of a process that nobody asked for."""
FILLER: Final = "filler"
RUNS_S: Final = 0.01
"""How long a strained host runs between two stops: the interpreter has done an iteration by then."""


class Host:
    """`programs`: what runs here, and how; the first is what the host is there for."""

    def __init__(
        self,
        name: str,
        address: str,
        logs: Path,
        data_bytes: int,
        programs: Mapping[str, Callable[[], Command]],
        on_end: OnEnd,
    ) -> None:
        self.name = name
        self.address = address
        self.data = sandbox.FOLDER / name
        self.wire = Wire(name, address)
        self.shim = Shim(sandbox.FOLDER / f"{name}.shim")
        self.is_hindered = False
        """Its disk is full, or stalls."""
        self._straining: asyncio.Task[None] | None = None
        self.data.mkdir()
        sandbox.run("mount", "-t", "tmpfs", "-o", f"size={data_bytes}", "none", str(self.data))
        self._processes = [
            Supervised(
                self._here(program), self.data, logs / f"{of}.log", lambda code, words: on_end(self, code, words)
            )
            for of, program in programs.items()
        ]

    @property
    def is_running(self) -> bool:
        return self._processes[0].is_running

    def gave_reason(self, code: int, last_words: str) -> bool:
        """It may end like this by itself."""
        raise NotImplementedError

    # --- its processes ---

    async def start(self) -> None:
        self.shim.fail_disk(False)
        for process in self._processes:
            await process.start()

    async def kill(self) -> None:
        await asyncio.gather(*(process.kill() for process in self._processes))

    async def drain(self) -> None:
        await asyncio.gather(*(process.drain() for process in self._processes))

    def pause(self) -> None:
        for process in self._processes:
            process.pause()

    def resume(self) -> None:
        for process in self._processes:
            process.resume()

    def strain(self, iteration_s: float) -> None:
        """It stands still for so long, again and again."""
        if self._straining is not None:
            self._straining.cancel()
        self._straining = asyncio.create_task(self._strain(iteration_s)) if iteration_s else None

    async def _strain(self, iteration_s: float) -> None:
        try:
            while True:
                self.pause()
                await asyncio.sleep(iteration_s)
                self.resume()
                await asyncio.sleep(RUNS_S)
        finally:
            self.resume()

    def _here(self, program: Callable[[], Command]) -> Callable[[], Command]:
        def command() -> Command:
            arguments, environment = program()
            return Command(self.wire.inside(*arguments), environment | self.shim.environment())

        return command

    # --- its volume ---

    def fill(self) -> None:
        self.is_hindered = True
        with contextlib.suppress(OSError), (self.data / FILLER).open("wb") as filler:
            while True:
                filler.write(bytes(65_536))
                filler.flush()

    def clear(self) -> None:
        (self.data / FILLER).unlink(missing_ok=True)
        self.is_hindered = False

    def stall_disk(self, stalls: bool) -> None:
        self.is_hindered = stalls
        self.shim.stall_disk(stalls)

    def fail_disk(self) -> None:
        self.shim.fail_disk(True)

    def corrupt(self) -> None:
        files = [path for path in self.data.rglob("*") if path.is_file() and path.stat().st_size]
        if not files:
            return
        with max(files, key=lambda path: path.stat().st_size).open("r+b") as file:
            middle = file.seek(0, 2) // 2
            file.seek(middle)
            flipped = file.read(1)[0] ^ 1
            file.seek(middle)
            file.write(bytes((flipped,)))

    # --- its clock and its link ---

    def shift_clock(self, seconds: float, drift: float = 0.0) -> None:
        self.shim.shift_clock(seconds, drift)

    def slow_down(self, delay_s: float) -> None:
        self.wire.slow_down(delay_s)

    def lose(self, percent: float) -> None:
        self.wire.lose(percent)
