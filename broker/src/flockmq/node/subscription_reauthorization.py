"""When rules change, existing subscriptions are authorized again; those no longer allowed end.

rules change ─▶ affected clients ─▶ each filter is authorized, as at SUBSCRIBE ─▶ denied ones end, as by UNSUBSCRIBE,
and their queued messages are dropped

Invariants: every connected client that a change affects is checked after the change, however often rules change. The
checks don't block the event loop (`authorization_turns`). If a service doesn't answer, the subscription stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flockmq.auth.rule_sources import CLIENTID, USERNAME
from flockmq.bounds import (
    STANDING_AGAIN_MAX,
    STANDING_AGAIN_S,
    STANDING_AT_ONCE,
    STANDING_LOGGED_PER_S,
    STANDING_SLICE_CLIENTS,
    STANDING_WAIT_S,
)
from flockmq.clock import Clock
from flockmq.logs import Sparing
from flockmq.mqtt.reason import Reason
from flockmq.node.subscription_revocation import SubscriptionRevocation
from flockmq.protocol.channel import CONNECTED, Channel
from flockmq.protocol.client import ASKED, DENIED, SUBSCRIBE
from flockmq.session_rpc.ports import Held

log: Final = logging.getLogger(__name__)

Key = tuple[str, str]
"""The key of a row of rules: (kind, name)."""


class SubscriptionReauthorization:
    """One per node. `disconnects` tells whether a client that lost a subscription is also disconnected, so that it
    notices."""

    def __init__(self, revocation: SubscriptionRevocation, disconnects: Callable[[], bool], clock: Clock) -> None:
        self._revocation = revocation
        self._disconnects = disconnects
        self._revocations_log = Sparing(log, STANDING_LOGGED_PER_S, clock.monotonic)
        self._changed: dict[Key | None, None] = {}
        self._task: asyncio.Task[None] | None = None
        self.changes = 0
        """Count of rule changes."""
        self._slow: set[asyncio.Task[None]] = set()
        """Running checks. They may wait for an owner or an HTTP service."""
        self._again: dict[Channel, int] = {}
        """Clients to check again, because a SUBSCRIBE was in progress, and how many more checks they may get."""

    def rules_changed(self, key: Key | None) -> None:
        """The rules of this key changed; None means that any may have. Called while a log entry is applied."""
        self.changes += 1
        self._changed[key] = None
        self._go()

    def check_now(self, channel: Channel) -> None:
        """Check only this client, because its rights may have changed, or its owner waits for the check."""
        self._begin(channel, STANDING_AGAIN_MAX)

    async def done(self) -> None:
        """Wait until all affected clients were checked."""
        if self._task is not None:
            await self._task

    def _go(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while self._changed or self._again:
                await asyncio.sleep(0 if self._changed else STANDING_AGAIN_S)
                changed, self._changed = self._changed, {}
                again, self._again = self._again, {}
                channels = self._concerned(changed, again)
                await asyncio.gather(*(self._work(channels, again) for _ in range(STANDING_AT_ONCE)))
                self._revocation.flush_soon()
        finally:
            self._task = None

    def _concerned(self, changed: dict[Key | None, None], again: dict[Channel, int]) -> Iterator[Channel | None]:
        """Yield the affected clients, and None for each other client. So the caller can pause during a long search."""
        yield from again
        names = {name.encode() for kind, name in filter(None, changed) if kind == USERNAME}
        ids = {name.encode() for kind, name in filter(None, changed) if kind == CLIENTID}
        is_for_all = any(key is None or key[0] not in (USERNAME, CLIENTID) for key in changed)
        if names or is_for_all:
            for channel in list(self._revocation.connections()):
                is_one = channel is not None and (is_for_all or channel.principal.username in names)
                yield channel if is_one else None
        if not is_for_all:
            for client_id in ids:
                yield self._revocation.find(client_id)

    async def _work(self, channels: Iterator[Channel | None], again: dict[Channel, int]) -> None:
        for place, channel in enumerate(channels, start=1):
            if channel is not None and channel.state == CONNECTED and self._revocation.must_check(channel):
                check = self._begin(channel, again.get(channel, STANDING_AGAIN_MAX))
                await asyncio.wait([check], timeout=STANDING_WAIT_S)
            elif place % STANDING_SLICE_CLIENTS == 0:
                await asyncio.sleep(0)

    def _begin(self, channel: Channel, looks: int) -> asyncio.Task[None]:
        check = asyncio.ensure_future(self._check(channel, looks))
        self._slow.add(check)
        check.add_done_callback(self._slow.discard)
        return check

    def _look_again(self, channel: Channel, looks: int) -> None:
        if looks > 1 and not channel.has_ended():
            self._again[channel] = looks - 1
            self._go()

    async def _check(self, channel: Channel, looks: int) -> None:
        if channel.state != CONNECTED:
            return  # it has disconnected meanwhile
        try:
            ended = await self._revocation.revoke_denied(channel, self)
        except Exception:  # other clients must still be checked; check this one again, because its owner may wait
            log.exception("the subscriptions of %r could not be authorized", channel.client_id())
            self._look_again(channel, looks)
            return
        if channel.paused or channel.subscribes_waiting:  # what was authorized under the old rules may yet be granted
            self._look_again(channel, looks)
        if ended:
            text = "client %r lost %d subscriptions that rules no longer allow, %r among them"
            self._revocations_log.info(text, channel.client_id().decode(), len(ended), ended[0].decode())
            if self._disconnects():
                channel.close(Reason.NOT_AUTHORIZED)
            self._revocation.flush_soon()

    async def denied(self, channel: Channel, held: dict[bytes, Held]) -> list[bytes]:
        denied: list[bytes] = []
        for filter, (asked, qos) in held.items():
            await self._revocation.rest()
            if channel.has_ended():
                break
            if await self._verdict(channel, asked, qos) == DENIED:
                denied.append(filter)
        return denied

    async def _verdict(self, channel: Channel, asked: bytes, qos: int) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        verdict = self._revocation.authorize(channel, SUBSCRIBE, asked, qos, False, partial(_answered, answer))
        return await answer if verdict == ASKED else verdict


def _answered(answer: asyncio.Future[int], verdict: int) -> None:
    if not answer.done():
        answer.set_result(verdict)
