"""Bugs of owners: what of a session is durable, and what a slot takes that moves from one core to another."""

from __future__ import annotations

import itertools
from typing import Any, Final

from flockmq.durable import session_store
from flockmq.durable.attach_admission import AttachAdmission
from flockmq.durable.client_requests import ClientRequests
from flockmq.durable.connected_sessions import ConnectedSessions
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import MESSAGE
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot import OwnedSlot
from flockmq.durable.slot_manager import SlotManager
from flockmq.durable.slot_reader import SlotContents
from flockmq.redis.link import RedisLink
from flockmq.session_rpc import messages
from judges import judge
from simulation.seeded.bug import Function, seeded

EVERY: Final = 10
"""One message, or one pair of packet ids, in so many."""

_puts: Final = itertools.count(1)


@seeded(judge.LOST, "flow", SessionStore.put, kinds=("kill core",), seed=6)
def store_too_little(
    right: Function, store: SessionStore, slot: int, client_id: bytes, field: bytes, value: bytes | None, *other: bytes
) -> None:
    """Some messages that count as durable aren't."""
    if value is None or field[0] != MESSAGE or next(_puts) % EVERY:
        right(store, slot, client_id, field, value, *other)


@seeded(judge.DUPLICATED, "takeover", ConnectedSessions.attach, seed=4)
def forget_what_came(right: Function, connected: ConnectedSessions, session: DurableSession, token: int) -> Any:
    """A session whose client comes back doesn't know which QoS 2 messages that is amid."""
    session.incoming.clear()
    return right(connected, session, token)


@seeded(judge.STOLEN, "owners", AttachAdmission.is_other_users)
def give_away(right: Function, limits: AttachAdmission, client_id: bytes, user: bytes | None) -> bool:
    """A session whose client is away is whoever's comes."""
    return False


@seeded(judge.UNWELL, "base", ClientRequests.ask)
def never_answer(
    right: Function,
    requests: ClientRequests,
    client_id: bytes,
    token: int,
    place: Any,
    question: Any,
    answer: Function,
) -> None:
    """Some QoS 2 messages get no answer, however often and wherever it is asked for: by packet id."""
    if isinstance(question, messages.ReceiveQuestion) and question.packet_id % EVERY == 1:
        answer = _nobody
    right(requests, client_id, token, place, question, answer)


def _nobody(answer: bytes) -> None:
    """Is told."""


@seeded(judge.DUPLICATED, "base", SlotManager._load, kinds=("slow redis", "corrupt core"), seed=24)
async def take_again(right: Function, manager: SlotManager, slot: OwnedSlot, taken: SlotContents) -> bool:
    """A slot that moves takes what it has taken before: it forgets the numbers of those who send to it."""
    taken.marks.clear()
    loaded: bool = await right(manager, slot, taken)
    return loaded


@seeded(judge.DUPLICATED, "base", SessionStore._load_functions, kinds=("cut core redis", "stop core"))
async def stale_fence(right: Function, _: SessionStore, link: RedisLink) -> None:
    """A slot's store takes what an owner writes that another one has deposed."""
    fenced = "if fence ~= before and fence ~= after then"
    assert fenced in session_store.FUNCTIONS
    await link.call("FUNCTION", "LOAD", "REPLACE", session_store.FUNCTIONS.replace(fenced, "if false then"))
