"""`flockmq`, with a watch on its pauses: python watched.py run ….

SIGUSR1 has it collect all garbage, add a line of JSON to the file `pauses` of its working folder, and begin anew: the
longest garbage collection, the longest time, beyond its millisecond, for which the event loop didn't turn, and the most
processor time that it spent without turning: on a machine that has other work, that much of it was its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import uvloop

TICK_S: Final = 0.001


class Watch:
    def __init__(self) -> None:
        self.collection_s = 0.0
        self.loop_s = 0.0
        self.loop_cpu_s = 0.0
        self._collecting_since = 0.0
        self._ticked_at = 0.0
        self._ticked_at_cpu = 0.0

    def collecting(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = time.perf_counter()
        else:
            self.collection_s = max(self.collection_s, time.perf_counter() - self._collecting_since)

    def tick(self) -> None:
        now, now_cpu = time.perf_counter(), time.thread_time()
        if self._ticked_at:
            self.loop_s = max(self.loop_s, now - self._ticked_at - TICK_S)
            self.loop_cpu_s = max(self.loop_cpu_s, now_cpu - self._ticked_at_cpu)
        self._ticked_at, self._ticked_at_cpu = now, now_cpu
        asyncio.get_running_loop().call_later(TICK_S, self.tick)

    def tell(self, *_: object) -> None:
        gc.collect()
        with Path("pauses").open("a") as file:
            pauses = {"collection": self.collection_s, "loop": self.loop_s, "loop_cpu": self.loop_cpu_s}
            file.write(json.dumps({f"{name}_ms": seconds * 1e3 for name, seconds in pauses.items()}) + "\n")
        self.collection_s = self.loop_s = self.loop_cpu_s = 0.0
        self._ticked_at = 0.0


def main() -> None:
    watch, run = Watch(), uvloop.run
    gc.callbacks.append(watch.collecting)
    signal.signal(signal.SIGUSR1, watch.tell)

    def watched(program: Coroutine[Any, Any, int]) -> int:
        async def ticking() -> int:
            watch.tick()
            return await program

        return run(ticking())

    uvloop.run = watched  # type: ignore[assignment]
    from flockmq.cli import main as flockmq

    flockmq()


if __name__ == "__main__":
    main()
