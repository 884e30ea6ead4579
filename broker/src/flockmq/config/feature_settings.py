"""The keys of `[plugins]`, `[[rewrite]]`, `[[auto_subscribe]]` and `[sys_topics]`, with EMQX's names where it has them.

An invalid rule raises ValueError here, so a configuration that was loaded is valid.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from flockmq.config.values import Kind
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.rewrite_rule import CLIENT_NAMES, RewriteRule, TopicTemplate
from flockmq.mqtt.topics import check_filter, is_shared

Qos = Annotated[int, Meta(ge=0, le=2)]
Flag = Annotated[int, Meta(ge=0, le=1)]
Interval = Annotated[float, Meta(ge=0.0, le=86_400.0), Kind.DURATION]
"""0 means never."""


class PluginsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[plugins]`."""

    enabled: tuple[str, ...] = ()
    """Names of installed entry points of the group `flockmq.plugins`. Plugins start in this order."""
    settings: dict[str, dict[str, object]] = {}
    """The plugin NAME gets the table `[plugins.settings.NAME]` unchanged."""


class RewriteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[rewrite]]`: one rule. If several match, the last one applies."""

    action: Literal["publish", "subscribe", "all"] = "all"
    source_topic: str
    re: str
    """A regular expression in RE2 syntax."""
    dest_topic: str
    """May contain `$1`, …, `${clientid}`, `${username}`."""

    def __post_init__(self) -> None:
        RewriteRule(self.source_topic, self.re, self.dest_topic)  # raises ValueError if it is invalid
        if self.action != "subscribe" and ("+" in self.dest_topic or "#" in self.dest_topic):
            raise ValueError(f"dest_topic {self.dest_topic!r}: a wildcard, and the action is {self.action}")


class AutoSubscribeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[auto_subscribe]]`: a subscription that the broker makes for every client that connects."""

    topic: str
    """A filter. May contain `${clientid}`, `${username}`, `${host}`."""
    qos: Qos = 0
    nl: Flag = 0
    """No Local."""
    rap: Flag = 0
    """Retain As Published."""
    rh: Qos = 0
    """Retain Handling."""

    def __post_init__(self) -> None:
        try:
            check_filter(TopicTemplate(self.topic, CLIENT_NAMES).fill(dict.fromkeys(CLIENT_NAMES, "c")))
        except (ValueError, PacketError) as error:
            raise ValueError(f"topic {self.topic!r}: {error}") from None
        if self.nl and is_shared(self.topic.encode()):
            raise ValueError(f"topic {self.topic!r}: a shared subscription can't have nl = 1")  # [MQTT-3.8.3-4]


class EventMessagesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[sys_topics.sys_event_messages]`: client events, published at once below `$SYS/brokers/NODE/clients/CLIENT/`."""

    client_connected: bool = True
    client_disconnected: bool = True


class SysTopicsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[sys_topics]`."""

    sys_msg_interval: Interval = 60.0
    """How often version, statistics and metrics are published."""
    sys_heartbeat_interval: Interval = 30.0
    """How often uptime and time are published."""
    sys_event_messages: EventMessagesSettings = field(default_factory=EventMessagesSettings)
