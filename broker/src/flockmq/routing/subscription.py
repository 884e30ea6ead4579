"""One subscription of one session, and what it asks for [MQTT-3.8.3.1]."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.routing.sink import AWAY
from flockmq.session.local_session import LocalSession


@mypyc_attr(acyclic=True)
class Subscription:
    """`identifiers` is the encoded Subscription Identifier properties, empty when the client gave none."""

    __slots__ = ("filter", "identifiers", "no_local", "qos", "retain_as_published", "session")

    def __init__(
        self,
        session: LocalSession,
        filter: bytes,
        qos: int,
        no_local: bool = False,
        retain_as_published: bool = False,
        identifiers: bytes = b"",
    ) -> None:
        self.session = session
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers

    def is_plain(self) -> bool:
        """A QoS 0 message reaches this subscriber byte by byte as it was published."""
        session = self.session
        return (
            not self.no_local
            and not self.identifiers
            and session.max_packet_bytes == 0
            and session.aliases is None
            and session.sink.flow != AWAY
        )
