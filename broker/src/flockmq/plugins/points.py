"""The hook points of plugins: their events, and the answers that handlers may return.

There are two kinds of points. A *notification* tells what happened; its handlers return None. A *request* comes before
the node does something. Its handlers return:
- None to leave the decision to the next handler, and finally to the node,
- a changed event, which replaces the event, or
- `Allow` or `Deny`, which end the request.

`POINTS` has all of them.

There is no point for messages that were delivered to a subscriber, acknowledged by one, or dropped. The node sends a
run of messages to all subscribers as one chunk, so it never handles one message for one subscriber. And it drops
messages because a client or a link is overloaded, when more work would do harm; it counts them, by cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Literal, TypeVar

import msgspec

from flockmq.bounds import PACKET_MAX_BYTES
from flockmq.mqtt import decode, frame, properties
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import check_filter, check_topic_name, is_delayed, is_unpublishable

E = TypeVar("E", bound=msgspec.Struct)
A = TypeVar("A")

_HEADER_MAX_BYTES: Final = 9
"""The size of a PUBLISH without topic, properties and payload: fixed header, topic length and packet id."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A connection. `protocol` is 4 for MQTT 3.1 and 3.1.1, and 5 for 5.0. `listener` is named as in the configuration,
    for example `tcp:default`. `username` is "" if there is none; before authentication it is what the client sent."""

    client_id: str
    username: str
    host: str
    port: int
    listener: str
    protocol: int


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials in a CONNECT."""

    client: Client
    password: bytes | None

    def __repr__(self) -> str:
        return f"Credentials(client={self.client!r}, password=…)"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """A request to publish or subscribe. For a subscribe, `topic` is a filter. `prefix` is what the client sent before
    the topic, such as `$share/GROUP/`, `$exclusive/` or `$delayed/SECONDS/`; this is so in the events below too."""

    client: Client
    action: Literal["publish", "subscribe"]
    topic: str
    qos: int
    retain: bool
    prefix: str = ""


class Connack(msgspec.Struct, frozen=True, kw_only=True):
    """The node's answer to CONNECT. `reason` is a reason code, 0 for success."""

    client: Client
    reason: int


class Disconnected(msgspec.Struct, frozen=True, kw_only=True):
    """An admitted connection has ended. `reason` is a reason code, 0 if the client sent DISCONNECT."""

    client: Client
    reason: int


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription. Handlers may change only the filter."""

    client: Client
    filter: str
    qos: int
    prefix: str = ""


class Unsubscription(msgspec.Struct, frozen=True, kw_only=True):
    client: Client
    filter: str
    prefix: str = ""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session begins, is resumed, is taken over, or ends. It may have no connection then."""

    client_id: str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A PUBLISH. Handlers may change topic, payload, retain and properties, but not QoS and prefix. A message with a
    prefix is delayed: handlers get it when it is accepted, and not again when it is due.

    `properties` is a copy. To change properties, change the copy and return it in a changed message.
    """

    client: Client
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None = None
    prefix: str = ""


class Allow(msgspec.Struct, frozen=True, kw_only=True):
    """Allow it, without asking other handlers or the node. The fields are for client.authenticate only."""

    username: str | None = None
    """The client's user name from now on. None: the user name that the client sent."""
    superuser: bool = False


class Deny(msgspec.Struct, frozen=True):
    """Refuse it. `reason` is an MQTT 5.0 reason code of at least 0x80. A 5.0 client gets it if the answering packet
    allows this code."""

    reason: int = Reason.NOT_AUTHORIZED

    def __post_init__(self) -> None:
        if not 0x80 <= self.reason <= 0xFF:
            raise ValueError(f"reason {self.reason:#04x} isn't one of a failure, which are 0x80 to 0xff")


class Point(Generic[E, A]):
    """A hook point. `answers` are the types that a handler may return besides None. `required` is the default for its
    handlers: if True, a handler that fails counts as `Deny`, else as None. `check(event, answer)` raises an exception
    if the answer may not replace the event."""

    __slots__ = ("answers", "check", "name", "required")

    def __init__(
        self, name: str, *answers: type, required: bool = False, check: Callable[[E, E], None] | None = None
    ) -> None:
        self.name = name
        self.answers = answers
        self.required = required
        self.check = check

    def __repr__(self) -> str:
        return self.name


def _check_filter(event: Subscription | Unsubscription, answer: Subscription | Unsubscription) -> None:
    check_filter((event.prefix + answer.filter).encode())


def _check_message(event: Message, answer: Message) -> None:
    topic = answer.topic.encode()
    check_topic_name(event.prefix.encode() + topic)
    if is_unpublishable(topic) or (event.prefix and is_delayed(topic)):
        raise ValueError(f"a message to {event.prefix}{answer.topic}, where no client publishes")
    if answer.qos != event.qos:
        raise ValueError("another QoS; that is the publisher's")
    encoded = properties.encode(frame.PUBLISH, answer.properties)
    block = frame.varint(len(encoded)) + encoded
    decode.publish_properties(block, 0, len(block))
    size = len(topic) + len(block) + len(answer.payload) + _HEADER_MAX_BYTES
    if size > PACKET_MAX_BYTES:
        raise ValueError(f"a message of {size} bytes; {PACKET_MAX_BYTES} are the most")


CLIENT_CONNECT: Final = Point[Client, Deny | None]("client.connect", Deny, required=True)
"""A CONNECT came. Called before authentication."""
CLIENT_AUTHENTICATE: Final = Point[Credentials, Allow | Deny | None]("client.authenticate", Allow, Deny, required=True)
"""Called before the configured authenticators. If no handler answers, these are asked."""
CLIENT_AUTHORIZE: Final = Point[Access, Allow | Deny | None]("client.authorize", Allow, Deny, required=True)
"""Called before the configured rules. A topic that was allowed for publishing isn't asked about again for a while."""
CLIENT_CONNACK: Final = Point[Connack, None]("client.connack")
CLIENT_CONNECTED: Final = Point[Client, None]("client.connected")
CLIENT_DISCONNECTED: Final = Point[Disconnected, None]("client.disconnected")
CLIENT_SUBSCRIBE: Final = Point[Subscription, Subscription | Deny | None](
    "client.subscribe", Subscription, Deny, check=_check_filter
)
"""Called for each filter of a SUBSCRIBE, after authorization and rewriting."""
CLIENT_UNSUBSCRIBE: Final = Point[Unsubscription, Unsubscription | None](
    "client.unsubscribe", Unsubscription, check=_check_filter
)
SESSION_CREATED: Final = Point[Session, None]("session.created")
SESSION_RESUMED: Final = Point[Session, None]("session.resumed")
SESSION_TERMINATED: Final = Point[Session, None]("session.terminated")
SESSION_TAKENOVER: Final = Point[Session, None]("session.takenover")
SESSION_SUBSCRIBED: Final = Point[Subscription, None]("session.subscribed")
SESSION_UNSUBSCRIBED: Final = Point[Unsubscription, None]("session.unsubscribed")
MESSAGE_PUBLISH: Final = Point[Message, Message | Deny | None]("message.publish", Message, Deny, check=_check_message)
"""Called for messages to the topics that the handler's `filters` match. Only these messages leave the fast path."""

POINTS: Final = (
    CLIENT_CONNECT,
    CLIENT_AUTHENTICATE,
    CLIENT_AUTHORIZE,
    CLIENT_CONNACK,
    CLIENT_CONNECTED,
    CLIENT_DISCONNECTED,
    CLIENT_SUBSCRIBE,
    CLIENT_UNSUBSCRIBE,
    SESSION_CREATED,
    SESSION_RESUMED,
    SESSION_TERMINATED,
    SESSION_TAKENOVER,
    SESSION_SUBSCRIBED,
    SESSION_UNSUBSCRIBED,
    MESSAGE_PUBLISH,
)
