"""Dialling: whatever address another node says it has, it is tried again and again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import pytest

from flockmq import bounds
from flockmq.membership.cluster_version import ClusterVersion
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.mesh import Mesh, ViaCore
from flockmq.membership.reachability import new_incarnation


@pytest.mark.parametrize("host", ["a..b", "x" * 64], ids=["empty label", "long label"])
async def test_a_node_whose_host_can_not_be_a_name_is_reached_through_a_core(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(bounds, "TUNNEL_AFTER_S", 0.0)
    monkeypatch.setattr(bounds, "LINK_REDIAL_MIN_S", 0.01)
    mesh = Mesh(MagicMock(), Identity(new_incarnation("a"), "replicant"), LinkKeys("k" * 32), ClusterVersion(), [])
    other = new_incarnation("b")
    mesh.want(other, (host, 1))
    async with asyncio.timeout(10):
        while ViaCore(other) not in mesh._targets:  # noqa: ASYNC110 - it dials by itself
            await asyncio.sleep(0.01)
    await mesh.stop()


def link(incarnation: str, *, is_open: bool = True, role: str = "core") -> Link:
    found = SimpleNamespace(peer=Identity(incarnation, role), through="", is_open=is_open)
    return cast(Link, found)


async def test_where_two_links_lead_to_one_node_one_is_enough() -> None:
    mesh = Mesh(MagicMock(), Identity("a@1", "core"), LinkKeys("k" * 32), ClusterVersion(), [])
    ending, other, third = link("b@1", is_open=False), link("b@1"), link("c@1", role="replicant")
    for each in (ending, other, third):
        mesh.add(each)
    assert mesh.one_of_each() == [other, third]
    assert mesh.linked_cores() == ["b@1"]
