"""Limits authorization checks to a time slice per event-loop iteration, so that many checks don't delay heartbeats.

Invariants:
- In one iteration at most JUDGING_SLICE_RULES rules are checked for waiting clients, and as many for others. Only a
  check that has begun is finished beyond that.
- Every waiting client gets its turn, however many requests others send, and whatever fails in another one's turn.
- Users get equal shares, however many of their connections wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, TypeVar

from flockmq.bounds import JUDGEMENT_RULES, JUDGING_SHARE_RULES, JUDGING_SLICE_RULES
from flockmq.node.access_control import AccessControl
from flockmq.protocol.channel import Channel

T = TypeVar("T")
_SHARES: Final = JUDGING_SLICE_RULES // JUDGING_SHARE_RULES


class AuthorizationTurns:
    """Calls `access.authorize`, and counts the rules that were checked in this iteration."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access
        self._left = JUDGING_SLICE_RULES
        self._share_ends = 0
        """The value of `_left` at which the current client has used up its share."""
        self._waiting: OrderedDict[bytes, OrderedDict[Hashable, Callable[[], None]]] = OrderedDict()
        """Waiting clients, by user. The user whose last turn is longest ago is first."""
        self._all: set[Hashable] = set()
        self._has_begun = False
        """Whether a call of `_next` is scheduled."""

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        """As `AuthorizationPort.authorize`."""
        return self._count(partial(self._access.authorize, channel, action, topic, qos, retain, done))

    async def in_turn(self, user: bytes, check: Callable[[], bool | None]) -> bool | None:
        """Run `check` when the user has a share left, and return its result."""
        await self.rest(user)
        return self._count(check)

    def _count(self, check: Callable[[], T]) -> T:
        authorizer = self._access.auth.authorizer
        before = authorizer.looked_at
        result = check()
        self._left -= JUDGEMENT_RULES + authorizer.looked_at - before
        self._begin()
        return result

    def is_enough(self) -> bool:
        """Whether the current client has used up its share and must `wait`."""
        return self._left <= self._share_ends

    def wait(self, who: Hashable, go_on: Callable[[], None], user: bytes = b"") -> None:
        """Call `go_on` when it is the user's turn, in a later iteration. `who` must not be waiting already."""
        self._waiting.setdefault(user, OrderedDict())[who] = go_on
        self._all.add(who)
        self._begin()

    async def rest(self, user: bytes = b"") -> None:
        """Wait for the user's turn if the share is used up."""
        if self.is_enough():
            rested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.wait(rested, partial(_end, rested), user)
            await rested

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """The next iteration: run some waiting clients, then allow others their slice."""
        self._left = JUDGING_SLICE_RULES
        self._has_begun = False
        try:
            for _ in range(min(_SHARES, len(self._all))):
                if self._left <= 0:
                    break
                self._share_ends = max(self._left - JUDGING_SHARE_RULES, 0)
                self._take()()
        finally:  # also after an error of one client, which the event loop logs
            self._share_ends = 0
            if self._all:
                self._begin()

    def _take(self) -> Callable[[], None]:
        """The next waiting client of the user whose turn it is."""
        user, waiting = self._waiting.popitem(last=False)
        who, go_on = waiting.popitem(last=False)
        self._all.discard(who)
        if waiting:
            self._waiting[user] = waiting
        return go_on


def _end(rest: asyncio.Future[None]) -> None:
    if not rest.done():
        rest.set_result(None)
