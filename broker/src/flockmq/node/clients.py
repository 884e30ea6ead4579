"""This node's connections by client id: admission, takeover, the end. One connection per client id, cluster-wide.

A client id is asked of its home (`home.service`), which closes an older connection first, wherever it is. Client ids
that the broker assigns are unique and need no home.

What always holds: `by_id` has exactly the connections that hold a token.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from flockmq.home.service import AttachError, Done
from flockmq.mqtt import encode
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.session.channel import ADMITTING, Channel
from flockmq.session.counters import Counters
from flockmq.session.limits import Limits

log: Final = logging.getLogger(__name__)

VIOLATIONS_LOGGED_PER_S: Final = 10
OnEvent = Callable[[str, bytes, int, int], None]
"""(kind, client id, reason code, protocol version) of a connection event."""


class Homes(Protocol):
    def attach(self, client_id: bytes, done: Done) -> None: ...
    def detach(self, client_id: bytes, token: int) -> None: ...


class Clients:
    """`flush` has what was put outside a turn written."""

    def __init__(self, limits: Limits, counters: Counters, flush: Callable[[], None], on_event: OnEvent) -> None:
        self.by_id: dict[bytes, Channel] = {}
        self.homes: Homes | None = None
        self._limits = limits
        self._counters = counters
        self._flush = flush
        self._on_event = on_event
        self._connack4 = encode.connack(4, Reason.SUCCESS)
        self._connack5 = encode.connack(5, Reason.SUCCESS, own=self._offer())
        self._violations = 0
        self._violations_since_s = 0.0

    # What a connection asks of its node.

    def admit(self, channel: Channel, connect: Connect) -> None:
        if not self._limits.allow_anonymous:
            channel.refuse(Reason.NOT_AUTHORIZED)
            return
        session = channel.session
        assert session is not None
        assigned = not connect.client_id
        if assigned:
            session.client_id = b"auto-" + secrets.token_hex(10).encode()
        connack = self._connack(connect, session.client_id if assigned else None)
        if assigned:
            self._admitted(channel, None, connack)
            return

        def answered(answer: int | AttachError) -> None:
            if isinstance(answer, AttachError):
                log.info("client %r isn't admitted: %s", session.client_id, answer)
                channel.refuse(Reason.SERVER_UNAVAILABLE)  # there is no code for "superseded" in CONNACK
            elif channel.state != ADMITTING:
                self._home().detach(session.client_id, answer)
            else:
                self.by_id[session.client_id] = channel
                self._admitted(channel, answer, connack)
            self._flush()

        self._home().attach(session.client_id, answered)

    def gone(self, channel: Channel) -> None:
        client_id = channel.client_id()
        if isinstance(channel.token, int):
            if self.by_id.get(client_id) is channel:
                del self.by_id[client_id]
            self._home().detach(client_id, channel.token)
        if channel.admitted_once:
            self._on_event("disconnected", client_id, channel.close_reason, channel.protocol_version)

    def violated(self, channel: Channel, error: PacketError) -> None:
        """One line, and not too many of them: a hostile client must not fill the log."""
        now_s = time.monotonic()
        if now_s - self._violations_since_s >= 1.0:
            if self._violations > VIOLATIONS_LOGGED_PER_S:
                log.warning("%d more protocol violations", self._violations - VIOLATIONS_LOGGED_PER_S)
            self._violations_since_s, self._violations = now_s, 0
        self._violations += 1
        if self._violations <= VIOLATIONS_LOGGED_PER_S:
            name = repr(channel.client_id().decode()) if channel.client_id() else "(before CONNECT)"
            log.warning("client %s from %s: %s; closed with 0x%02X", name, channel.address(), error, error.reason)

    # What homes ask of this node.

    def kick(self, client_id: bytes, token: int) -> bool:
        channel = self.by_id.get(client_id)
        if channel is None or channel.token != token:
            return False
        self._counters.takeovers += 1
        channel.close(Reason.SESSION_TAKEN_OVER)
        self._flush()
        return True

    def tokens(self) -> Iterator[tuple[bytes, int]]:
        for client_id, channel in list(self.by_id.items()):
            if isinstance(channel.token, int):
                yield client_id, channel.token

    # Inside.

    def _admitted(self, channel: Channel, token: int | None, connack: bytes) -> None:
        self._counters.connects += 1
        channel.admitted(token, connack)
        self._on_event("connected", channel.client_id(), Reason.SUCCESS, channel.protocol_version)

    def _home(self) -> Homes:
        assert self.homes is not None, "clients come after the homes are there"
        return self.homes

    def _offer(self) -> Properties:
        """What this server offers less than the specification's defaults (section 3.2.2.3)."""
        offer = Properties()
        offer.receive_maximum = self._limits.max_awaiting_rel
        offer.maximum_packet_size = self._limits.max_packet_bytes
        offer.shared_subscription_available = 0
        return offer

    def _connack(self, connect: Connect, assigned: bytes | None) -> bytes:
        if connect.version != 5:
            return self._connack4
        wanted = None if connect.properties is None else connect.properties.session_expiry_interval
        if assigned is None and not wanted:
            return self._connack5
        offer = self._offer()
        offer.assigned_client_identifier = assigned
        if wanted:
            offer.session_expiry_interval = 0  # sessions end with their connection
        return encode.connack(5, Reason.SUCCESS, own=offer)
