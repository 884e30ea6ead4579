"""One user is in very many shared groups that match ever new topics: others' connections and nodes go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from conformance.wire import SUBACK, V5, Wire, connect, publish, subscribe
from integration.broker.conftest import Fleet, eventually
from integration.dev.commands import Commands

GROUPS: Final = 4000
A_SUBSCRIBE: Final = 1000
TOPICS: Final = 300
"""To match each took a time that was quadratic in the groups, and all that was read at once went in one go."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    commands = Commands()
    made = Fleet(commands, tmp_path)
    try:
        yield made
    finally:
        commands.end_all()
        made.stop_redis()


def test_no_node_stands_still_for_one_users_groups(fleet: Fleet) -> None:
    fleet.core("core")
    there, here = fleet.replicant("there"), fleet.replicant("here")
    with Wire(there.mqtt) as member, Wire(here.mqtt) as hostile, Wire(here.mqtt) as other:
        for wire, name in ((member, "member"), (hostile, "hostile"), (other, "other")):
            wire.send(connect(V5, name))
            assert wire.next() is not None
        for packet_id, first in enumerate(range(0, GROUPS, A_SUBSCRIBE), 1):
            filters = ((f"$share/{group}/many/#", 0) for group in range(first, first + A_SUBSCRIBE))
            member.send(subscribe(V5, packet_id, *filters))
            assert set(member.expect(SUBACK).reasons) == {0}
        other.subscribe(("quiet", 1))
        eventually(lambda: there.metric("flockmq_shared_groups") == GROUPS, "it is in all of them")
        hostile.send(b"".join(publish(V5, f"many/{number}", b"x") for number in range(TOPICS)))
        other.publish("quiet", b"goes on")
        assert other.receive().payload == b"goes on"
