"""The log with delayed messages, and nodes that read it, of which one publishes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from flockmq.auth.stored_authorization import StoredAuthorization
from flockmq.clock import Clock
from flockmq.entropy import SYSTEM
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.reason import Reason
from flockmq.publishing.delayed import Delayed, authorization_of
from flockmq.rlog.entry import PUT, Op, StreamId
from flockmq.rlog.errors import LogFull
from flockmq.rlog.schema import DELAYED, DelayedMessage

NOW_S = 1_000_000_000.0

JOS: Final = StoredAuthorization(b"c", b"jo", "192.0.2.1", 1, b"said", "cn")

ANNES: Final = StoredAuthorization(b"anne", b"anne", "", 0, b"t")


class Log:
    """The table, and the nodes that read it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, DelayedMessage] = {}
        self.hosts: list[Host] = []
        self.fails: Exception | None = None
        self.now_s = NOW_S
        self.deletes = 0
        self.is_new = True
        self.dropped: list[StoredAuthorization] = []

    def apply(self, ops: Sequence[Op]) -> None:
        for _, kind, _, key, value in ops:
            if kind == PUT:
                row = DELAYED.decode(value)
                self.rows[key] = row
                for host in self.hosts:
                    host.delayed.schedule.put(key, row, None)
            elif (old := self.rows.pop(key, None)) is not None:
                self.deletes += 1
                for host in self.hosts:
                    host.delayed.schedule.delete(key, old)

    def tick(self, seconds: float) -> None:
        """Time goes by: whoever sleeps until something is due looks again."""
        self.now_s += seconds
        for host in self.hosts:
            host.delayed.schedule.sooner.set()


class Host:
    """A node; `published` has what it published, by payload."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_leader = False
        self.published: asyncio.Queue[Publish] = asyncio.Queue()
        self.catch_ups = 0
        self.unwilling: set[bytes] = set()
        self.unaccepted: dict[bytes, asyncio.Event] = {}
        """By payload: until this is set somebody hasn't accepted it."""
        self.refused = asyncio.Event()
        self.is_short = False
        self.retained: list[bytes] = []
        self.may_retain = True
        self.unretained: set[bytes] = set()
        self.delayed = Delayed(
            self, _reason, Clock(lambda: log.now_s, lambda: log.now_s), SYSTEM.token_bytes, lambda: log.is_new
        )
        log.hosts.append(self)

    def leads(self) -> bool:
        return self.is_leader

    def row(self, key: bytes) -> DelayedMessage | None:
        return self.log.rows.get(key)

    def refuses(self, size_bytes: int) -> bool:
        return self.is_short

    def write(self, ops: Sequence[Op]) -> asyncio.Future[StreamId]:
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        if self.log.fails is not None:
            done.set_exception(self.log.fails)
        else:
            self.log.apply(ops)
            done.set_result(StreamId(1, 1))
        return done

    async def caught_up(self) -> bool:
        self.catch_ups += 1
        return True

    def drops(self, row: DelayedMessage) -> bool:
        return authorization_of(row) in self.log.dropped

    async def retain(self, message: Publish) -> bool:
        self.retained.append(message.payload())
        may = self.may_retain and message.payload() not in self.unretained
        if not may:
            self.refused.set()
        return may

    def publish(self, message: Publish) -> asyncio.Event | None:
        if message.payload() in self.unwilling:
            self.refused.set()
            return None
        self.published.put_nowait(message)
        accepted = self.unaccepted.get(message.payload())
        if accepted is None:
            accepted = asyncio.Event()
            accepted.set()
        return accepted

    async def take(self, topic: str, payload: str, qos: int = 1, retain: bool = False) -> int:
        return await self.delayed.take(publication(5, qos, retain, topic.encode(), payload.encode(), b"\x01\x01", 77))

    async def next(self) -> str:
        message = await asyncio.wait_for(self.published.get(), 10)
        return message.payload().decode()


def _reason(done: asyncio.Future[StreamId]) -> int:
    error = done.exception()
    if isinstance(error, LogFull):
        return Reason.QUOTA_EXCEEDED
    return Reason.SUCCESS if error is None else Reason.UNSPECIFIED_ERROR


async def rest() -> None:
    """Both nodes looked several times at what there is."""
    await asyncio.sleep(0.02)


async def leave(leader: Host, payload: str, authorization: StoredAuthorization, *, retain: bool = False) -> None:
    message = publication(5, 1, retain, b"$delayed/1/t", payload.encode(), b"")
    assert await leader.delayed.take(message, authorization) == Reason.SUCCESS
