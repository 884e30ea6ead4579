"""Rules change while their client has many subscriptions, and its session's owner dies amid the check."""

from __future__ import annotations

import asyncio
from typing import Final

from flockmq.durable.session_fields import subscription_field
from simulation.cluster import Shape, SimulatedCluster
from simulation.profiles import BY_RULES
from simulation.scenario import Client, scenario

FILTERS: Final = [f"{number:03}/" + "x" * 300 for number in range(120)]
"""More than a page has."""
SLOW_S: Final = 0.3
CHECKED_MAX_S: Final = 20.0
LOOK_S: Final = 0.1


@scenario(Shape(settings=BY_RULES))
async def test_what_is_denied_ends_though_the_owner_dies_amid_the_check(cluster: SimulatedCluster) -> None:
    (name,) = cluster.clients_of("core-1", 1)
    client = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    for filter in FILTERS:
        assert await client.subscribe(filter) == 1
    _reorder(cluster.session_of(name))
    cluster.slow("core-1", "replicant-1", SLOW_S)
    cluster.slow("replicant-1", "core-1", SLOW_S)
    await cluster.admin.deafen("replicant-2", name, "#")
    await asyncio.sleep(2.5 * SLOW_S)  # The first page has come.
    await cluster.hosts["core-1"].kill()
    assert await _subscribed(cluster, name) == []


def _reorder(stored: dict[bytes, bytes]) -> None:
    """The fields of a hash come in an order of their own, not in that of their writes."""
    fields = list(stored.items())
    stored.clear()
    stored.update(reversed(fields))


async def _subscribed(cluster: SimulatedCluster, name: str) -> list[str]:
    """The filters that the session still has when the check is over, or was to be."""
    for _ in range(int(CHECKED_MAX_S / LOOK_S)):
        fields = cluster.session_of(name)
        left = [filter for filter in FILTERS if subscription_field(filter.encode()) in fields]
        if not left:
            break
        await asyncio.sleep(LOOK_S)
    return left
