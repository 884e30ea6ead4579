"""What a slot says of what can't be read of it."""

from __future__ import annotations

import pytest

from flockmq.durable.due_wills import HASH as WILLS
from flockmq.durable.slot import OwnedSlot
from unit.broker.durable.rooms import ID, SLOT, Owner


@pytest.fixture
def slot(owner: Owner) -> OwnedSlot:
    return owner.service.manager.slots[SLOT]


async def test_who_is_to_see_to_something_is_told_what(slot: OwnedSlot) -> None:
    assert slot.alarm_text() == ""
    slot.unread = {ID: "why"}
    assert slot.alarm_text() == f"a session of slot {SLOT} can't be read, and is kept: 'client' (why)"
    slot.unread = {WILLS: "no will", ID: "why"}
    assert slot.alarm_text() == f"2 sessions of slot {SLOT} can't be read, and are kept: a will (no will), and 1 more"
    slot.read_error = "the key is a list"
    assert slot.alarm_text() == f"slot {SLOT} of sessions can't be read, its clients wait: the key is a list"


async def test_a_slot_that_is_lost_is_not_blank(slot: OwnedSlot) -> None:
    assert slot.loaded
    slot.lose(7.0)
    assert (slot.loaded, slot.is_lost, slot.lost_s, slot.is_blank()) == (False, True, 7.0, False)
