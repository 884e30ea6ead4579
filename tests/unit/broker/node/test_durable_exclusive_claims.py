"""Claims of exclusive filters of durable sessions: kept while the session has the filter."""

from __future__ import annotations

import pytest

from flockmq.rlog.entry import PUT
from flockmq.routing.slots import slot_of
from flockmq.routing.subscriber import Subscription
from unit.broker.durable.session_owner import add_subscription
from unit.broker.routes.test_slot_routes import OWNER, SLOT, Hosted


@pytest.fixture
async def hosted() -> Hosted:
    return Hosted()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("gives_up", [False, True])
async def test_the_claim_of_a_filter_that_a_session_came_with_is_tried_until_it_stands_or_the_filter_goes(
    hosted: Hosted, gives_up: bool, version: int
) -> None:
    hosted.version.raised(version)
    session, filter = hosted.session, b"$exclusive/e"
    hosted.durable_host.session_service.manager.slots[slot_of(session.client_id)] = hosted.slot
    hosted.durable_host.session_service.sessions.by_id[session.client_id] = session
    add_subscription(session, Subscription(session, filter, 1))
    hosted.log.rows[b"e"] = {OWNER}
    hosted.durable_host.filters_loaded(SLOT, session.client_id, [filter])
    for applied in (False,) if gives_up else (False, False, True):
        assert await _claims(hosted, applied) == 1
        if gives_up:
            session.remove_subscription(filter)
        hosted.durable_host.try_again()
    assert await _claims(hosted, applied=True) == 0


async def _claims(hosted: Hosted, applied: bool) -> int:
    """How many were written; those and what follows from them are answered."""
    claims = sum(op[1] == PUT for ops in hosted.log.asked() for op in ops)
    while hosted.log.waiting():
        await hosted.log.answer(applied)
    return claims
