"""QoS 2 messages from the client of a durable session that wait for PUBREL, and their message ids. No I/O.

Invariant: a message id (origin) names one message of the client and is never used again.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import NUMBERS_RESERVED, QUEUED_MESSAGE_BYTES
from flockmq.durable.session_fields import received_field
from flockmq.durable.session_record import SessionRecord
from flockmq.routing.message_id import ORIGIN_BYTES, origin_of
from flockmq.session.limits import Limits


@mypyc_attr(acyclic=True)
class Incoming:
    """`origins`: packet id → message id of a message without PUBREL yet, followed by its chosen shared-subscription
    members (`routing.shared_frames`).
    """

    __slots__ = ("_deals_bytes", "_last_number", "_record", "_since", "origins")

    def __init__(self, record: SessionRecord) -> None:
        self.origins: dict[int, bytes] | None = None
        self._since: dict[int, float] | None = None
        """Packet id → time of arrival, in seconds."""
        self._record = record
        self._last_number: int = 0
        self._deals_bytes: int = 0

    def __len__(self) -> int:
        return len(self.origins or ())

    def clear(self) -> None:
        self.origins = self._since = None

    def stored_bytes(self) -> int:
        """What these use of the user's quota."""
        return QUEUED_MESSAGE_BYTES * len(self.origins or ()) + self._deals_bytes

    def origin(self, packet_id: int) -> bytes:
        """The message id for this packet id; b"": there is none."""
        return b"" if self.origins is None else self.origins.get(packet_id, b"")

    def overdue(self, limits: Limits, now_s: float) -> list[int]:
        """If the session is full: the packet ids that have waited too long for their PUBREL."""
        if self._since is None or not self.is_full(limits):
            return []
        horizon_s = now_s - limits.await_rel_timeout
        return [packet_id for packet_id, since_s in self._since.items() if since_s < horizon_s]

    def is_full(self, limits: Limits) -> bool:
        return len(self.origins or ()) >= limits.max_awaiting_rel

    def begin(self, packet_id: int, deals: bytes, now_s: float) -> bytes:
        """A new message arrived: return its message id, with the chosen members. It may be used when this
        is committed.
        """
        self._last_number += 1
        meta = self._record.meta
        if self._last_number > meta.numbers:
            meta.numbers = self._last_number + NUMBERS_RESERVED
            self._record.write_meta()
        origin = origin_of(meta.sender, self._last_number) + deals
        self._note(packet_id, origin, now_s)
        self._write(packet_id, origin)
        return origin

    def release(self, packet_id: int) -> bool:
        """PUBREL arrived. Returns False if the packet id is unknown."""
        origins = self.origins
        if origins is None or packet_id not in origins:
            return False
        assert self._since is not None
        self._deals_bytes -= len(origins.pop(packet_id)) - ORIGIN_BYTES
        del self._since[packet_id]
        if not origins:
            self.clear()
        self._record.writer.delete(self._record.client_id, received_field(packet_id))
        return True

    def write_again(self) -> None:
        for packet_id, origin in (self.origins or {}).items():
            self._write(packet_id, origin)

    def restore(self, packet_id: int, origin: bytes, now_s: float) -> None:
        self._note(packet_id, origin, now_s)

    def restore_numbers(self) -> None:
        """No number is used again."""
        self._last_number = self._record.meta.numbers

    def _note(self, packet_id: int, origin: bytes, now_s: float) -> None:
        if self.origins is None or self._since is None:
            self.origins, self._since = {}, {}
        self.origins[packet_id] = origin
        self._since[packet_id] = now_s
        self._deals_bytes += len(origin) - ORIGIN_BYTES

    def _write(self, packet_id: int, origin: bytes) -> None:
        self._record.writer.put(self._record.client_id, received_field(packet_id), origin)
