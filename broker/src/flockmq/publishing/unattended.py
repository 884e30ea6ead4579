"""Messages that no connection waits for: wills, delayed ones that are due, what plugins publish, what a member of a
shared subscription left to the others.

Nobody sends them again. So what finds no room (a link, a lane, a shared group, the log), or tables that may be old, is
tried again until it does, at longer and longer intervals.

What always holds: `accepted` is called once, when everybody who is to have the message has it, or nobody will (it
may not be, it expired, it has a topic that can't be, or too much waits here); nobody is given it twice by this node.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final

from flockmq.auth.deferred_authorization import StoredAuthorization
from flockmq.bounds import (
    OFFER_RETRY_MAX_S,
    OFFER_RETRY_MIN_S,
    OFFERED_BYTES,
    OFFERED_MAX_BYTES,
    OFFERED_TOGETHER_MAX,
)
from flockmq.mqtt.message import Publish, waited
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_delayed
from flockmq.routing.group import Group
from flockmq.routing.router import Router

log: Final = logging.getLogger(__name__)

Write = Callable[[Publish], Awaitable[int]]
"""Have the log take a message: the reason code."""
Delay = Callable[[Publish, StoredAuthorization | None], Awaitable[int]]
"""The same of one for later, and of whom it is."""
May = Callable[[], Awaitable[bool]]
"""Whether it is published at all."""


class _Offer:
    """`groups`: shared subscriptions that are to have it yet, once the others were given it; `waits`: who was given it
    and hasn't accepted it; `authorization`: of whom it is, if anybody knows.
    """

    __slots__ = ("accepted", "authorization", "groups", "is_given", "is_retained", "message", "since_s", "waits")

    def __init__(
        self,
        message: Publish,
        accepted: Callable[[], None],
        since_s: float,
        authorization: StoredAuthorization | None = None,
    ) -> None:
        self.message = message
        self.authorization = authorization
        self.accepted = accepted
        self.since_s = since_s
        self.is_retained = False
        self.groups: list[Group] | None = None
        self.waits = 0
        self.is_given = False

    def size(self) -> int:
        return OFFERED_BYTES + len(self.message.packet)

    def one(self) -> None:
        """Some do so amid the call that asks them."""
        self.waits -= 1
        if self.waits == 0 and self.is_given:
            self.accepted()

    def given(self) -> None:
        self.is_given = True
        if self.waits == 0:
            self.accepted()


class Unattended:
    """`retain` and `delay` have the log take a message; `spawn` runs what takes time; `now_s` only grows."""

    def __init__(
        self,
        router: Router,
        retain: Write,
        delay: Delay,
        spawn: Callable[[Awaitable[None]], None],
        flush: Callable[[], None],
        now_s: Callable[[], float],
    ) -> None:
        self._router = router
        self._retain = retain
        self._delay = delay
        self._spawn = spawn
        self._flush = flush
        self._now_s = now_s
        self._refused: deque[_Offer] = deque()
        self._is_trying = False
        self.waiting_bytes = 0
        """Of messages that are tried again."""

    def __len__(self) -> int:
        """Messages that are tried again."""
        return len(self._refused)

    def publish(
        self,
        message: Publish,
        accepted: Callable[[], None],
        authorization: StoredAuthorization | None = None,
        may: May | None = None,
    ) -> None:
        """Not at once, for it may be asked for amid another message's delivery. `may`: asked first, if it is there."""
        self._spawn(self._first(_Offer(message, accepted, self._now_s(), authorization), may))

    def share(self, group: Group, message: Publish, accepted: Callable[[], None]) -> None:
        """One message for a member of a shared subscription, which can't be refused any more; nobody had room."""
        self._router.counters.dropped_no_room -= 1  # it isn't dropped yet
        offer = _Offer(message, accepted, self._now_s())
        offer.is_retained = True
        offer.groups = [group]
        self._later(offer)

    async def publish_due(self, message: Publish) -> bool:
        """It returns when the message was accepted; False: nobody was given it, there was no room for it."""
        accepted = asyncio.Event()
        offer = _Offer(message, accepted.set, self._now_s())
        if not await self._try(offer):
            if offer.groups is None:
                return False
            self._later(offer)
        await accepted.wait()
        return True

    async def _first(self, offer: _Offer, may: May | None) -> None:
        if may is not None and not await may():
            offer.accepted()
        elif not await self._try(offer):
            self._later(offer)

    def _later(self, offer: _Offer) -> None:
        size = offer.size()
        if self.waiting_bytes + size > OFFERED_MAX_BYTES:
            log.error("a message to %r found no room and is lost: as much as may waits already", offer.message.topic)
            self._router.counters.dropped_no_room += 1
            offer.accepted()
            return
        self.waiting_bytes += size
        self._refused.append(offer)
        if not self._is_trying:
            self._is_trying = True
            self._spawn(self._try_again())

    async def _try_again(self) -> None:
        pause_s = OFFER_RETRY_MIN_S
        try:
            while self._refused:
                await asyncio.sleep(pause_s)
                left = before = len(self._refused)
                while left:
                    some = list(islice(self._refused, min(left, OFFERED_TOGETHER_MAX)))
                    left -= len(some)
                    await self._try_some(some)
                went = len(self._refused) < before
                pause_s = OFFER_RETRY_MIN_S if went else min(2 * pause_s, OFFER_RETRY_MAX_S)
        finally:
            self._is_trying = False

    async def _try_some(self, offers: list[_Offer]) -> None:
        """The first of those that wait; who isn't through waits behind the others."""
        went = await asyncio.gather(*(self._try(offer) for offer in offers))
        for offer, is_through in zip(offers, went, strict=True):
            self._refused.popleft()
            if is_through:
                self.waiting_bytes -= offer.size()
            else:
                self._refused.append(offer)

    async def _try(self, offer: _Offer) -> bool:
        """Whether nothing more is to be done here, though others may still have to accept it."""
        try:
            return await self._tried(offer)
        except Exception:  # it would fail again and again
            log.exception("a message to %r can't be published", offer.message.topic)
            offer.accepted()
            return True

    async def _tried(self, offer: _Offer) -> bool:
        message = waited(offer.message, int(self._now_s() - offer.since_s))
        if message is None:
            self._router.counters.dropped_expired += 1
            offer.accepted()
            return True
        if is_delayed(message.topic):
            return self._is_logged(offer, await self._delay(message, offer.authorization))
        if message.retain and not offer.is_retained:
            offer.is_retained = await self._retain(message) < 0x80
            if not offer.is_retained:
                return False
        through = self._give(offer, message)
        self._flush()
        return through

    def _is_logged(self, offer: _Offer, reason: int) -> bool:
        if reason >= 0x80 and reason != Reason.TOPIC_NAME_INVALID:
            return False
        offer.accepted()
        return True

    def _give(self, offer: _Offer, message: Publish) -> bool:
        router = self._router
        if router.stale and message.qos:
            return False
        if offer.groups is None:
            fan = router.route(message.topic).fanout
            if not router.has_room(fan, message):
                return False
            offer.groups = list(fan.groups)
            asked = router.forward_to_all(fan, message, offer.one)  # amid which some accept it
            offer.waits += max(0, asked)
            router.delivery.deliver(fan, message, None)
        offer.groups = [group for group in offer.groups if not self._give_to(group, offer, message)]
        if offer.groups:
            return False
        offer.given()
        return True

    def _give_to(self, group: Group, offer: _Offer, message: Publish) -> bool:
        asked = self._router.shared.dispatch(group, message, None, offer.one)
        if asked < 0:
            self._router.counters.dropped_no_room -= 1  # it isn't dropped yet
            return False
        offer.waits += asked
        return True
