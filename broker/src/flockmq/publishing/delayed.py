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
- Of one user's messages that are due in the same millisecond and were accepted by one node, the first accepted goes
  first. Users take turns, and what one has under way is bounded well below what all have.
- Until a message of a client is sent (the log has to retain it first, or a receiver has no room), the client's next
  ones aren't; those of QoS 0 are apart.
- A receiver that doesn't accept what was sent to it delays nothing, within DELAYED_UNDER_WAY_MAX and its bytes.
- If the client resends a delayed QoS 2 message, the log may hold it twice, with the same id. Subscribers drop the
  second copy; a shared subscription may get both.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from flockmq import tasks
from flockmq.auth.stored_authorization import StoredAuthorization
from flockmq.bounds import (
    DELAYED_BATCH_MAX,
    DELAYED_LOOK_S,
    DELAYED_MAX_S,
    DELAYED_UNDER_WAY_MAX,
    DELAYED_UNDER_WAY_MAX_BYTES,
    DELAYED_UNDER_WAY_OF_USER_MAX,
    DELAYED_UNDER_WAY_OF_USER_MAX_BYTES,
    OFFERED_BYTES,
    REFUSALS_LOGGED_PER_S,
)
from flockmq.clock import Clock
from flockmq.logs import Sparing
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import DELAYED as DELAYED_PREFIX
from flockmq.mqtt.topics import is_delayed
from flockmq.publishing.schedule import Due, Schedule
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.schema import DELAYED, DelayedMessage
from flockmq.routing.message_id import derived_origin

log: Final = logging.getLogger(__name__)


_Sequence = tuple[bytes, bool]
"""A client id, and whether QoS 1 and 2: messages that are sent in their order."""
_NOT_RETAINED: Final = 0
"""It couldn't be retained, or one before it couldn't. So it must be retained again, behind that one."""
_RETAINED: Final = 1
"""It is retained, or needn't be, and couldn't be sent."""
_SENT: Final = 2


def parse(topic: bytes, now_s: float, *, may_be_past: bool = False) -> tuple[int, bytes]:
    """When a message to `$delayed/N/topic` is due (milliseconds since the epoch), and its topic. Raises ValueError.
    `may_be_past`: the time was valid when its client left the message."""
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
    if not (may_be_past or now_s <= seconds) or seconds > now_s + DELAYED_MAX_S:
        raise ValueError(f"neither an interval up to {DELAYED_MAX_S} s nor a time within that")
    return seconds * 1000, inner


def check_publishable(topic: bytes, now_s: float, refuses: Callable[[bytes], bool]) -> None:
    """Raise ValueError, with a reason for the client, if a message to this topic is never published."""
    if is_delayed(topic):
        parse(topic, now_s)
    elif refuses(topic):
        raise ValueError("no client publishes there")


def _of(authorization: StoredAuthorization, author: bytes, row: DelayedMessage) -> DelayedMessage:
    return msgspec.structs.replace(
        row,
        author=author,
        client_id=authorization.client_id,
        user=authorization.user,
        address=authorization.address,
        why=authorization.why,
        said=authorization.topic,
        common_name=authorization.common_name,
    )


def authorization_of(row: DelayedMessage) -> StoredAuthorization:
    return StoredAuthorization(row.client_id, row.user, row.address, row.why, row.said, row.common_name)


class DelayedPort(Protocol):
    """What delayed messages need of their node."""

    def leads(self) -> bool: ...
    def row(self, key: bytes) -> DelayedMessage | None: ...
    def write(self, ops: Sequence[Op]) -> asyncio.Future[StreamId]: ...
    def refuses(self, size_bytes: int) -> bool:
        """There is no memory for a message of this size."""
        ...

    def caught_up(self) -> Awaitable[bool]:
        """True if this node's table has all that was written before the call."""
        ...

    def drops(self, row: DelayedMessage) -> bool:
        """True if its client may not publish it any more; this is counted."""
        ...

    def retain(self, message: Publish) -> Awaitable[bool]:
        """True: it is retained, or needn't be. False: try again."""
        ...

    def publish(self, message: Publish) -> asyncio.Event | None:
        """Send it; if it is to be retained, it is by now. The event is set when it was delivered here, and other nodes
        have it or needn't be waited for. None: nobody got it, try again."""
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
        self._tried: dict[bytes, bytes] = {}
        """User → the last due message that was tried; after the last of all users it starts from the first again."""
        self._refusals = Sparing(log, REFUSALS_LOGGED_PER_S, clock.monotonic)
        self._under_way: dict[bytes, tuple[asyncio.Task[bool], int]] = {}
        """Key → who publishes the message, until all receivers have accepted it, and its bytes."""
        self._under_way_bytes = 0
        self._under_way_of: defaultdict[bytes, list[int]] = defaultdict(lambda: [0, 0])
        """The same, by user: how many, and their bytes."""
        self._full_users: set[bytes] = set()
        """Have as much under way as one user may."""
        self._last: dict[_Sequence, asyncio.Future[int]] = {}
        """The progress of the sequence's last message that is under way."""
        self._blocked: set[_Sequence] = set()
        """One of its messages couldn't be sent since all due ones were tried."""
        self._has_failed = False
        """Some couldn't be published since the last pause."""
        self._retained: set[bytes] = set()
        """Retained, but not published. A message isn't retained again when it is tried again: its topic may have a
        newer one by then."""
        self._leaving: set[bytes] = set()
        """Published, but perhaps still in the log."""
        self._ended: list[bytes] = []
        """Those of them that aren't being deleted yet."""

    async def take(self, message: Publish, authorization: StoredAuthorization | None = None) -> int:
        """Write what a client or a plugin left to the log; it is due at once if its time has passed. Returns the reason
        code. `authorization` None: its publisher is unknown."""
        op = self.row(message, authorization, is_left=True)
        if isinstance(op, int):
            return op
        written = self._host.write([op])
        await asyncio.wait([written])
        return self._reason(written)

    def row(self, message: Publish, authorization: StoredAuthorization | None, *, is_left: bool = False) -> Op | int:
        """What to write for a message, or the reason code of its refusal."""
        try:
            due_ms, topic = parse(message.topic, self._clock.wall(), may_be_past=is_left)
        except ValueError as error:
            self._refusals.info("%r isn't published: %s", message.topic, error)
            return Reason.TOPIC_NAME_INVALID
        if self._host.refuses(len(message.packet)):
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
            row = _of(authorization, message.author if message.retain else b"", row)
        return DELAYED.put(self._key(due_ms), row)

    def _key(self, due_ms: int) -> bytes:
        self._taken_us = max(self._taken_us + 1, int(self._clock.wall() * 1_000_000))
        return due_ms.to_bytes(8, "big") + self._taken_us.to_bytes(8, "big") + self._token_bytes(8)

    async def run(self) -> None:
        led = False
        try:
            while True:
                try:
                    led = await self._look(led)
                except Exception:
                    log.exception("delayed messages")
                    await asyncio.sleep(DELAYED_LOOK_S)
        finally:
            await tasks.end(*(task for task, _ in self._under_way.values()))

    async def _look(self, led: bool) -> bool:
        """Do what is due now, or wait. `led`: this node leads, and knows what the former leader has published. Returns
        the same, as it is then."""
        if not self._host.leads():
            self._ended.clear()
            self._leaving = {key for key in self._leaving if self._host.row(key) is not None}
            self._retained = {key for key in self._retained if self._host.row(key) is not None}
            await asyncio.sleep(DELAYED_LOOK_S)
            return False
        if not led:  # read the log first
            led = await self._host.caught_up()
            if not led:
                await asyncio.sleep(DELAYED_LOOK_S)
        elif self._ended:
            await self._delete()
        elif self._is_full():
            await self._wait()
        elif due := self.schedule.due(self._clock.wall_ms(), DELAYED_BATCH_MAX, self._tried, self._full_users):
            await self._begin(due)
        elif self._tried:
            self._tried.clear()
            self._blocked.clear()
            if self._has_failed:
                self._has_failed = False
                await asyncio.sleep(DELAYED_LOOK_S)
            elif self._under_way:
                await self._wait()
        else:
            await self._wait()
        return led

    async def _wait(self) -> None:
        """Wait until a message is due, or was accepted, or it is time to check whether this node is the leader."""
        self.schedule.sooner.clear()
        first_ms = None if self._is_full() else self.schedule.first_ms(self._under_way, self._full_users)
        seconds = DELAYED_LOOK_S if first_ms is None else first_ms / 1000 - self._clock.wall()
        try:
            async with asyncio.timeout(min(max(seconds, 0.001), DELAYED_LOOK_S)):
                await self.schedule.sooner.wait()
        except TimeoutError:
            return

    def _is_full(self) -> bool:
        return len(self._under_way) >= DELAYED_UNDER_WAY_MAX or self._under_way_bytes >= DELAYED_UNDER_WAY_MAX_BYTES

    async def _begin(self, due: list[Due]) -> None:
        """Publish these in order. Whether all receivers have accepted them turns out later."""
        for user, key in due:
            if self._is_full():
                return
            if user in self._full_users:
                continue
            self._tried[user] = key
            row = self._host.row(key)
            sequence = None if row is None or not row.client_id else (row.client_id, row.qos > 0)
            if key not in self._under_way and sequence not in self._blocked:
                size = 0 if row is None else OFFERED_BYTES + len(row.topic) + len(row.payload)
                task = asyncio.ensure_future(self._publish_next(key, sequence))
                self._under_way[key] = task, size
                self._count(user, 1, size)
                task.add_done_callback(partial(self._end, user, key))
                await asyncio.sleep(0)  # it may have very many receivers

    def _count(self, user: bytes, times: int, size: int) -> None:
        self._under_way_bytes += times * size
        of_user = self._under_way_of[user]
        of_user[0] += times
        of_user[1] += times * size
        if user and (of_user[0] >= DELAYED_UNDER_WAY_OF_USER_MAX or of_user[1] >= DELAYED_UNDER_WAY_OF_USER_MAX_BYTES):
            self._full_users.add(user)
        else:
            self._full_users.discard(user)
        if not of_user[0]:
            del self._under_way_of[user]

    def _end(self, user: bytes, key: bytes, task: asyncio.Task[bool]) -> None:
        """It was published, or can't be for now."""
        _, size = self._under_way.pop(key)
        self._count(user, -1, size)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("a delayed message can't be published", exc_info=error)
        if error is None and task.result():
            self._ended.append(key)
        else:
            self._has_failed = True
        self.schedule.sooner.set()

    async def _delete(self) -> None:
        leaving, self._ended = self._ended, []
        written = self._host.write([DELAYED.delete(key) for key in leaving])
        await asyncio.wait([written])
        if self._reason(written) < 0x80:
            self._leaving.difference_update(leaving)
        else:
            self._has_failed = True

    async def _publish_next(self, key: bytes, sequence: _Sequence | None) -> bool:
        """As `_publish`, behind all of its sequence that are under way."""
        progress: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if sequence is None:
            return await self._publish(key, None, progress)
        former, self._last[sequence] = self._last.get(sequence), progress
        try:
            is_over = await self._publish(key, former, progress)
            if is_over and not progress.done():  # It needn't be sent.
                progress.set_result(_SENT if former is None else await former)
            return is_over
        finally:
            if not progress.done():
                progress.set_result(_NOT_RETAINED)
            if progress.result() != _SENT:
                self._blocked.add(sequence)
            if self._last.get(sequence) is progress:
                del self._last[sequence]

    async def _publish(self, key: bytes, former: asyncio.Future[int] | None, progress: asyncio.Future[int]) -> bool:
        """True: it was published, or needn't be. `former`: the progress of the one before it."""
        if key in self._leaving:
            return True
        row = self._host.row(key)
        if row is None or not self._host.leads():
            return row is None
        if self._host.drops(row):
            self._leaving.add(key)
            return True
        message = publication(row.version, row.qos, row.retain, row.topic, row.payload, row.properties, row.expiry_s)
        message.origin, message.publisher = row.origin, row.client_id
        message.user, message.author = row.user if row.client_id or row.user else None, row.author
        if row.retain and key not in self._retained:
            if not await self._host.retain(message):
                return False
            self._retained.add(key)
        reached = _SENT if former is None else await former
        if reached == _NOT_RETAINED:
            self._retained.discard(key)
            return False
        accepted = self._host.publish(message) if reached == _SENT and self._host.leads() else None
        if accepted is None:
            progress.set_result(_RETAINED)
            return False
        progress.set_result(_SENT)
        await accepted.wait()
        self._retained.discard(key)
        self._leaving.add(key)
        self.published += 1
        return True
