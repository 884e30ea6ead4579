"""What a run does: who publishes what to whom, how, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from flockmq.bench import message_ring
from flockmq.errors import ConfigError

Sample = dict[str, float]
"""Results by name: what a measurement returns, and what `--json` prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Publishers, subscribers and messages of a run. `fan`: every publisher reaches every subscriber; otherwise they
    are pairs.
    """

    publishers: int = 1
    subscribers: int = 1
    fan: bool = False
    topics: int = 1
    wildcard: bool = False
    filters: int = 0
    """Number of additional wildcard filters, for other topics."""
    qos: int = 0
    payload_bytes: int = 64
    window: int = 8192
    batch: int = 1_000_000
    """Maximum number of messages in one write."""
    warmup_s: float = 0.3
    duration_s: float = 1.0
    lasting: bool = False
    """Subscribers have durable sessions, so that an acknowledged message is durable."""
    settle_s: float = 0.0
    """From the last SUBACK to the first message: the time until the whole cluster knows the subscriptions."""
    prefix: str = "bench"
    """Prefix of topics and client ids."""

    @property
    def copies(self) -> int:
        """Number of subscribers that get each message."""
        return self.subscribers if self.fan else 1

    def check(self) -> None:
        """Raises ConfigError if the parts don't fit together."""
        if not self.fan and self.publishers != self.subscribers:
            raise ConfigError("pairs need as many --subscribers as --publishers (or say --fan)")
        places = message_ring.places(self.window, self.topics, self.qos)
        if places < 2 * self.window:
            raise ConfigError(
                f"--window {self.window}: at QoS {self.qos} there are packet ids for {places // 2} at most"
            )
        if places > message_ring.PLACES_MAX or places * (self.payload_bytes + 40) > message_ring.RING_MAX_BYTES:
            raise ConfigError(
                f"--window {self.window}, --topics {self.topics} and --payload {self.payload_bytes}: two windows and "
                f"one round of the topics don't fit into {message_ring.RING_MAX_BYTES // 2**20} MiB"
            )

    def topic_names(self, group: int) -> list[bytes]:
        whose = message_ring.letters(group, message_ring.PUBLISHER_LETTERS)
        return [
            b"%s/%s/%s" % (self.prefix.encode(), whose, message_ring.letters(topic, message_ring.PLACE_LETTERS))
            for topic in range(self.topics)
        ]

    def filter(self, group: int) -> str:
        if self.wildcard or self.topics > 1:
            return f"{self.prefix}/{message_ring.letters(group, message_ring.PUBLISHER_LETTERS).decode()}/+"
        return self.topic_names(group)[0].decode()

    def other_filters(self) -> list[str]:
        """Filters as deep as the topics and with the same first level, but that match none of them."""
        return [
            f"{self.prefix}/+/X{message_ring.letters(index, message_ring.PLACE_LETTERS).decode()}"
            for index in range(self.filters)
        ]
