"""Bugs of homes: what of a session is durable, and what a slot takes that moves from one core to another."""

from __future__ import annotations

import itertools
from typing import Any, Final

from flockmq.home import store, wire
from flockmq.home.holding import Holding
from flockmq.home.residents import Residents
from flockmq.home.slot import Slot
from flockmq.home.store import Store
from flockmq.home.taking import Taken
from flockmq.rlog.redis import RedisLink
from flockmq.session.durable import DurableSession
from flockmq.session.journal import MESSAGE
from judges import judge
from simulation.seeded.bug import Function, seeded

EVERY: Final = 10
"""One message, or one pair of packet ids, in so many."""

_puts: Final = itertools.count(1)


@seeded(judge.LOST, "flow", Store.put, kinds=("kill core",))
def store_too_little(right: Function, store: Store, slot: int, client_id: bytes, field: bytes, value: bytes) -> None:
    """Some messages that count as durable aren't."""
    if field[0] != MESSAGE or next(_puts) % EVERY:
        right(store, slot, client_id, field, value)


@seeded(judge.DUPLICATED, "takeover", Residents._attach)
def forget_what_came(right: Function, residents: Residents, session: DurableSession, token: int) -> Any:
    """A session whose client comes back doesn't know which QoS 2 messages that is amid."""
    session.origins = session.awaiting_rel = None
    return right(residents, session, token)


@seeded(judge.STOLEN, "owners", Residents.is_anothers)
def give_away(right: Function, residents: Residents, client_id: bytes, user: bytes | None) -> bool:
    """A session whose client is away is whoever's comes."""
    return False


@seeded(judge.UNWELL, "base", Residents.ask)
def never_answer(
    right: Function, residents: Residents, client_id: bytes, token: int, place: Any, question: Any, answer: Function
) -> None:
    """Some QoS 2 messages get no answer, however often and wherever it is asked for: by packet id."""
    if isinstance(question, wire.Receive) and question.packet_id % EVERY == 1:
        answer = _nobody
    right(residents, client_id, token, place, question, answer)


def _nobody(answer: bytes) -> None:
    """Is told."""


@seeded(judge.DUPLICATED, "base", Holding._load, kinds=("slow redis", "corrupt core"))
async def take_again(right: Function, holding: Holding, slot: Slot, taken: Taken) -> bool:
    """A slot that moves takes what it has taken before: it forgets the numbers of those who send to it."""
    taken.marks.clear()
    loaded: bool = await right(holding, slot, taken)
    return loaded


@seeded(judge.DUPLICATED, "base", Store._load_functions, kinds=("cut core redis", "stop core"))
async def stale_fence(right: Function, _: Store, link: RedisLink) -> None:
    """A slot's store takes what a home writes that another one has deposed."""
    fenced = "if fence ~= before and fence ~= after then"
    assert fenced in store.FUNCTIONS
    await link.call("FUNCTION", "LOAD", "REPLACE", store.FUNCTIONS.replace(fenced, "if false then"))
