"""Which peer an incarnation has, whatever becomes of its row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from flockmq import bounds
from flockmq.cluster.forwarding import Forwarding
from flockmq.cluster.mesh import Mesh

NODE = "b@00000000000000010000"


@pytest.fixture
async def forwarding() -> Forwarding:
    mesh = cast(Mesh, SimpleNamespace(links_of=lambda _: []))
    return Forwarding([], mesh, ignore, ignore, ignore, ignore, lambda: False)


def ignore(*_: object) -> None:
    """What is told of peers."""


async def test_routes_that_stayed_while_a_nodes_row_was_away_lead_to_it_again(forwarding: Forwarding) -> None:
    peer = forwarding.peer(NODE)
    forwarding.purge(NODE)
    assert peer.purged
    forwarding.joined(NODE)
    assert forwarding.peer(NODE) is peer
    assert not peer.purged
    accepted: list[bool] = []
    assert peer.put_acknowledged(5, b"message", lambda: accepted.append(True))
    peer.flush()
    assert (accepted, forwarding.resend_messages) == ([], 1)
    forwarding.stop()


async def test_nothing_is_made_for_a_node_that_was_never_purged(forwarding: Forwarding) -> None:
    forwarding.joined(NODE)
    assert forwarding._peers == {}


async def test_purged_nodes_are_remembered_within_a_bound(
    forwarding: Forwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PEERS_FORMER_MAX", 2)
    for number in range(5):
        forwarding.peer(f"b@{number}")
        forwarding.purge(f"b@{number}")
    assert list(forwarding._former) == ["b@3", "b@4"]
