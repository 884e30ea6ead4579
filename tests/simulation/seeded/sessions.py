"""Bugs of sessions and connections: who has one, for how long, what it leaves behind."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flockmq.home import wire
from flockmq.home.asking import Asking
from flockmq.home.holding import Holding
from flockmq.home.registry import Kick
from flockmq.home.residents import _will_of
from flockmq.home.service import Homes
from flockmq.home.slot import Slot
from flockmq.node.clients import Clients
from flockmq.session.channel import Channel
from flockmq.session.journal import META, decode_meta
from flockmq.session.opening import Will
from flockmq.session.slotted import slot_of
from judges import judge
from simulation.seeded.bug import Function, seeded


@seeded(judge.SESSION_PRESENT, "expiry", Asking.detach)
def expire_in_ms(right: Function, asking: Asking, client_id: bytes, token: int, expiry_s: int, *more: Any) -> None:
    """Who says that a client left takes its session's expiry for milliseconds."""
    right(asking, client_id, token, expiry_s * 1000, *more)


@seeded(judge.SESSION_PRESENT, "expiry", Holding._restore, kinds=("kill core", "drain core"))
def leave_who_is_away(
    right: Function, holding: Holding, slot: Slot, client_id: bytes, fields: dict[bytes, bytes]
) -> None:
    """A slot that moves brings the sessions of those who are connected alone."""
    if not decode_meta(fields[META]).left_ms:
        right(holding, slot, client_id, fields)


@seeded(judge.TWO_CONNECTIONS, "takeover", Homes._kick)
def kick_here_only(right: Function, homes: Homes, kick: Kick) -> None:
    """An older connection is closed only if it is on the node that is its client's home."""
    if kick.incarnation == homes._me:
        right(homes, kick)


@seeded(judge.DROPPED, "base", Asking.slots_moved, kinds=("kill core", "drain core"))
def close_who_moves(right: Function, asking: Asking, slots: Collection[int]) -> None:
    """A client whose home ends is closed."""
    for connection in list(asking._clients.connections()):
        if slot_of(connection.client_id) in slots:
            asking._clients.kick(connection.client_id, connection.token)
    right(asking, slots)


@seeded(judge.WILL_LOST, "wills", Asking.detach)
def leave_without_will(
    right: Function, asking: Asking, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes
) -> None:
    """A home isn't told that a client left with its will."""
    right(asking, client_id, token, expiry_s, False, nonce)


@seeded(judge.WILL_TWICE, "wills", Clients._take_over)
def mourn_at_once(right: Function, clients: Clients, client_id: bytes, older: Channel) -> None:
    """The will of a connection that is taken over is published at once, and when it is gone."""
    if older.will is not None and older.session is not None:
        clients._sessions._port.publish(older.will, older.session)
    right(clients, client_id, older)


@seeded(judge.WILL_UNDUE, "wills", Asking.detach, kinds=("kill core", "kill redis"))
def mourn_everybody(
    right: Function, asking: Asking, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes
) -> None:
    """DISCONNECT doesn't keep the will of a session that lasts from being published."""
    right(asking, client_id, token, expiry_s, True, nonce)


@seeded(judge.WILL_UNDUE, "wills", _will_of)
def never_delay(right: Function, opening: wire.Opening) -> Will | None:
    """The home of a session forgets the delay of its will."""
    will: Will | None = right(opening)
    return will and Will(will.message, 0, will.warrant)
