"""Room for so many passes at a time, in which none is kept by a node that takes its time.

Nodes are pods of whoever wrote the MqttCluster: they may accept a connection and never answer. So a pass gives its slot
back while it asks one, and waits for another when it has the answer. Some of what a pass does at once may be asking:
while any is, it has no slot.
"""

import asyncio
from contextvars import ContextVar
from types import TracebackType


class Slot:
    """What one pass has of `room`."""

    def __init__(self, room: asyncio.Semaphore) -> None:
        self._room = room
        self._is_held = self._is_over = False
        self._asking = 0

    async def begin(self) -> None:
        await self._room.acquire()
        self._is_held = True
        _of_this_pass.set(self)

    def end(self) -> None:
        self._is_over = True
        self._release()

    def leave(self) -> None:
        self._asking += 1
        self._release()

    async def come_back(self) -> None:
        self._asking -= 1
        if self._is_needed():
            await self._room.acquire()
            if self._is_needed():
                self._is_held = True
            else:  # meanwhile another part of the pass has it, or asks, or the pass is over
                self._room.release()

    def _is_needed(self) -> bool:
        return not (self._asking or self._is_held or self._is_over)

    def _release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._room.release()


_of_this_pass: ContextVar[Slot | None] = ContextVar("slot", default=None)


class asking:
    """While a node is asked."""

    async def __aenter__(self) -> None:
        self._slot = _of_this_pass.get()
        if self._slot:
            self._slot.leave()

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._slot and kind is not asyncio.CancelledError:
            await self._slot.come_back()
