"""Publishes messages for which no connection waits: wills, due delayed messages, messages of plugins, and messages of
shared subscriptions for which no member had room.

No client sends these messages again. So this node retries a message, at longer and longer intervals, if there is no
room for it (on a link, in a queue, in a shared group, in the log), or if its routing tables may be stale.

Invariants: `accepted` is called once: when all receivers have accepted the message, or when it is certain that nobody
will get it (it isn't allowed, it expired, its topic is invalid, or too many messages wait here). This node sends it to
no receiver twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final

from flockmq.auth.stored_authorization import StoredAuthorization
from flockmq.bounds import OFFER_RETRY_MAX_S, OFFER_RETRY_MIN_S, OFFERED_BYTES, OFFERED_MAX_BYTES, OFFERED_TOGETHER_MAX
from flockmq.mqtt.message import Publish, waited
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_delayed
from flockmq.routing.group import Group
from flockmq.routing.router import Router

log: Final = logging.getLogger(__name__)

Write = Callable[[Publish], Awaitable[int]]
"""Writes a message to the log; returns the reason code."""
Delay = Callable[[Publish, StoredAuthorization | None], Awaitable[int]]
"""Writes a delayed message, with the authorization of its publisher; returns the reason code."""
May = Callable[[], Awaitable[bool]]
"""Whether its client may still publish the message."""


class _Offer:
    """One message to publish. `groups`: shared subscriptions that still have to get it; None before the other receivers
    got it. `waits`: how many receivers haven't accepted it yet. `authorization`: its publisher's, if known."""

    __slots__ = ("accepted", "authorization", "groups", "is_retained", "is_sent", "message", "since_s", "waits")

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
        self.is_sent = False

    def size(self) -> int:
        return OFFERED_BYTES + len(self.message.packet)

    def one(self) -> None:
        """A receiver accepted it. This may be called before the call that sends it has returned."""
        self.waits -= 1
        if self.waits == 0 and self.is_sent:
            self.accepted()

    def all_sent(self) -> None:
        """Nothing more must be sent: `accepted` is called when the last receiver accepts it."""
        self.is_sent = True
        if self.waits == 0:
            self.accepted()


class Unattended:
    """`retain` and `delay` write a message to the log. `spawn` runs a coroutine as a task. `flush` makes the reactor
    write queued output. `now_s` is monotonic."""

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
        """The size of the messages that wait for a retry."""

    def __len__(self) -> int:
        """How many messages wait for a retry."""
        return len(self._refused)

    def publish(
        self,
        message: Publish,
        accepted: Callable[[], None],
        authorization: StoredAuthorization | None = None,
        may: May | None = None,
    ) -> None:
        """Publish the message in a separate task, because the caller may be in the middle of another delivery. If `may`
        is given and returns False, the message is dropped."""
        self._spawn(self._first(_Offer(message, accepted, self._now_s(), authorization), may))

    def share(self, group: Group, message: Publish, accepted: Callable[[], None]) -> None:
        """Retry a message of a shared subscription for which no member had room. Its publisher can't be told any
        more."""
        self._router.counters.dropped_no_room -= 1  # it isn't dropped yet
        offer = _Offer(message, accepted, self._now_s())
        offer.is_retained = True
        offer.groups = [group]
        self._later(offer)

    async def publish_due(self, message: Publish) -> bool:
        """Return True when all receivers have accepted the message, or False if nobody got it: try again."""
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
        """Retry the message later. If too many wait already, drop it."""
        size = offer.size()
        if self.waiting_bytes + size > OFFERED_MAX_BYTES:
            log.error(
                "a message to %r is lost: there is no room for it, and too many messages wait already",
                offer.message.topic,
            )
            self._router.counters.dropped_no_room += 1
            offer.accepted()
            return
        self.waiting_bytes += size
        self._refused.append(offer)
        if not self._is_trying:
            self._is_trying = True
            self._spawn(self._try_again())

    async def _try_again(self) -> None:
        """Retry all waiting messages, round by round. After a round without success the pause doubles."""
        pause_s = OFFER_RETRY_MIN_S
        try:
            while self._refused:
                await asyncio.sleep(pause_s)
                remaining = before = len(self._refused)
                while remaining:
                    some = list(islice(self._refused, min(remaining, OFFERED_TOGETHER_MAX)))
                    remaining -= len(some)
                    await self._try_some(some)
                went = len(self._refused) < before
                pause_s = OFFER_RETRY_MIN_S if went else min(2 * pause_s, OFFER_RETRY_MAX_S)
        finally:
            self._is_trying = False

    async def _try_some(self, offers: list[_Offer]) -> None:
        """Try the first waiting messages. Those that still fail go to the end of the queue."""
        went = await asyncio.gather(*(self._try(offer) for offer in offers))
        for offer, is_through in zip(offers, went, strict=True):
            self._refused.popleft()
            if is_through:
                self.waiting_bytes -= offer.size()
            else:
                self._refused.append(offer)

    async def _try(self, offer: _Offer) -> bool:
        """Returns True if nothing more must be sent. Receivers may still have to accept it."""
        try:
            return await self._tried(offer)
        except Exception:  # a retry would fail in the same way
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
        through = self._deliver(offer, message)
        self._flush()
        return through

    def _is_logged(self, offer: _Offer, reason: int) -> bool:
        """Handle the reason code of a delayed message's write. Returns False if it must be retried."""
        if reason >= 0x80 and reason != Reason.TOPIC_NAME_INVALID:
            return False
        offer.accepted()
        return True

    def _deliver(self, offer: _Offer, message: Publish) -> bool:
        """Send the message to all that have to get it. Returns False if some groups, or all receivers, had no room."""
        router = self._router
        if router.stale and message.qos:
            return False
        if offer.groups is None:
            fan = router.route(message.topic).fanout
            if not router.has_room(fan, message):
                return False
            offer.groups = list(fan.groups)
            asked = router.forward_to_all(fan, message, offer.one)  # some receivers accept it within this call
            offer.waits += max(0, asked)
            router.delivery.deliver(fan, message, None)
        offer.groups = [group for group in offer.groups if not self._deliver_to(group, offer, message)]
        if offer.groups:
            return False
        offer.all_sent()
        return True

    def _deliver_to(self, group: Group, offer: _Offer, message: Publish) -> bool:
        """Send the message to one member of the group. Returns False if none had room."""
        asked = self._router.shared.dispatch(group, message, None, offer.one)
        if asked < 0:
            self._router.counters.dropped_no_room -= 1  # it isn't dropped yet
            return False
        offer.waits += asked
        return True
