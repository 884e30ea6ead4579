"""A node's view of its cluster, without links, Redis or other nodes."""

from __future__ import annotations

from flockmq.membership.cluster import Cluster
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.membership_settings import MembershipSettings


def lone_cluster(role: str = "core") -> Cluster:
    settings = MembershipSettings(name="a", role=role, host="", mqtt_port=0, version="1", keys=LinkKeys("k" * 32))
    return Cluster(settings)
