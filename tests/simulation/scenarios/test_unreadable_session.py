"""A session in Redis that this version can't read: another version wrote it, or something spoilt it."""

from __future__ import annotations

from typing import Final

import pytest

from flockmq.session.journal import META
from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, is_answered, scenario

LATER_FORM: Final = b"\xff"
"""What a session's field META begins with in a version to come."""


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="Mend 7: a session that can't be read is destroyed at the next CONNECT"
)
@scenario()
async def test_a_session_that_cannot_be_read_is_kept_for_an_operator(cluster: SimulatedCluster) -> None:
    subscriber = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600)
    await subscriber.subscribe("t")
    subscriber.disconnect()
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    assert await publisher.publish("t", b"1") == 0
    home = cluster.home_of("sub")
    await cluster.hosts[home].kill()
    stored = cluster.session_of("sub")
    stored[META] = LATER_FORM + stored[META][1:]
    before = dict(stored)
    await cluster.until_moved("sub", home)
    assert not await is_answered(Client.connect(cluster, "sub", at="replicant-1", expiry_s=3600))
    assert cluster.session_of("sub") == before
    assert await cluster.alarms()
