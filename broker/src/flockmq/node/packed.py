"""A lasting session as bytes, on its way from one node to another. Pure; times travel as what is left of them.

Fields may only be added to the end of a struct, with a default.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from flockmq.session.limits import Limits
from flockmq.session.publish import Stored, packet_of
from flockmq.session.session import Session
from flockmq.session.sink import Sink
from flockmq.session.subscription import Subscription

_NO_EXPIRY: Final = -1.0


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A message that waits, or is in flight; `left_s` -1: it doesn't expire."""

    packet: bytes
    left_s: float = _NO_EXPIRY
    share: bytes = b""
    stored: bool = False


class Flight(msgspec.Struct, frozen=True, array_like=True):
    packet_id: int
    state: int
    entry: Entry | None


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """A subscription."""

    filter: bytes
    qos: int
    no_local: bool
    retain_as_published: bool
    identifiers: bytes
    share: bytes = b""


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A session; `version` is that of its packets."""

    client_id: bytes
    version: int
    expiry_s: int
    inflight: list[Flight]
    queue: list[Entry]
    awaiting_rel: list[int]
    subscriptions: list[Wanted]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Packed).decode
_decode_entries: Final = msgspec.msgpack.Decoder(list[Entry]).decode


def pack(session: Session, now_s: float) -> bytes:
    kept = session.kept or {}
    flights = [
        Flight(packet_id, state, _entry(kept[packet_id], now_s) if packet_id in kept else None)
        for packet_id, state in (session.inflight or {}).items()
    ]
    wanted = [
        Wanted(held.filter, held.qos, held.no_local, held.retain_as_published, held.identifiers)
        for held in session.all_subscriptions()
    ]
    return _encode(
        Packed(
            session.client_id,
            session.sink.protocol_version,
            session.expiry_s,
            flights,
            [_entry(entry, now_s) for entry in session.queue or ()],
            list(session.awaiting_rel or ()),
            wanted,
        )
    )


def unpack(raw: bytes, away4: Sink, away5: Sink, limits: Limits, now_s: float) -> Session:
    """The session, away, in no router. Raises msgspec.DecodeError for bytes that no node of ours made."""
    packed = _decode(raw)
    version = packed.version
    session = Session(away5 if version == 5 else away4, packed.client_id, limits, 0, 0, packed.expiry_s)
    session.inflight = {flight.packet_id: flight.state for flight in packed.inflight}
    session.kept = {
        flight.packet_id: _unpacked(flight.entry, version, now_s)
        for flight in packed.inflight
        if flight.entry is not None
    }
    session.replace_queue([_unpacked(entry, version, now_s) for entry in packed.queue])
    session.awaiting_rel = dict.fromkeys(packed.awaiting_rel, now_s) or None
    for wanted in packed.subscriptions:
        session.add_subscription(
            Subscription(
                session,
                wanted.filter,
                wanted.qos,
                wanted.no_local,
                wanted.retain_as_published,
                wanted.identifiers,
            )
        )
    return session


def pack_entries(entries: Iterable[Stored | bytes], now_s: float) -> bytes:
    return _encode([_entry(entry, now_s) for entry in entries])


def unpack_entries(raw: bytes, version: int, now_s: float) -> list[Stored | bytes]:
    return [_unpacked(entry, version, now_s) for entry in _decode_entries(raw)]


def take_queue(session: Session) -> deque[Stored | bytes]:
    """What waits, out of the session."""
    queue = session.queue
    session.queue = None
    session.queue_bytes = 0
    return deque() if queue is None else queue


def _entry(entry: Stored | bytes, now_s: float) -> Entry:
    if not isinstance(entry, Stored):
        return Entry(packet_of(entry))
    left_s = _NO_EXPIRY if entry.expires_s == 0.0 else max(0.0, entry.expires_s - now_s)
    return Entry(entry.packet, left_s, entry.share, True)


def _unpacked(entry: Entry, version: int, now_s: float) -> Stored | bytes:
    if not entry.stored:
        return entry.packet
    return Stored(entry.packet, version, 0.0 if entry.left_s < 0 else now_s + entry.left_s, entry.share)
