"""Where a plugin may hook in, what its handlers are told there, and what they may answer.

Two kinds of points. A *notice* tells what happened; its answer is None. A *question* comes before something is done:
None leaves it to the next handler and at last to the node; a changed event takes the event's place; `Allow` and `Deny`
end the questioning. `POINTS` is the whole list.

There is no point for messages that were delivered to a subscriber, acknowledged by one, or dropped. A run of messages
reaches all its subscribers as one chunk: at no moment the node handles one message for one subscriber. And messages are
dropped because a client or a link is overloaded, which is no time for more work; they are counted, by cause.
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
"""Of a PUBLISH beside topic, properties and payload: its head, the topic's length and the packet id."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A connection. `protocol` is 4 for MQTT 3.1 and 3.1.1, 5 for 5.0; `listener` is as in the configuration:
    `tcp:default`. `username` is "" for none, and before authentication what the client says."""

    client_id: str
    username: str
    host: str
    port: int
    listener: str
    protocol: int


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says to prove who it is."""

    client: Client
    password: bytes | None

    def __repr__(self) -> str:
        return f"Credentials(client={self.client!r}, password=…)"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """`topic` is a filter if the action is to subscribe. `prefix`: what the client said before it, such as
    `$share/GROUP/`, `$exclusive/` or `$delayed/SECONDS/`. It is the same in the events below."""

    client: Client
    action: Literal["publish", "subscribe"]
    topic: str
    qos: int
    retain: bool
    prefix: str = ""


class Connack(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to CONNECT: a reason code, 0 for success."""

    client: Client
    reason: int


class Disconnected(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an admitted connection: a reason code, 0 when the client said DISCONNECT."""

    client: Client
    reason: int


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Only the filter can be changed; the prefix stays."""

    client: Client
    filter: str
    qos: int
    prefix: str = ""


class Unsubscription(msgspec.Struct, frozen=True, kw_only=True):
    client: Client
    filter: str
    prefix: str = ""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session begins, is taken up, or ends; it may have no connection then."""

    client_id: str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A PUBLISH. Topic, payload, retain and properties can be changed; QoS and prefix are the publisher's. One with a
    prefix is delayed: it is seen when it is taken, and not again when it is due.

    `properties` are a copy; to change them change it and hand it back with the message.
    """

    client: Client
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None = None
    prefix: str = ""


class Allow(msgspec.Struct, frozen=True, kw_only=True):
    """Yes, and nobody else is asked. The rest counts for client.authenticate: whom the client is from now on."""

    username: str | None = None
    """None: what the client says."""
    superuser: bool = False


class Deny(msgspec.Struct, frozen=True):
    """No. `reason` is an MQTT 5.0 reason code from 0x80 on: what a 5.0 client is told, as far as its packet allows."""

    reason: int = Reason.NOT_AUTHORIZED

    def __post_init__(self) -> None:
        if not 0x80 <= self.reason <= 0xFF:
            raise ValueError(f"reason {self.reason:#04x} isn't one of a failure, which are 0x80 to 0xff")


class Point(Generic[E, A]):
    """`answers`: what a handler may answer besides None. `required`: what a handler that fails counts for, unless it
    was hooked otherwise: True: no; False: as if it had said nothing. `check` raises for an event that must not take
    another's place: (the event told, the one answered).
    """

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


def _check_filter(told: Subscription | Unsubscription, answered: Subscription | Unsubscription) -> None:
    check_filter((told.prefix + answered.filter).encode())


def _check_message(told: Message, answered: Message) -> None:
    topic = answered.topic.encode()
    check_topic_name(told.prefix.encode() + topic)
    if is_unpublishable(topic) or (told.prefix and is_delayed(topic)):
        raise ValueError(f"a message to {told.prefix}{answered.topic}, where no client publishes")
    if answered.qos != told.qos:
        raise ValueError("another QoS; that is the publisher's")
    encoded = properties.encode(frame.PUBLISH, answered.properties)
    block = frame.varint(len(encoded)) + encoded
    decode.publish_properties(block, 0, len(block))
    size = len(topic) + len(block) + len(answered.payload) + _HEADER_MAX_BYTES
    if size > PACKET_MAX_BYTES:
        raise ValueError(f"a message of {size} bytes; {PACKET_MAX_BYTES} are the most")


CLIENT_CONNECT: Final = Point[Client, Deny | None]("client.connect", Deny, required=True)
"""CONNECT came: before authentication."""
CLIENT_AUTHENTICATE: Final = Point[Credentials, Allow | Deny | None]("client.authenticate", Allow, Deny, required=True)
"""Before the authenticators of the configuration; without an answer these are asked."""
CLIENT_AUTHORIZE: Final = Point[Access, Allow | Deny | None]("client.authorize", Allow, Deny, required=True)
"""Before the rules of the configuration. A topic that was allowed for publishing isn't asked about for a while."""
CLIENT_CONNACK: Final = Point[Connack, None]("client.connack")
CLIENT_CONNECTED: Final = Point[Client, None]("client.connected")
CLIENT_DISCONNECTED: Final = Point[Disconnected, None]("client.disconnected")
CLIENT_SUBSCRIBE: Final = Point[Subscription, Subscription | Deny | None](
    "client.subscribe", Subscription, Deny, check=_check_filter
)
"""For each filter of a SUBSCRIBE, authorized and rewritten."""
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
"""For messages to the topics that the handler's `filters` name: only these leave the fast road."""

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
