"""What a run saw: plain events, in the order in which one process saw them, on one clock.

A message is named by its publisher and a number that grows with each message of that publisher, whatever its topic; its
payload says both. A will has its client's name with `!` behind it as its publisher, and a number for each CONNECT. A
connection has a number of its own, in the order in which they were opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from conformance import wire

KEPT: Final = "kept"


class Message(NamedTuple):
    publisher: str
    number: int

    def payload(self, size: int = 0) -> bytes:
        """At least `size` bytes."""
        return f"{self.publisher} {self.number}".encode().ljust(size)

    def properties(self) -> list[tuple[int, wire.Value]]:
        """Of each kind that nodes must pass on as they are; some names of user properties more than once."""
        pairs = [("unit", "km"), (self.publisher, "1"), ("unit", "mile"), ("number", str(self.number)), ("", "")]
        return [
            (wire.USER_PROPERTY, (pairs[0][0].encode(), pairs[0][1].encode())),
            (wire.PAYLOAD_FORMAT, 1),
            (wire.CONTENT_TYPE, f"text/{self.number}".encode()),
            (wire.RESPONSE_TOPIC, f"answers/{self.publisher}".encode()),
            (wire.CORRELATION_DATA, bytes((0, 0xFF, self.number & 0xFF))),
            *((wire.USER_PROPERTY, (name.encode(), value.encode())) for name, value in pairs[1:]),
        ]

    @classmethod
    def of(cls, payload: bytes) -> Message:
        publisher, number, *_ = payload.decode().split()
        return cls(publisher, int(number))


class Will(NamedTuple):
    """What CONNECT asks to be published, as `Message(client + "!", number)`, when the client is gone."""

    number: int
    topic: str
    qos: int
    retain: bool = False
    delay_s: float = 0.0


class Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    at: float
    """Seconds."""


# --- connections ------------------------------------------------------------------------------------------------------


class Asked(Event, frozen=True, gc=False):
    """CONNECT is sent. `lasts`: with a session expiry; `expiry_s`: how long, 0 for a clean session, infinity where
    3.1.1 leaves it to the node."""

    client: str
    connection: int
    node: str
    lasts: bool
    clean_start: bool = False
    version: int = 5
    expiry_s: float = 3600.0
    will: Will | None = None
    packet_max: int = 0
    """Bytes; 0: any."""


class Connected(Event, frozen=True, gc=False):
    """CONNACK with success."""

    client: str
    connection: int
    present: bool


class Refused(Event, frozen=True, gc=False):
    """CONNACK with a failure."""

    client: str
    connection: int
    reason: int


class Disconnected(Event, frozen=True, gc=False):
    """DISCONNECT is sent. `with_will`: with reason 0x04; `ends`: and a session expiry of 0; `expiry_s`: with another
    one, -1: none."""

    client: str
    connection: int
    with_will: bool = False
    ends: bool = False
    expiry_s: float = -1.0


class Closed(Event, frozen=True, gc=False):
    """The connection's end. `reason`: of the server's DISCONNECT, -1 without one."""

    client: str
    connection: int
    by_server: bool
    reason: int = -1


class Intruded(Event, frozen=True, gc=False):
    """CONNACK for another user than the client's own, who came by its client id; asked for since `asked_at`."""

    client: str
    node: str
    asked_at: float
    reason: int


# --- messages ---------------------------------------------------------------------------------------------------------


class Published(Event, frozen=True, gc=False):
    """PUBLISH is sent, for the first time or once more (`again`). `topic` is where it is to come; `delay_s`: it is sent
    to $delayed/SECONDS/topic, -1 otherwise. `clears`: an empty payload, which ends what is retained there.
    `has_properties`: those of `Message.properties`."""

    client: str
    connection: int
    number: int
    topic: str
    qos: int
    again: bool = False
    retain: bool = False
    clears: bool = False
    expiry_s: float = -1.0
    delay_s: float = -1.0
    size: int = 0
    has_properties: bool = False


class Acknowledged(Event, frozen=True, gc=False):
    """PUBACK or PUBREC that says yes."""

    client: str
    number: int


class PublishRefused(Event, frozen=True, gc=False):
    """PUBACK or PUBREC with a reason of 0x80 or more."""

    client: str
    number: int
    reason: int


class Delivered(Event, frozen=True, gc=False):
    """A message came to the application: a QoS 2 packet that comes again under a packet id that isn't released isn't
    one. `filters`: by which of the client's subscriptions, where it gave them identifiers. `size`: of its payload in
    bytes, -1 if that isn't the message's own; 0: not noted. `expiry_s`: as it says, -1: it says none; None: not noted.
    `properties`: KEPT where they are all that the message may have, otherwise what they are. `is_repeat`: it came by an
    earlier connection, too, and wasn't answered there. `identifiers`: those of `filters`; `held_s`: so long after it
    had come."""

    client: str
    connection: int
    publisher: str
    number: int
    topic: str
    qos: int
    dup: bool = False
    retained: bool = False
    filters: tuple[str, ...] = ()
    size: int = 0
    expiry_s: float | None = None
    properties: str = ""
    is_repeat: bool = False
    identifiers: tuple[int, ...] = ()
    held_s: float = 0.0


class Overstepped(Event, frozen=True, gc=False):
    """A node sent what MQTT doesn't allow it to send on this connection."""

    client: str
    connection: int
    node: str
    what: str


# --- subscriptions; a filter is what SUBSCRIBE says, $share/GROUP/ and $exclusive/ included ---------------------------


class Subscribed(Event, frozen=True, gc=False):
    """SUBACK that says yes. `no_local` and all behind it: as asked for."""

    client: str
    connection: int
    filter: str
    qos: int
    no_local: bool = False
    retain_handling: int = 0
    as_published: bool = False
    identifier: int = 0


class SubscribeRefused(Event, frozen=True, gc=False):
    """SUBACK with a reason of 0x80 or more."""

    client: str
    connection: int
    filter: str
    reason: int


class SubscribeSent(Event, frozen=True, gc=False):
    """SUBSCRIBE is sent. `as_published`: with Retain As Published; `identifier`: of the subscription, 0: none."""

    client: str
    connection: int
    filter: str
    qos: int
    retain_handling: int = 0
    as_published: bool = False
    identifier: int = 0


class Unsubscribed(Event, frozen=True, gc=False):
    """UNSUBSCRIBE is sent."""

    client: str
    filter: str


class UnsubscribeDone(Event, frozen=True, gc=False):
    """UNSUBACK that says yes. `is_missed`: it says that there was no such subscription, and its client had it."""

    client: str
    connection: int
    filter: str
    is_missed: bool = False


# --- faults, and what somebody does to the cluster --------------------------------------------------------------------


class FaultBegan(Event, frozen=True, gc=False):
    kind: str
    nodes: tuple[str, ...]
    """Whose clients it may keep from hearing anything."""


class FaultEnded(Event, frozen=True, gc=False):
    kind: str
    nodes: tuple[str, ...]


class RedisLost(Event, frozen=True, gc=False):
    """Redis lost what it had acknowledged: a session may be gone, if CONNACK says so."""


class ChangeAsked(Event, frozen=True, gc=False):
    """A node's management is asked to `ban` or `lift` a client, to `deny` or `allow` a prefix. What it doesn't
    acknowledge is asked once more, and may be done all the same, then or later."""

    what: str
    of: str


class Banned(Event, frozen=True, gc=False):
    """A ban of this client id was acknowledged by a node's management; `holds` False: it was lifted."""

    client: str
    holds: bool = True


class RulesChanged(Event, frozen=True, gc=False):
    """A change of rules was acknowledged by a node's management: who may not publish or subscribe below `prefix`."""

    prefix: str
    is_denied: bool


# --- what was looked at on nodes --------------------------------------------------------------------------------------


class TablesStood(Event, frozen=True, gc=False):
    """When all was quiet: where a node's tables of one shard were, and their digests."""

    node: str
    shard: str
    applied: str
    digests: dict[str, str]


class RetainedStood(Event, frozen=True, gc=False):
    """When all was quiet: what a new subscriber at this node was sent as retained, by topic."""

    node: str
    values: dict[str, Message]


class RowsLeft(Event, frozen=True, gc=False):
    """When every client and session had ended: how many routes a node's tables still hold."""

    node: str
    routes: int


class NodeSeen(Event, frozen=True, gc=False):
    """Now and then, during faults too. `is_ready`: what /readyz says; `is_stale`: it holds QoS 1 and 2 because its
    tables may be old; `slots`: of client ids that the cluster says are its; `serves`: it can write to its Redis;
    `dropped`: for want of room, so many messages since it started, -1: not noted."""

    node: str
    is_ready: bool
    is_stale: bool
    slots: int
    serves: bool
    dropped: int = -1


class BoundPassed(Event, frozen=True, gc=False):
    """Something was beyond its bound."""

    node: str
    name: str
    value: float
    bound: float


class AlarmMissing(Event, frozen=True, gc=False):
    """What had to be told to the operator wasn't."""

    what: str


class Unwell(Event, frozen=True, gc=False):
    """A process ended that nobody had ended, and gave no reason that it may; or didn't become well in time; or left a
    client without an answer."""

    node: str
    what: str


class Played(Event, frozen=True, gc=False):
    """At the end: how often a feature did what it is there for (a lock was held, a will came, …) since the last fault
    was over; 0 is a feature that made no progress."""

    feature: str
    times: int


AnyEvent = (
    Asked
    | Connected
    | Refused
    | Disconnected
    | Closed
    | Intruded
    | Published
    | Acknowledged
    | PublishRefused
    | Delivered
    | Overstepped
    | Subscribed
    | SubscribeRefused
    | SubscribeSent
    | Unsubscribed
    | UnsubscribeDone
    | FaultBegan
    | FaultEnded
    | RedisLost
    | ChangeAsked
    | Banned
    | RulesChanged
    | TablesStood
    | RetainedStood
    | RowsLeft
    | NodeSeen
    | BoundPassed
    | AlarmMissing
    | Unwell
    | Played
)


def save(events: Iterable[AnyEvent], file: Path) -> None:
    """A line each, of JSON as Python writes it: of what has no end it says Infinity."""
    with file.open("w") as out:
        for event in events:
            out.write(json.dumps(msgspec.to_builtins(event)) + "\n")


def load(file: Path) -> list[AnyEvent]:
    with file.open() as lines:
        return [msgspec.convert(json.loads(line), AnyEvent) for line in lines]
