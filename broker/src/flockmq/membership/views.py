"""Settings of a cluster node, and what a node shows of its cluster: plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from flockmq.membership.cluster_version import NEWEST
from flockmq.membership.frames import Status
from flockmq.membership.link import Link
from flockmq.membership.link_certificates import LinkCertificates
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.members import Members
from flockmq.membership.mesh import Address
from flockmq.membership.reachability import name_of


@dataclass(frozen=True, slots=True)
class ClusterSettings:
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


class Traffic(NamedTuple):
    """Traffic with one other node, since its links came up."""

    sent_bytes: int
    received_bytes: int
    queue_bytes: int


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member as this node knows it. The last six are -1/False while it has sent no status."""

    name: str
    incarnation: str
    role: str
    host: str
    mqtt_port: int
    version: str
    connections: int
    routes: int
    lag_entries: int
    ready: bool
    draining: bool
    leader: bool


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


def member_views(members: Members, status_of: Callable[[str], Status | None]) -> list[MemberView]:
    """All members, sorted by name."""
    views = []
    for incarnation, info in members.items():
        heard = status_of(incarnation) or Status(-1, -1, -1)
        views.append(
            MemberView(
                info.name, incarnation, info.role, info.host, info.mqtt_port, info.version,
                heard.connections, heard.routes, heard.lag_entries, heard.ready, heard.draining, heard.leads,
            )
        )  # fmt: skip
    return sorted(views, key=lambda view: (view.name, view.incarnation))
