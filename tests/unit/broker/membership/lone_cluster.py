"""A node's view of its cluster, without links, Redis or other nodes."""

from __future__ import annotations

from flockmq.membership.cluster import Cluster
from flockmq.membership.cluster_settings import ClusterSettings
from flockmq.membership.link_keys import LinkKeys


def lone_cluster(role: str = "core") -> Cluster:
    settings = ClusterSettings(name="a", role=role, host="", mqtt_port=0, version="1", keys=LinkKeys("k" * 32))
    return Cluster(settings)
