"""Exclusive filters of clients that are away: who loses them to others, and who keeps them until it is back."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from flockmq.node.offline_exclusive_subscriptions import OfflineExclusiveSubscriptions
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SLOT, Owner, request

FILTER, OTHER = b"$exclusive/a", b"$exclusive/b"
RULES, OTHER_RULES = b"rules", b"other rules"


class Access:
    """What holds for the one client."""

    def __init__(self) -> None:
        self.rules = RULES
        self.denied: set[bytes] = set()
        self.judged: list[bytes] = []
        self.gone: set[bytes] = set()

    def rules_by_name(self, client_id: bytes, user: bytes) -> bytes:
        return self.rules

    def is_denied_by_name(self, client_id: bytes, user: bytes, filter: bytes, qos: int) -> bool:
        self.judged.append(filter)
        return filter in self.denied

    def is_gone(self, user: bytes) -> bool:
        return user in self.gone


class Part:
    """Of a client of the user eve, that was judged by `rules` and has both filters and another."""

    def __init__(self, owner: Owner, rules: bytes) -> None:
        self.owner = owner
        self.access = Access()
        self.part = OfflineExclusiveSubscriptions(owner.service, self.access, lambda: self.claimants)
        self.claimants: list[bytes] = []
        self.connect(1, rules)
        self.part.claimed(ID)
        for filter in (FILTER, OTHER, b"a"):
            owner.subscribe(1, filter)
        self.claimants = [ID]
        self.access.rules, self.access.denied = OTHER_RULES, {FILTER}

    def connect(self, token: int, rules: bytes) -> None:
        asked = msgspec.structs.replace(request(token), rules=rules, user=b"eve")
        attach = Attach(ID, REPLICANT, token, asked, lambda _: None, b"eve")
        assert self.owner.service.open(attach) == messages.ADMITTED
        self.owner.disk.commit()

    async def held(self) -> list[bytes]:
        await self.part.look()
        return [subscription.filter for subscription in self.owner.service.sessions.by_id[ID].subscriptions.all()]


@pytest.fixture
async def owner() -> Owner:
    made = Owner(Redis(), "core-0@1", 1)
    await made.own(SLOT)
    return made


async def test_who_is_away_loses_what_rules_no_longer_allow(owner: Owner) -> None:
    client = Part(owner, RULES)
    assert await client.held() == [FILTER, OTHER, b"a"], "its node sees to it while it is there"
    owner.service.leave(ID, 1, -1, False)
    assert await client.held() == [OTHER, b"a"]
    client.access.rules, client.access.denied = b"later rules", {OTHER}
    assert await client.held() == [b"a"]


async def test_who_was_judged_by_more_than_its_owner_knows_keeps_it(owner: Owner) -> None:
    client = Part(owner, b"its own rules")
    owner.service.leave(ID, 1, -1, False)
    assert await client.held() == [FILTER, OTHER, b"a"]


async def test_where_rules_look_at_more_now_nothing_is_lost(owner: Owner) -> None:
    client = Part(owner, RULES)
    owner.service.leave(ID, 1, -1, False)
    client.access.rules = b""
    assert await client.held() == [FILTER, OTHER, b"a"]


async def test_what_is_known_of_who_claims_a_filter_is_not_forgotten_before_the_claim_is_there(owner: Owner) -> None:
    client = Part(owner, RULES)
    client.claimants = []
    await client.part.look()
    client.claimants = [ID]
    owner.service.leave(ID, 1, -1, False)
    assert await client.held() == [OTHER, b"a"]


async def test_what_was_known_of_a_former_connection_says_nothing_of_the_next(owner: Owner) -> None:
    client = Part(owner, RULES)
    owner.service.leave(ID, 1, -1, False)
    client.connect(2, b"its own rules")
    owner.ask(2, messages.ReauthorizedQuestion([], b"its own rules"))
    owner.disk.commit()
    owner.service.leave(ID, 2, -1, False)
    assert await client.held() == [FILTER, OTHER, b"a"]


async def test_whose_user_was_deleted_loses_them(owner: Owner) -> None:
    client = Part(owner, b"its own rules")
    client.access.gone = {b"eve"}
    assert await client.held() == [FILTER, OTHER, b"a"], "it is there"
    owner.service.leave(ID, 1, -1, False)
    assert await client.held() == [b"a"]


async def test_who_comes_back_while_it_is_judged_is_judged_by_its_node(owner: Owner) -> None:
    client = Part(owner, RULES)
    owner.service.leave(ID, 1, -1, False)
    judging = asyncio.ensure_future(client.held())
    await asyncio.sleep(0)
    client.connect(2, OTHER_RULES)
    assert await judging == [FILTER, OTHER, b"a"]


async def test_filters_are_judged_one_a_turn(owner: Owner) -> None:
    client = Part(owner, RULES)
    owner.service.leave(ID, 1, -1, False)
    judged = client.access.judged
    judging = asyncio.ensure_future(client.held())
    for count in (1, 2):
        await asyncio.sleep(0)
        assert len(judged) == count
    await judging
