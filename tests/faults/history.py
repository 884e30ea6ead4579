"""What a campaign saw: plain events, in the order in which one process saw them, on that process' monotonic clock.

A message is named by its publisher and a number that grows with each message of that publisher, whatever its topic;
its payload says both. A connection has a number of its own, in the order in which they were opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec


class Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    at: float
    """Seconds."""


class Asked(Event, frozen=True, gc=False):
    """CONNECT is sent. `lasts`: with a session expiry."""

    client: str
    connection: int
    node: str
    lasts: bool
    clean_start: bool = False


class Connected(Event, frozen=True, gc=False):
    """CONNACK with success."""

    client: str
    connection: int
    present: bool


class Closed(Event, frozen=True, gc=False):
    """The connection's end. `reason`: of the server's DISCONNECT, -1 without one."""

    client: str
    connection: int
    by_server: bool
    reason: int = -1


class Published(Event, frozen=True, gc=False):
    """PUBLISH is sent, for the first time or once more (`again`)."""

    client: str
    connection: int
    number: int
    topic: str
    qos: int
    again: bool = False


class Acknowledged(Event, frozen=True, gc=False):
    """PUBACK or PUBREC that says yes."""

    client: str
    number: int


class Subscribed(Event, frozen=True, gc=False):
    """SUBACK."""

    client: str
    connection: int
    filter: str
    qos: int


class Unsubscribed(Event, frozen=True, gc=False):
    """UNSUBSCRIBE is sent."""

    client: str
    filter: str


class Delivered(Event, frozen=True, gc=False):
    """A message came to the application: a QoS 2 packet that comes again under a packet id that isn't released isn't
    one."""

    client: str
    connection: int
    publisher: str
    number: int
    topic: str
    qos: int
    dup: bool = False
    retained: bool = False


class FaultBegan(Event, frozen=True, gc=False):
    kind: str
    nodes: tuple[str, ...]
    """Whose clients it may keep from hearing anything."""


class FaultEnded(Event, frozen=True, gc=False):
    kind: str
    nodes: tuple[str, ...]


class RedisLost(Event, frozen=True, gc=False):
    """Redis lost what it had acknowledged: a session may be gone, if CONNACK says so."""


class TablesStood(Event, frozen=True, gc=False):
    """When all was quiet: where a node's tables of one shard were, and their digests."""

    node: str
    shard: str
    applied: str
    digests: dict[str, str]


class RowsLeft(Event, frozen=True, gc=False):
    """When every client and session had ended: how many routes a node's tables still hold."""

    node: str
    routes: int


class AlarmMissing(Event, frozen=True, gc=False):
    """What had to be told to the operator wasn't."""

    what: str


class Unwell(Event, frozen=True, gc=False):
    """A process ended that nobody had ended, and gave no reason that it may; or didn't become well in time; or left a
    client without an answer."""

    node: str
    what: str


AnyEvent = (
    Asked
    | Connected
    | Closed
    | Published
    | Acknowledged
    | Subscribed
    | Unsubscribed
    | Delivered
    | FaultBegan
    | FaultEnded
    | RedisLost
    | TablesStood
    | RowsLeft
    | AlarmMissing
    | Unwell
)


class Message(NamedTuple):
    publisher: str
    number: int

    def payload(self) -> bytes:
        return f"{self.publisher} {self.number}".encode()

    @classmethod
    def of(cls, payload: bytes) -> Message:
        publisher, number = payload.decode().split()
        return cls(publisher, int(number))


def save(events: Iterable[AnyEvent], file: Path) -> None:
    """A line of JSON each."""
    encoder = msgspec.json.Encoder()
    with file.open("wb") as out:
        for event in events:
            out.write(encoder.encode(event) + b"\n")


def load(file: Path) -> list[AnyEvent]:
    decoder = msgspec.json.Decoder(AnyEvent)
    with file.open("rb") as lines:
        return [decoder.decode(line) for line in lines]
