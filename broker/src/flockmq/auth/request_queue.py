"""A fair queue of requests to other services, so that no user's requests hold up another's.

Invariants:
- At most ASKED_MAX requests are in flight, and ASKED_OF_CONNECTION_MAX of one connection.
- Users with waiting requests take turns, and so do the connections of one user. Requests of one connection start in
  order.
- At most ASKING_OF_GONE_MAX requests of closed connections wait, so a client that reconnects again and again costs no
  more than that.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any

from flockmq import tasks
from flockmq.bounds import ASKED_MAX, ASKED_OF_CONNECTION_MAX, ASKING_OF_CONNECTION_MAX, ASKING_OF_GONE_MAX
from flockmq.user_turns import TurnQueue

Request = Callable[[], Coroutine[Any, Any, None]]
Refused = Callable[[], object]
"""Called if the request is dropped."""


class RequestQueue:
    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._asked: Counter[Hashable] = Counter()
        """Requests in flight, by connection."""
        self._waiting: dict[Hashable, deque[tuple[Request, Refused]]] = {}
        self._users: dict[Hashable, bytes] = {}
        """Whose the connections with waiting requests are."""
        self._next = TurnQueue[Hashable]()
        """Connections with waiting requests that may have another request in flight, and some that no longer have."""
        self._gone: set[Hashable] = set()
        """Closed connections with waiting requests."""
        self._waiting_of_gone = 0

    def __len__(self) -> int:
        """Requests in flight and waiting."""
        return len(self._tasks) + sum(map(len, self._waiting.values()))

    async def stop(self) -> None:
        self._waiting.clear()
        self._next = TurnQueue()
        await tasks.end(*self._tasks)

    def ask(self, connection: Hashable, user: bytes, request: Request, refused: Refused) -> None:
        """Call `request` or, if the queue is full, `refused`; neither before this function returns."""
        waiting = self._waiting.get(connection)
        if waiting is not None:
            if len(waiting) < ASKING_OF_CONNECTION_MAX and connection not in self._gone:
                waiting.append((request, refused))
            else:
                _refuse_soon(refused)
        elif len(self._tasks) < ASKED_MAX and self._has_share(connection):
            self._begin(connection, request)
        else:
            self._waiting[connection] = deque(((request, refused),))
            self._users[connection] = user
            if self._has_share(connection):
                self._next.append(user, connection)

    def gone(self, connection: Hashable) -> None:
        """The connection has closed. Its waiting requests stay, up to ASKING_OF_GONE_MAX of all closed connections."""
        waiting = self._waiting.get(connection)
        if waiting is None or connection in self._gone:
            return
        while waiting and self._waiting_of_gone + len(waiting) > ASKING_OF_GONE_MAX:
            _refuse_soon(waiting.pop()[1])
        if waiting:
            self._waiting_of_gone += len(waiting)
            self._gone.add(connection)
        else:
            del self._waiting[connection], self._users[connection]

    def _has_share(self, connection: Hashable) -> bool:
        return self._asked[connection] < ASKED_OF_CONNECTION_MAX

    def _begin(self, connection: Hashable, request: Request) -> None:
        self._asked[connection] += 1
        task = asyncio.ensure_future(request())
        self._tasks[task] = None
        task.add_done_callback(partial(self._answered, connection))

    def _answered(self, connection: Hashable, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        had_share = self._has_share(connection)
        self._asked[connection] -= 1
        if not self._asked[connection]:
            del self._asked[connection]
        if connection in self._waiting and not had_share:
            self._next.append(self._users[connection], connection)
        while self._next and len(self._tasks) < ASKED_MAX:
            self._begin_next(*self._next.popleft())

    def _begin_next(self, user: bytes | None, connection: Hashable) -> None:
        waiting = self._waiting.get(connection)
        if waiting is None or not self._has_share(connection):
            return
        request, _ = waiting.popleft()
        if connection in self._gone:
            self._waiting_of_gone -= 1
        self._begin(connection, request)
        if not waiting:
            del self._waiting[connection], self._users[connection]
            self._gone.discard(connection)
        elif self._has_share(connection):
            self._next.append(user, connection)


def _refuse_soon(refused: Refused) -> None:
    asyncio.get_running_loop().call_soon(refused)
