"""One user's connections make filters with wildcards in all places; what others subscribe to is matched as before."""

from __future__ import annotations

from typing import Final

import pytest

from conformance.wire import SESSION_EXPIRY, SUBACK, V5, Wire, connect, subscribe
from integration.broker.conftest import Node

CONNECTIONS: Final = 20
SHAPES_OF_ONE: Final = 16
"""`mqtt.max_wildcard_shapes`."""
LEVELS: Final = 9


def strange(number: int) -> str:
    return "/".join("+" if number >> at & 1 else "room" for at in range(LEVELS))


@pytest.mark.parametrize("expiry_s", [0, 3600], ids=["connected", "away"])
def test_one_users_filters_leave_room_for_all_others(node: Node, expiry_s: int) -> None:
    wires = [Wire(node.mqtt) for _ in range(CONNECTIONS)]
    for number, wire in enumerate(wires):
        wire.send(connect(V5, f"hostile-{number}", properties=[(SESSION_EXPIRY, expiry_s)]))
        assert wire.next() is not None
        first = number * SHAPES_OF_ONE + 1
        wire.send(subscribe(V5, 1, *((strange(at), 1) for at in range(first, first + SHAPES_OF_ONE))))
        assert wire.expect(SUBACK).reasons == [1] * SHAPES_OF_ONE
        if expiry_s:
            wire.vanish()
    assert node.metric("flockmq_filter_shapes") >= CONNECTIONS * SHAPES_OF_ONE
    with Wire(node.mqtt) as other:
        other.send(connect(V5, "other"))
        assert other.next() is not None
        other.subscribe(("home/+/room/+/lamp", 1))
        other.publish("home/1/room/2/lamp", b"on")
        assert other.receive().payload == b"on"
    for wire in wires:
        wire.socket.close()
