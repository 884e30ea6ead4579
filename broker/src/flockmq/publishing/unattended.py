"""Publishes messages for which no connection waits: wills, due delayed messages, messages of plugins, and messages of
shared subscriptions for which no member had room.

No client sends these messages again. So this node retries a message, at longer and longer intervals, if there is no
room for it (on a link, in a queue, in a shared group, in the log), or if its routing tables may be stale.

Very many clients may end together, and their wills may have very many receivers. So new messages are sent in slices,
one in each event-loop iteration, users in turn, those of one user in their order. A connection that publishes faster
than clients of this node read is paused; these messages wait as long, of QoS 1 and 2, and their user's next ones behind
them. Other nodes, slots and groups get them at once: so a crash loses none that somebody else should have.

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
from flockmq.bounds import (
    OFFER_RETRY_MAX_S,
    OFFER_RETRY_MIN_S,
    OFFER_WORK_MAX_S,
    OFFERED_BYTES,
    OFFERED_MAX_BYTES,
    OFFERED_OF_USER_MAX_BYTES,
    OFFERED_TOGETHER_MAX,
    RECEIVERS_PER_READ_MAX,
    UNOFFERED_MAX_BYTES,
)
from flockmq.mqtt.message import Publish, waited
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_delayed
from flockmq.routing.fanout import Fanout
from flockmq.routing.group import Group
from flockmq.routing.router import Router
from flockmq.routing.sink import CONGESTED
from flockmq.user_turns import TurnQueue

log: Final = logging.getLogger(__name__)

Write = Callable[[Publish], Awaitable[int]]
"""Writes a message to the log; returns the reason code."""
Delay = Callable[[Publish, StoredAuthorization | None], Awaitable[int]]
"""Writes a delayed message, with the authorization of its publisher; returns the reason code."""
May = Callable[[], Awaitable[bool]]
"""Whether its client may still publish the message."""


class _Offer:
    """One message to publish. `groups`: shared subscriptions that still have to get it; None before the other receivers
    got it. `waits`: how many receivers haven't accepted it yet. `is_over`: nothing more must be sent. `authorization`:
    its publisher's, if known."""

    __slots__ = (
        "accepted", "authorization", "groups", "is_over", "is_retained", "is_sent", "message", "since_s", "waits",
    )  # fmt: skip

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
        self.is_over = False

    def must_be_logged(self) -> bool:
        """It must be written to the log before it is sent, or instead."""
        return is_delayed(self.message.topic) or (self.message.retain and not self.is_retained)

    def size(self) -> int:
        return OFFERED_BYTES + len(self.message.packet)

    def one(self) -> None:
        """A receiver accepted it. This may be called before the call that sends it has returned."""
        self.waits -= 1
        if self.waits == 0 and self.is_sent:
            self.accepted()

    def all_sent(self) -> None:
        """Nothing more must be sent: `accepted` is called when the last receiver accepts it."""
        self.is_sent = self.is_over = True
        if self.waits == 0:
            self.accepted()

    def end(self) -> None:
        """The log has it, or nobody will get it."""
        self.is_over = True
        self.accepted()


class _Slice:
    """The part of an event-loop iteration in which these messages are sent."""

    def __init__(self, router: Router, now_s: Callable[[], float]) -> None:
        self._router = router
        self._now_s = now_s
        self._most = router.receivers + RECEIVERS_PER_READ_MAX
        self._ends_s = now_s() + OFFER_WORK_MAX_S

    def is_over(self) -> bool:
        return self._router.receivers > self._most or self._now_s() >= self._ends_s


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
        self._new = TurnQueue[_Offer]()
        """Messages that wait to be sent for the first time."""
        self._is_publishing = False
        self._held = TurnQueue[_Offer]()
        """Messages that only clients of this node don't have yet: some of these have too much to read."""
        self._is_holding = False
        self._may_go_on = asyncio.Event()
        self._refused: deque[_Offer] = deque()
        self._is_trying = False
        self.new_bytes = 0
        """The size of the messages that wait to be sent for the first time, or for clients of this node."""
        self.waiting_bytes = 0
        """The size of the messages that wait for a retry."""
        self._waiting_bytes_of: dict[bytes | None, int] = {}
        """The same, by user."""

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
        """Publish the message in a later iteration, because the caller may be in the middle of another delivery. If
        `may` is given and returns False, the message is dropped."""
        offer = _Offer(message, accepted, self._now_s(), authorization)
        if may is None:
            self._add(offer)
        else:
            self._spawn(self._ask(offer, may))

    def share(self, group: Group, message: Publish, accepted: Callable[[], None]) -> None:
        """Retry a message of a shared subscription for which no member had room. Its publisher can't be told any
        more."""
        self._router.counters.dropped_no_room -= 1  # it isn't dropped yet
        offer = _Offer(message, accepted, self._now_s())
        offer.is_retained = True
        offer.groups = [group]
        self._later(offer)

    def publish_due(self, message: Publish) -> asyncio.Event | None:
        """The event is set when all receivers have accepted the message. None: nobody got it, try again. If it is to be
        retained, it is already."""
        accepted = asyncio.Event()
        offer = _Offer(message, accepted.set, self._now_s())
        offer.is_retained = True
        self._give(offer)
        if not offer.is_over:
            if offer.groups is None:
                return None
            self._later(offer)
        return accepted

    # New messages.

    async def _ask(self, offer: _Offer, may: May) -> None:
        if await may():
            self._add(offer)
        else:
            offer.end()

    def _add(self, offer: _Offer) -> None:
        """The message waits for its turn."""
        self.new_bytes += offer.size()
        self._new.append(offer.message.user, offer)
        if not self._is_publishing:
            self._is_publishing = True
            self._spawn(self._publish_new())

    def _next(self) -> _Offer:
        _, offer = self._new.popleft()
        self.new_bytes -= offer.size()
        return offer

    async def _publish_new(self) -> None:
        """Send all that wait. If that is too much, a slice may be longer: nothing is lost."""
        try:
            while self._new:
                slice = _Slice(self._router, self._now_s)
                while self._new and (self._has_too_many() or not slice.is_over()):
                    self._begin(self._next())
                await asyncio.sleep(0)
        finally:
            self._is_publishing = False

    def _begin(self, offer: _Offer) -> None:
        if offer.must_be_logged():
            self._spawn(self._log_first(offer))
            return
        self._give(offer)
        if not offer.is_over:
            self._later(offer)

    async def _log_first(self, offer: _Offer) -> None:
        await self._log(offer)
        if offer.is_over:
            return
        if offer.must_be_logged():
            self._later(offer)
        else:
            self._add(offer)

    # Messages that wait for clients of this node.

    def go_on(self) -> None:
        """Publishers to some client, or another node, needn't pause any more."""
        self._may_go_on.set()

    def _hold(self, offer: _Offer) -> None:
        offer.waits += 1
        self.new_bytes += offer.size()
        self._held.append(offer.message.user, offer)
        if self._has_too_many():
            self._may_go_on.set()
        if not self._is_holding:
            self._is_holding = True
            self._spawn(self._publish_held())

    def _has_too_many(self) -> bool:
        return self.new_bytes > UNOFFERED_MAX_BYTES

    async def _publish_held(self) -> None:
        """This task lasts while messages wait, so that a node that stops waits for them."""
        try:
            while self._held:
                if not self._held.has_turn():
                    await self._may_go_on.wait()
                    self._may_go_on.clear()
                    self._held.release()
                slice = _Slice(self._router, self._now_s)
                while self._held.has_turn() and (self._has_too_many() or not slice.is_over()):
                    user, offer = self._held.popleft()
                    if self._give_here(offer):
                        self.new_bytes -= offer.size()
                        offer.one()
                    else:
                        self._held.hold(user, offer)
                await asyncio.sleep(0)
        finally:
            self._is_holding = False

    def _give_here(self, offer: _Offer) -> bool:
        """Returns False if a client must read first."""
        message = waited(offer.message, int(self._now_s() - offer.since_s))
        if message is None:
            self._router.counters.dropped_expired += 1
            return True
        try:
            fan = self._router.route(message.topic).fanout
            if self._must_read_first(fan):
                return False
            self._router.delivery.deliver(fan, message, None)
            self._flush()
        except Exception:
            log.exception("a message to %r can't be published", message.topic)
        return True

    def _must_read_first(self, fan: Fanout) -> bool:
        """Publishers to some client of this node would pause. If very much waits, nobody waits for that."""
        if not self._router.pauses.slow or self._has_too_many():
            return False
        return any(receiver.session.sink.flow == CONGESTED for receiver in fan.deliveries)

    def _must_wait(self, fan: Fanout, message: Publish) -> bool:
        """Clients of this node get the message later: one of them must read first, or earlier ones of its user wait."""
        if message.qos == 0 or not fan.deliveries:
            return False
        return self._held.has(message.user) or self._must_read_first(fan)

    # Messages that wait for a retry.

    def _later(self, offer: _Offer) -> None:
        """Retry the message later. If too many wait already, drop it."""
        size = offer.size()
        user = offer.message.user
        of_user = self._waiting_bytes_of.get(user, 0) + size
        if self.waiting_bytes + size > OFFERED_MAX_BYTES or (user and of_user > OFFERED_OF_USER_MAX_BYTES):
            log.error(
                "a message to %r is lost: there is no room for it, and too many messages wait already",
                offer.message.topic,
            )
            self._router.counters.dropped_no_room += 1
            offer.end()
            return
        self.waiting_bytes += size
        self._waiting_bytes_of[user] = of_user
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
        await asyncio.gather(*(self._log(offer) for offer in offers))
        slice = _Slice(self._router, self._now_s)
        for offer in offers:
            if slice.is_over():
                await asyncio.sleep(0)
                slice = _Slice(self._router, self._now_s)
            self._give(offer)
            self._refused.popleft()
            if offer.is_over:
                self._no_longer_waits(offer)
            else:
                self._refused.append(offer)

    def _no_longer_waits(self, offer: _Offer) -> None:
        user, size = offer.message.user, offer.size()
        self.waiting_bytes -= size
        self._waiting_bytes_of[user] -= size
        if not self._waiting_bytes_of[user]:
            del self._waiting_bytes_of[user]

    # One try.

    async def _log(self, offer: _Offer) -> None:
        """Write the message to the log, if it must be there."""
        try:
            message = self._unexpired(offer) if offer.must_be_logged() else None
            if message is None:
                return
            if is_delayed(message.topic):
                reason = await self._delay(message, offer.authorization)
                if reason < 0x80 or reason == Reason.TOPIC_NAME_INVALID:
                    offer.end()
            else:
                offer.is_retained = await self._retain(message) < 0x80
        except Exception:
            self._fail(offer)

    def _give(self, offer: _Offer) -> None:
        """Send the message to all that have to get it, unless the log must have it first. Receivers may still have to
        accept it afterwards."""
        if offer.is_over or offer.must_be_logged():
            return
        try:
            message = self._unexpired(offer)
            if message is not None:
                self._deliver(offer, message)
                self._flush()
        except Exception:
            self._fail(offer)

    def _unexpired(self, offer: _Offer) -> Publish | None:
        """The message with the rest of its expiry interval. None: it expired, and nobody will get it."""
        message = waited(offer.message, int(self._now_s() - offer.since_s))
        if message is None:
            self._router.counters.dropped_expired += 1
            offer.end()
        return message

    def _fail(self, offer: _Offer) -> None:
        """Called while an exception is handled. A retry would fail in the same way."""
        log.exception("a message to %r can't be published", offer.message.topic)
        offer.end()

    def _deliver(self, offer: _Offer, message: Publish) -> None:
        """Send the message to all that have to get it. It isn't over if some groups, or all receivers, had no room."""
        router = self._router
        if router.stale and message.qos:
            return
        if offer.groups is None:
            fan = router.route(message.topic).fanout
            if not router.has_room(fan, message):
                return
            offer.groups = list(fan.groups)
            asked = router.forward_to_all(fan, message, offer.one)  # some receivers accept it within this call
            offer.waits += max(0, asked)
            if self._must_wait(fan, offer.message):
                self._hold(offer)
            else:
                router.delivery.deliver(fan, message, None)
        offer.groups = [group for group in offer.groups if not self._deliver_to(group, offer, message)]
        if not offer.groups:
            offer.all_sent()

    def _deliver_to(self, group: Group, offer: _Offer, message: Publish) -> bool:
        """Send the message to one member of the group. Returns False if none had room."""
        asked = self._router.shared.dispatch(group, message, None, offer.one)
        if asked < 0:
            self._router.counters.dropped_no_room -= 1  # it isn't dropped yet
            return False
        offer.waits += asked
        return True
