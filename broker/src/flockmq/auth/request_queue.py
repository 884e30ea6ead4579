"""Questions to other services, in turn, so that the questions of one connection hold up no other.

What always holds: at most ASKED_MAX questions are under way, and ASKED_OF_CONNECTION_MAX of one connection. Connections
whose questions wait take turns, and the questions of one keep their order. Of connections that are gone at most
ASKING_OF_GONE_MAX questions wait, so a client that connects again and again costs no more than that.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any

from flockmq.bounds import ASKED_MAX, ASKED_OF_CONNECTION_MAX, ASKING_OF_CONNECTION_MAX, ASKING_OF_GONE_MAX

Question = Callable[[], Coroutine[Any, Any, None]]
Refused = Callable[[], object]
"""Nobody is asked."""


class Asking:
    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._asked: Counter[Hashable] = Counter()
        """Under way, by connection."""
        self._waiting: dict[Hashable, deque[tuple[Question, Refused]]] = {}
        self._next: OrderedDict[Hashable, None] = OrderedDict()
        """Connections whose questions wait, and that have less than their share under way."""
        self._gone: set[Hashable] = set()
        """Connections that are gone, whose questions wait."""
        self._waiting_of_gone = 0

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

    def ask(self, connection: Hashable, question: Question, refused: Refused) -> None:
        """One of the two is called, in a later turn."""
        waiting = self._waiting.get(connection)
        if waiting is not None:
            if len(waiting) < ASKING_OF_CONNECTION_MAX and connection not in self._gone:
                waiting.append((question, refused))
            else:
                _tell_soon(refused)
        elif len(self._tasks) < ASKED_MAX and self._has_share(connection):
            self._begin(connection, question)
        else:
            self._waiting[connection] = deque(((question, refused),))
            if self._has_share(connection):
                self._next[connection] = None

    def gone(self, connection: Hashable) -> None:
        """The connection is gone. What it asked is still asked, while not too many such questions wait."""
        waiting = self._waiting.get(connection)
        if waiting is None or connection in self._gone:
            return
        while waiting and self._waiting_of_gone + len(waiting) > ASKING_OF_GONE_MAX:
            _tell_soon(waiting.pop()[1])
        if waiting:
            self._waiting_of_gone += len(waiting)
            self._gone.add(connection)
        else:
            del self._waiting[connection]
            self._next.pop(connection, None)

    def _has_share(self, connection: Hashable) -> bool:
        return self._asked[connection] < ASKED_OF_CONNECTION_MAX

    def _begin(self, connection: Hashable, question: Question) -> None:
        self._asked[connection] += 1
        task = asyncio.ensure_future(question())
        self._tasks[task] = None
        task.add_done_callback(partial(self._answered, connection))

    def _answered(self, connection: Hashable, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        had_share = self._has_share(connection)
        self._asked[connection] -= 1
        if not self._asked[connection]:
            del self._asked[connection]
        if connection in self._waiting and not had_share:
            self._next[connection] = None
        while self._next and len(self._tasks) < ASKED_MAX:
            self._begin_next(self._next.popitem(last=False)[0])

    def _begin_next(self, connection: Hashable) -> None:
        waiting = self._waiting[connection]
        question, _ = waiting.popleft()
        if connection in self._gone:
            self._waiting_of_gone -= 1
        self._begin(connection, question)
        if not waiting:
            del self._waiting[connection]
            self._gone.discard(connection)
        elif self._has_share(connection):
            self._next[connection] = None


def _tell_soon(refused: Refused) -> None:
    asyncio.get_running_loop().call_soon(refused)
