"""Settings of a cluster node, and what a node shows of its cluster: plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from flockmq.membership.cluster_version import NEWEST
from flockmq.membership.link import Link
from flockmq.membership.link_certificates import LinkCertificates
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.mesh import Address
from flockmq.membership.reachability import name_of


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """What a node is configured to know of itself and its cluster."""

    name: str
    role: str
    host: str
    """The address at which other nodes reach this one."""
    mqtt_port: int
    version: str
    keys: LinkKeys
    """Unused if it neither listens nor dials."""
    listen: Address | None = None
    """None: no links, as on a single node. Port 0: any free one."""
    seeds: tuple[Address, ...] = ()
    cores: int = 0
    """The number of configured cores, for majorities. 0: as many as the members' table has."""
    max_stale_s: float = 0.5
    """How old tables may be that acknowledged messages are matched by."""
    via_core: bool = False
    """Replicants always reach each other through a core, and never dial each other."""
    speaks: int = NEWEST
    """The highest cluster version that this node speaks."""
    version_settle_s: float = 0.0
    """How long all nodes must have spoken a version before the leader raises the cluster to it."""
    certificates: LinkCertificates | None = None
    """None: links don't use TLS."""


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """What the rest of the node reports for heartbeats and `nodes`."""

    connections: int = 0
    routes: int = 0
    ready: bool = False
    draining: bool = False
    takes_clients: bool = False
    connect_wait_s: float = 0.0
    """For how long a client waits for CONNACK now."""
    rebalancing: bool = False
    durable_clients: int = 0
    messages_per_s: float = 0.0
    has_too_much: bool = False


class Traffic(NamedTuple):
    """Traffic with one other node, since its links came up."""

    sent_bytes: int
    received_bytes: int
    queue_bytes: int


def traffic_by_node(links: Iterable[Link]) -> dict[str, Traffic]:
    """Node name → traffic over the links to it, of each node that is linked now."""
    by_name: dict[str, Traffic] = {}
    for link in links:
        name = name_of(link.peer.incarnation)
        so_far = by_name.get(name, Traffic(0, 0, 0))
        by_name[name] = Traffic(
            so_far.sent_bytes + link.sent_bytes,
            so_far.received_bytes + link.received_bytes,
            so_far.queue_bytes + link.data_bytes,
        )
    return by_name
