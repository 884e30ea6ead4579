"""Questions to other services, in turn: what one client asks holds up no other.

What always holds: at most ASKED_MAX are under way, ASKED_OF_CLIENT_MAX of one client; of the clients whose questions
wait each has its turn, and its questions keep their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from flockmq.bounds import ASKED_MAX, ASKED_OF_CLIENT_MAX, ASKING_OF_CLIENT_MAX

Question = Callable[[], Coroutine[Any, Any, None]]


class Asking:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: Counter[bytes] = Counter()
        """Under way, by client."""
        self._waiting: dict[bytes, deque[Question]] = {}
        self._next: deque[bytes] = deque()
        """Clients whose questions wait, and who have less than their share under way."""

    def __len__(self) -> int:
        """Under way, or waiting."""
        return len(self._tasks) + sum(map(len, self._waiting.values()))

    async def stop(self) -> None:
        self._waiting.clear()
        self._next.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ask(self, client_id: bytes, question: Question) -> bool:
        """False: as many of this client's wait as may."""
        waiting = self._waiting.get(client_id)
        if waiting is not None:
            if len(waiting) >= ASKING_OF_CLIENT_MAX:
                return False
            waiting.append(question)
        elif len(self._tasks) < ASKED_MAX and self._has_share(client_id):
            self._begin(client_id, question)
        else:
            self._waiting[client_id] = deque((question,))
            if self._has_share(client_id):
                self._next.append(client_id)
        return True

    def _has_share(self, client_id: bytes) -> bool:
        return self._asked[client_id] < ASKED_OF_CLIENT_MAX

    def _begin(self, client_id: bytes, question: Question) -> None:
        self._asked[client_id] += 1
        task = asyncio.ensure_future(question())
        self._tasks.add(task)
        task.add_done_callback(partial(self._answered, client_id))

    def _answered(self, client_id: bytes, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        had_share = self._has_share(client_id)
        self._asked[client_id] -= 1
        if not self._asked[client_id]:
            del self._asked[client_id]
        if client_id in self._waiting and not had_share:
            self._next.append(client_id)
        while self._next and len(self._tasks) < ASKED_MAX:
            self._begin_next(self._next.popleft())

    def _begin_next(self, client_id: bytes) -> None:
        waiting = self._waiting[client_id]
        self._begin(client_id, waiting.popleft())
        if not waiting:
            del self._waiting[client_id]
        elif self._has_share(client_id):
            self._next.append(client_id)
