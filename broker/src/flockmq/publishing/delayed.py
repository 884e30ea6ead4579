"""Delayed messages, `$delayed/N/topic`: kept in the log until they are due. Then the leader publishes them, unless
their client may not publish them any more.

`N` is a number of seconds, 1 to DELAYED_MAX_S, or else a Unix time no further away (EMQX's rules). When a message is
due, it is treated as if its client published it now: it is matched, retained if it has the retain flag, and its Message
Expiry Interval begins. The node that accepts it computes when it is due; the leader decides when that is. Both use the
cluster's time.

Invariants:

- A message is acknowledged when the log has it, and survives every node.
- It leaves the log after it was published: every other node that wants it has it, or has it in its link's resend
  buffer. So it is published once, or again by the next leader if the leader ended in between.
- Of messages that are due in the same millisecond and were accepted by one node, the first accepted goes first.
- If the client resends a delayed QoS 2 message, the log may hold it twice, with the same id. Subscribers drop the
  second copy; a shared subscription may get both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, Protocol, Self

import msgspec

from flockmq.auth.stored_authorization import StoredAuthorization
from flockmq.bounds import DELAYED_BATCH_MAX, DELAYED_LOOK_S, DELAYED_MAX_S, REFUSALS_LOGGED_PER_S
from flockmq.clock import Clock
from flockmq.logs import Sparing
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import DELAYED as DELAYED_PREFIX
from flockmq.mqtt.topics import is_delayed
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.schema import DELAYED, DelayedMessage
from flockmq.rlog.sorted_keys import SortedKeys
from flockmq.routing.message_id import derived_origin

log: Final = logging.getLogger(__name__)


def parse(topic: bytes, now_s: float) -> tuple[int, bytes]:
    """When a message to `$delayed/N/topic` is due (milliseconds since the epoch), and its topic. Raises ValueError."""
    interval, slash, inner = topic[len(DELAYED_PREFIX) :].partition(b"/")
    if not slash or not inner:
        raise ValueError("no topic behind the interval")
    if inner[:1] == b"$":
        raise ValueError("the topic behind the interval can't be published to")
    if not interval.isdigit() or len(interval) > 10:  # isdigit of bytes: ASCII only
        raise ValueError("the interval isn't a number of seconds")
    seconds = int(interval)
    if seconds <= DELAYED_MAX_S:
        if seconds == 0:
            raise ValueError("an interval of no seconds")
        return round((now_s + seconds) * 1000), inner
    if not now_s <= seconds <= now_s + DELAYED_MAX_S:
        raise ValueError(f"neither an interval up to {DELAYED_MAX_S} s nor a time within that")
    return seconds * 1000, inner


def check_publishable(topic: bytes, now_s: float, refuses: Callable[[bytes], bool]) -> None:
    """Raise ValueError, with a reason for the client, if a message to this topic is never published."""
    if is_delayed(topic):
        parse(topic, now_s)
    elif refuses(topic):
        raise ValueError("no client publishes there")


def _of(authorization: StoredAuthorization, row: DelayedMessage) -> DelayedMessage:
    return msgspec.structs.replace(
        row,
        client_id=authorization.client_id,
        user=authorization.user,
        address=authorization.address,
        why=authorization.why,
        said=authorization.topic,
        common_name=authorization.common_name,
    )


def authorization_of(row: DelayedMessage) -> StoredAuthorization:
    return StoredAuthorization(row.client_id, row.user, row.address, row.why, row.said, row.common_name)


class Schedule(SortedKeys[bytes]):
    """Listens to `delayed`: its keys, ordered by when they are due."""

    def __init__(self) -> None:
        super().__init__()
        self.sooner = asyncio.Event()
        """Set when a new message is due before all others."""

    def first_ms(self) -> int | None:
        return int.from_bytes(self._keys[0][:8], "big") if self._keys else None

    def due(self, now_ms: int, limit: int, after: bytes = b"") -> list[bytes]:
        """The keys of due messages after the key `after`, at most `limit`, the oldest first."""
        end = now_ms.to_bytes(8, "big") + b"\xff" * 9
        return list(islice(self._keys.irange(after, end, (False, True)), limit))

    def put(self, key: bytes, value: object, old: object) -> None:
        super().put(key, value, old)
        if self._keys[0] == key:
            self.sooner.set()

    def swap(self, fresh: Self) -> None:
        super().swap(fresh)
        self.sooner.set()


class DelayedPort(Protocol):
    """What delayed messages need of their node."""

    def leads(self) -> bool: ...
    def row(self, key: bytes) -> DelayedMessage | None: ...
    def write(self, ops: Sequence[Op]) -> asyncio.Future[StreamId]: ...
    def refuses(self) -> bool:
        """There is no room for more messages."""
        ...

    def caught_up(self) -> Awaitable[bool]:
        """True if this node's table has all that was written before the call."""
        ...

    def drops(self, row: DelayedMessage) -> bool:
        """True if its client may not publish it any more; this is counted."""
        ...

    def publish(self, message: Publish) -> Awaitable[bool]:
        """True: it was delivered here, and other nodes have it or needn't be waited for. False: try again."""
        ...


class Delayed:
    """One per node. Keep `run` running as long as the node lives. `has_publishers`: all nodes understand rows that name
    their publisher."""

    def __init__(
        self,
        host: DelayedPort,
        reason: Callable[[asyncio.Future[StreamId]], int],
        clock: Clock,
        token_bytes: Callable[[int], bytes],
        has_publishers: Callable[[], bool],
    ) -> None:
        self._has_publishers = has_publishers
        self.schedule = Schedule()
        self.published = 0
        self._host = host
        self._reason = reason
        self._clock = clock
        self._token_bytes = token_bytes
        self._taken_us = 0
        """When the latest message was accepted, by the wall clock, but always later than the one before."""
        self._after = b""
        """Due messages up to this key were tried; after the last one it starts from the first again."""
        self._refusals = Sparing(log, REFUSALS_LOGGED_PER_S, clock.monotonic)
        self._leaving: set[bytes] = set()
        """Published, but perhaps still in the log."""

    async def take(self, message: Publish, authorization: StoredAuthorization | None = None) -> int:
        """Write a message to the log. Returns the reason code for its publisher. `authorization` None: its publisher is
        unknown."""
        try:
            due_ms, topic = parse(message.topic, self._clock.wall())
        except ValueError as error:
            self._refusals.info("%r isn't published: %s", message.topic, error)
            return Reason.TOPIC_NAME_INVALID
        if self._host.refuses():
            return Reason.QUOTA_EXCEEDED
        row = DelayedMessage(
            topic,
            message.payload(),
            message.qos,
            message.retain,
            message.properties,
            message.version,
            message.expiry_s,
            derived_origin(message.origin, b"delayed") if message.origin else b"",
        )
        if authorization is not None and self._has_publishers():
            row = _of(authorization, row)
        written = self._host.write([DELAYED.put(self._key(due_ms), row)])
        await asyncio.wait([written])
        return self._reason(written)

    def _key(self, due_ms: int) -> bytes:
        self._taken_us = max(self._taken_us + 1, int(self._clock.wall() * 1_000_000))
        return due_ms.to_bytes(8, "big") + self._taken_us.to_bytes(8, "big") + self._token_bytes(8)

    async def run(self) -> None:
        led = False
        while True:
            try:
                if not self._host.leads():
                    led = False
                    self._leaving = {key for key in self._leaving if self._host.row(key) is not None}
                    await asyncio.sleep(DELAYED_LOOK_S)
                elif not led:  # read the log first: it shows what the former leader has published
                    led = await self._host.caught_up()
                    if not led:
                        await asyncio.sleep(DELAYED_LOOK_S)
                elif due := self.schedule.due(self._clock.wall_ms(), DELAYED_BATCH_MAX, self._after):
                    self._after = due[-1]
                    await self._publish(due)
                elif self._after:
                    self._after = b""
                else:
                    await self._wait()
            except Exception:
                log.exception("delayed messages")
                await asyncio.sleep(DELAYED_LOOK_S)

    async def _wait(self) -> None:
        """Wait until a message is due, or until it is time to check whether this node is the leader."""
        self.schedule.sooner.clear()
        first_ms = self.schedule.first_ms()
        seconds = DELAYED_LOOK_S if first_ms is None else first_ms / 1000 - self._clock.wall()
        try:
            async with asyncio.timeout(min(max(seconds, 0.001), DELAYED_LOOK_S)):
                await self.schedule.sooner.wait()
        except TimeoutError:
            return

    async def _publish(self, keys: list[bytes]) -> None:
        tasks = []
        for key in keys:  # each in an iteration of the event loop of its own: it may have very many receivers
            tasks.append(asyncio.ensure_future(self._publish_one(key)))
            await asyncio.sleep(0)
        done = await asyncio.gather(*tasks)
        leaving = [key for key, went in zip(keys, done, strict=True) if went]
        if leaving:
            written = self._host.write([DELAYED.delete(key) for key in leaving])
            await asyncio.wait([written])
            if self._reason(written) < 0x80:
                self._leaving.difference_update(leaving)
                if len(leaving) == len(keys):
                    return
        await asyncio.sleep(DELAYED_LOOK_S)

    async def _publish_one(self, key: bytes) -> bool:
        if key in self._leaving:
            return True
        row = self._host.row(key)
        if row is None or not self._host.leads():
            return row is None
        if self._host.drops(row):
            self._leaving.add(key)
            return True
        message = publication(row.version, row.qos, row.retain, row.topic, row.payload, row.properties, row.expiry_s)
        message.origin = row.origin
        message.user = row.user if row.client_id or row.user else None
        if not await self._host.publish(message):
            return False
        self._leaving.add(key)
        self.published += 1
        return True
