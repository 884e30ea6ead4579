"""A durable session as its former owner stored it: from the fields of its keys in Redis to the session, offline."""

from __future__ import annotations

from collections.abc import Callable

from flockmq.durable.commit_queue import CommitState
from flockmq.durable.pending_writes import SlotWriter
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import (
    ASKED,
    MESSAGE,
    META,
    PENDING_RETAINED,
    PROGRESS,
    RECEIVED,
    SUBSCRIPTION,
    UNSUBSCRIBED,
    ZONE,
    decode_meta,
    received_of,
    sequence_of,
    subscription_of,
)
from flockmq.routing.router import Router
from flockmq.session.limits import DEFAULT, Limits


def restored(
    writer: SlotWriter,
    commit_state: CommitState,
    client_id: bytes,
    fields: dict[bytes, bytes],
    router: Router,
    limits: Callable[[str], Limits],
) -> DurableSession:
    """The session whose keys hold `fields`; the caller adds its subscriptions to the router. `limits` returns the
    limits of a zone. Raises ValueError, IndexError, struct.error or PacketError if they are malformed.
    """
    meta = decode_meta(fields.get(META, b""))
    zone = fields.get(ZONE, DEFAULT.encode()).decode()
    away = router.away5 if meta.version == 5 else router.away4
    session = DurableSession(writer, commit_state, meta, away, client_id, limits(zone), 0)
    _restore(session, fields, router.host.now_s)
    return session


def _restore(session: DurableSession, fields: dict[bytes, bytes], now_s: float) -> None:
    session.record.restore(fields)
    messages: list[tuple[int, bytes]] = []
    for field, value in fields.items():
        kind, name = field[0], field[1:]
        if kind == MESSAGE:
            messages.append((sequence_of(field), value))
        elif kind == RECEIVED:
            session.incoming.restore(received_of(field, value), value, now_s)
        elif kind == SUBSCRIPTION:
            session.subscriptions.add(subscription_of(session, name, value))
            if value[0] & PENDING_RETAINED:
                session.record.restore_pending_retained(name)
        elif kind == ASKED:
            session.subscriptions.note_asked(name, value)
        elif kind == PROGRESS:
            session.record.restore_progress(name, value)
        elif kind == UNSUBSCRIBED:
            session.record.restore_unsubscribed(name, value)
    session.messages.restore(messages, now_s)
    session.incoming.restore_numbers()
    session.outgoing.committed = session.messages.last
