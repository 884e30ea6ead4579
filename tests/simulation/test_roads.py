"""What a road consists of."""

from __future__ import annotations

from simulation.cluster import SimulatedCluster
from simulation.roads import road
from simulation.scenario import scenario


@scenario()
async def test_a_road_has_what_its_packet_meets_and_nothing_that_happens_anyway(cluster: SimulatedCluster) -> None:
    steps = await road(cluster, "local")
    assert steps[0] == ("routing/fast_path.py", "scan_acknowledged")
    assert ("session/local_session.py", "LocalSession.puback") in steps, "the subscriber's answer belongs to it"
    assert not [file for file, _ in steps if file.startswith(("rlog/", "membership/"))]
