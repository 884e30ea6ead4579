"""Waiting for what no event tells, on the running loop's time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

POLL_S: Final = 0.05


async def until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(POLL_S)


async def holds_within(patience_s: float, holds: Callable[[], bool]) -> bool:
    """Whether it came to that in time."""
    try:
        async with asyncio.timeout(patience_s):
            await until(holds)
    except TimeoutError:
        return False
    return True
