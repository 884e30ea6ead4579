"""What clients may do is judged a slice a turn, so that much to judge holds up nobody's heartbeats.

What always holds: between two turns of the event loop no more than JUDGING_SLICE_RULES rules are looked at for clients
that waited, and as many for others; only the judgement that has begun is finished. Every client that waits has its
turn, however much others ask for. Users have equal shares, however many of their connections wait.
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


class JudgingTurns:
    """`access.authorize`, and how much of it there was in this turn."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access
        self._left = JUDGING_SLICE_RULES
        self._share_ends = 0
        """How much is left when the client that is judged has used up its share."""
        self._waiting: OrderedDict[bytes, OrderedDict[Hashable, Callable[[], None]]] = OrderedDict()
        """By user: the first is the one whose last turn was the longest ago."""
        self._all: set[Hashable] = set()
        self._has_begun = False
        """`_next` is on its way."""

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        """As `JudgePort.authorize`."""
        return self._count(partial(self._access.authorize, channel, action, topic, qos, retain, done))

    async def in_turn(self, user: bytes, judge: Callable[[], bool | None]) -> bool | None:
        """What `judge` says, when the user may have more judged."""
        await self.rest(user)
        return self._count(judge)

    def _count(self, judge: Callable[[], T]) -> T:
        authorizer = self._access.auth.authorizer
        before = authorizer.looked_at
        said = judge()
        self._left -= JUDGEMENT_RULES + authorizer.looked_at - before
        self._begin()
        return said

    def is_enough(self) -> bool:
        """Whether the client that is judged now is to `wait`."""
        return self._left <= self._share_ends

    def wait(self, who: Hashable, go_on: Callable[[], None], user: bytes = b"") -> None:
        """`go_on` is called in a later turn; `who` doesn't wait yet."""
        self._waiting.setdefault(user, OrderedDict())[who] = go_on
        self._all.add(who)
        self._begin()

    def is_waiting(self, who: Hashable) -> bool:
        return who in self._all

    async def rest(self, user: bytes = b"") -> None:
        """Wait, if it is enough."""
        if self.is_enough():
            rested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.wait(rested, partial(_end, rested), user)
            await rested

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A turn later: some of those that wait, then whoever comes."""
        self._left = JUDGING_SLICE_RULES
        self._has_begun = False
        for _ in range(min(_SHARES, len(self._all))):
            if self._left <= 0:
                break
            self._share_ends = max(self._left - JUDGING_SHARE_RULES, 0)
            self._take()()
        self._share_ends = 0
        if self._all:
            self._begin()

    def _take(self) -> Callable[[], None]:
        """The first of the user whose turn it is."""
        user, waiting = self._waiting.popitem(last=False)
        who, go_on = waiting.popitem(last=False)
        self._all.discard(who)
        if waiting:
            self._waiting[user] = waiting
        return go_on


def _end(rest: asyncio.Future[None]) -> None:
    if not rest.done():
        rest.set_result(None)
