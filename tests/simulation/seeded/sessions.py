"""Bugs of sessions and connections: who has one, for how long, what it leaves behind."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from flockmq.durable.cancelled_wills import CancelledWills
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import META, decode_meta
from flockmq.durable.session_service import _will_of
from flockmq.durable.session_table import SessionTable
from flockmq.durable.slot import OwnedSlot
from flockmq.durable.slot_manager import SlotManager
from flockmq.mqtt.message import Will
from flockmq.mqtt.packets import Connect
from flockmq.node.access_control import AccessControl
from flockmq.node.connections import Connections
from flockmq.protocol.channel import Channel
from flockmq.routing.slots import slot_of
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc import messages
from flockmq.session_rpc.client import SessionRpcClient
from flockmq.session_rpc.client_registry import Kick
from flockmq.session_rpc.server import SessionRpcServer
from judges import judge
from simulation.seeded.bug import Function, seeded


@seeded(judge.SESSION_PRESENT, "expiry", SessionRpcClient.detach, seed=3)
def expire_in_ms(
    right: Function, asking: SessionRpcClient, client_id: bytes, token: int, expiry_s: int = -1, **more: Any
) -> None:
    """Who says that a client left takes its session's expiry for milliseconds."""
    right(asking, client_id, token, expiry_s * 1000, **more)


@seeded(judge.SESSION_PRESENT, "expiry", SlotManager._restore, kinds=("kill core", "drain core"))
def leave_who_is_away(
    right: Function, manager: SlotManager, slot: OwnedSlot, client_id: bytes, fields: dict[bytes, bytes]
) -> None:
    """A slot that moves brings the sessions of those who are connected alone."""
    if not decode_meta(fields[META]).left_ms:
        right(manager, slot, client_id, fields)


@seeded(judge.FORGOTTEN, "base", DurableSession.remove_subscription)
def say_there_was_none(right: Function, session: DurableSession, filter: bytes) -> None:
    """Who gives up a subscription hears that it hadn't it."""
    right(session, filter)


@seeded(judge.SESSION_PRESENT, "anew", SessionTable.open, seed=2)
def begin_nothing_anew(right: Function, table: SessionTable, fresh: DurableSession, clean_start: bool) -> Any:
    """Clean Start doesn't end the session that is there."""
    return right(table, fresh, False)


@seeded(judge.SESSION_PRESENT, "anew", SessionRpcClient.detach, seed=3)
def forget_what_is_said(
    right: Function, asking: SessionRpcClient, client_id: bytes, token: int, expiry_s: int = -1, **more: Any
) -> None:
    """The session expiry that DISCONNECT says isn't heard."""
    right(asking, client_id, token, -1, **more)


@seeded(judge.OVERSTEPPED, "flow", LocalSession.__init__)
def send_all_at_once(right: Function, session: LocalSession, sink: Any, client_id: bytes, *given: Any) -> None:
    """A client's Receive Maximum isn't looked at."""
    limits, _, *others = given
    right(session, sink, client_id, limits, 65_535, *others)


@seeded(judge.TWO_CONNECTIONS, "takeover", SessionRpcServer._kick)
def kick_here_only(right: Function, server: SessionRpcServer, kick: Kick) -> None:
    """An older connection is closed only if it is on the node that is its client's owner."""
    if kick.incarnation == server._notes.me:
        right(server, kick)


@seeded(judge.DROPPED, "base", SessionRpcClient.slots_moved, kinds=("kill core", "drain core"))
def close_who_moves(right: Function, asking: SessionRpcClient, slots: Collection[int]) -> None:
    """A client whose owner ends is closed."""
    for connection in list(asking._clients.connections()):
        if slot_of(connection.client_id) in slots:
            asking._clients.kick(connection.client_id, connection.token)
    right(asking, slots)


@seeded(judge.WILL_LOST, "wills", SessionRpcClient.detach)
def leave_without_will(
    right: Function,
    asking: SessionRpcClient,
    client_id: bytes,
    token: int,
    expiry_s: int = -1,
    *,
    with_will: bool = False,
    nonce: bytes = b"",
) -> None:
    """An owner isn't told that a client left with its will."""
    right(asking, client_id, token, expiry_s, with_will=False, nonce=nonce)


@seeded(judge.WILL_LOST, "redis-away", CancelledWills.note, seed=71)
def take_asking_for_coming(right: Function, cancelled: CancelledWills, client_id: bytes, *will: Any) -> None:
    """Who asks to be let in has no will of before, whether it is let in or not."""


@seeded(judge.WILL_TWICE, "wills", Connections._take_over, seed=2)
def mourn_at_once(right: Function, clients: Connections, client_id: bytes, older: Channel) -> None:
    """The will of a connection that is taken over is published at once, and when it is gone."""
    if older.will is not None and older.session is not None:
        clients._sessions._port.publish(older.will, cast(LocalSession, older.session))
    right(clients, client_id, older)


@seeded(judge.WILL_UNDUE, "wills", SessionRpcClient.detach, kinds=("kill core", "kill redis"), seed=3)
def mourn_everybody(
    right: Function,
    asking: SessionRpcClient,
    client_id: bytes,
    token: int,
    expiry_s: int = -1,
    *,
    with_will: bool = False,
    nonce: bytes = b"",
) -> None:
    """DISCONNECT doesn't keep the will of a durable session from being published."""
    right(asking, client_id, token, expiry_s, with_will=True, nonce=nonce)


@seeded(judge.WILL_UNDUE, "wills", SessionRpcServer._take_evict, kinds=("drain replicant",))
def mourn_who_is_sent_away(right: Function, server: SessionRpcServer, incarnation: str, item: messages.Evict) -> None:
    """The will of a client that is sent to other nodes isn't held back."""
    client_id, token, expiry_s, nonce, _, guest = item
    right(server, incarnation, (client_id, token, expiry_s, nonce, 0, guest))


@seeded(judge.TAKEN_ANYWAY, "base", AccessControl.admit, kinds=("drain replicant",), seed=2)
def take_who_comes(right: Function, access: AccessControl, channel: Channel, connect: Connect) -> None:
    """A node that drains lets clients in."""
    access.sends_away = False
    right(access, channel, connect)


@seeded(judge.WILL_UNDUE, "wills", _will_of, seed=5)
def never_delay(right: Function, request: messages.SessionRequest) -> Will | None:
    """The owner of a session forgets the delay of its will."""
    will: Will | None = right(request)
    return will and Will(will.message, 0, will.authorization)
