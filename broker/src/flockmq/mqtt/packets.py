"""Decoded control packets. They are short-lived: the session keeps what it needs of them.

Strings and topics are `bytes` that were checked. `properties`: None if there are none.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt.properties import Properties

NO_LOCAL: Final = 0x04
RETAIN_AS_PUBLISHED: Final = 0x08
RETAIN_HANDLING_SHIFT: Final = 4


class ConnectWill:
    """The will in a CONNECT."""

    __slots__ = ("payload", "properties", "qos", "retain", "topic")

    def __init__(self, topic: bytes, payload: bytes, qos: int, retain: bool, properties: Properties | None) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties


class Connect:
    """CONNECT. `version`: 3, 4 or 5. `client_id` b"": the server assigns one. `keep_alive_s` 0: no keep-alive."""

    __slots__ = ("clean_start", "client_id", "keep_alive_s", "password", "properties", "user_name", "version", "will")

    def __init__(
        self,
        version: int,
        client_id: bytes,
        *,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        will: ConnectWill | None = None,
        user_name: bytes | None = None,
        password: bytes | None = None,
        properties: Properties | None = None,
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.clean_start = clean_start
        self.keep_alive_s = keep_alive_s
        self.will = will
        self.user_name = user_name
        self.password = password
        self.properties = properties


class SubscribeEntry:
    """One entry of a SUBSCRIBE: the filter, including `$share/…`, and the options byte (section 3.8.3.1)."""

    __slots__ = ("filter", "options")

    def __init__(self, topic_filter: bytes, options: int) -> None:
        self.filter = topic_filter
        self.options = options

    @property
    def qos(self) -> int:
        return self.options & 3

    @property
    def no_local(self) -> bool:
        return self.options & NO_LOCAL != 0

    @property
    def retain_as_published(self) -> bool:
        return self.options & RETAIN_AS_PUBLISHED != 0

    @property
    def retain_handling(self) -> int:
        """0: send retained messages; 1: only for a new subscription; 2: never."""
        return self.options >> RETAIN_HANDLING_SHIFT & 3


class Subscribe:
    """SUBSCRIBE, with at least one subscription, in order."""

    __slots__ = ("packet_id", "properties", "subscriptions")

    def __init__(self, packet_id: int, subscriptions: list[SubscribeEntry], properties: Properties | None) -> None:
        self.packet_id = packet_id
        self.subscriptions = subscriptions
        self.properties = properties


class Unsubscribe:
    """UNSUBSCRIBE, with at least one filter, in order."""

    __slots__ = ("filters", "packet_id", "properties")

    def __init__(self, packet_id: int, filters: list[bytes], properties: Properties | None) -> None:
        self.packet_id = packet_id
        self.filters = filters
        self.properties = properties


class Disconnect:
    """DISCONNECT from a client. Before MQTT 5.0 the reason code is 0."""

    __slots__ = ("properties", "reason")

    def __init__(self, reason: int, properties: Properties | None) -> None:
        self.reason = reason
        self.properties = properties


class Auth:
    """AUTH from a client."""

    __slots__ = ("properties", "reason")

    def __init__(self, reason: int, properties: Properties | None) -> None:
        self.reason = reason
        self.properties = properties
