"""A store upon a real Valkey that keeps what it answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from flockmq.durable.session_store import SessionStore
from integration.crashing_valkey import Valkey

A, B = b"client-a", b"client-b"
M = b"m"
OLD, NEW, NEWEST = "1-7 core-0@aa", "1-12 core-1@bb", "2-1 core-0@aa"


class Owner:
    """A core's store, and what it was told."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.fenced: asyncio.Queue[int] = asyncio.Queue()
        self.lost: asyncio.Queue[int] = asyncio.Queue()
        store.on_fenced = self.fenced.put_nowait
        store.on_lost = self.lost.put_nowait

    async def durable(self, slot: int) -> bool:
        """What a barrier is answered now."""
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.store.barrier(slot, answered.set_result)
        return await answered


Owners = Callable[[], Awaitable[Owner]]


@pytest.fixture
async def owner(valkey: Valkey) -> AsyncIterator[Owners]:
    """Makes owners; all are stopped at the end."""
    async with AsyncExitStack() as stack:
        owners = []

        async def start() -> Owner:
            made = Owner(SessionStore(valkey.config))
            await made.store.start()
            stack.push_async_callback(made.store.stop)
            owners.append(made)
            return made

        yield start
