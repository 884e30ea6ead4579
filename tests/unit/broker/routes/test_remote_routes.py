"""Other nodes' filters lead to them, in whatever order rows, members and bootstraps come."""

from __future__ import annotations

from flockmq.rlog.schema import NodeInfo
from flockmq.routes.remote_routes import RemoteRoutes, slot_of_owner, slot_owner
from flockmq.routing.router import Router
from flockmq.routing.sink import SinkHost
from flockmq.routing.targets import NodeTarget
from flockmq.telemetry.counters import Counters

INFO = NodeInfo("n", "replicant", "127.0.0.1", 1, 2, "0")


class Cluster:
    """Members come and go as in `Node`: the cluster knows of each before the routes hear of it."""

    def __init__(self) -> None:
        self.router = Router(SinkHost(Counters()), 1000)
        self.members: dict[str, NodeTarget] = {}
        self.routes = RemoteRoutes(self.router, "me@0", self.members.get)
        self.routes.go_live()

    def join(self, *incarnations: str) -> None:
        for incarnation in incarnations:
            self.members[incarnation] = NodeTarget()
            self.routes.members.put(incarnation, INFO, None)

    def leave(self, incarnation: str) -> None:
        del self.members[incarnation]
        self.routes.members.delete(incarnation, INFO)

    def targets(self, topic: bytes) -> set[str]:
        peers = self.router.route(topic).fanout.peers
        assert len(peers) == len(set(peers))
        return {incarnation for incarnation, peer in self.members.items() if peer in peers}


def test_a_route_leads_to_its_node_until_it_is_deleted() -> None:
    cluster = Cluster()
    cluster.join("a@1", "b@1")
    for key in ((b"x/+", "a@1"), (b"x/#", "a@1"), (b"x/1", "b@1"), (b"x/1", "me@0")):
        cluster.routes.put(key, None, None)
    assert cluster.targets(b"x/1") == {"a@1", "b@1"}
    cluster.routes.delete((b"x/+", "a@1"), None)
    assert cluster.targets(b"x/1") == {"a@1", "b@1"}
    cluster.routes.delete((b"x/#", "a@1"), None)
    assert cluster.targets(b"x/1") == {"b@1"}


def test_rows_that_come_before_their_node_wait_for_it() -> None:
    cluster = Cluster()
    cluster.routes.put((b"x", "a@1"), None, None)
    cluster.routes.put((b"y", "a@1"), None, None)
    cluster.routes.delete((b"y", "a@1"), None)
    assert cluster.targets(b"x") == set()
    cluster.join("a@1")
    assert (cluster.targets(b"x"), cluster.targets(b"y")) == ({"a@1"}, set())


def test_nothing_is_kept_of_a_node_whose_rows_are_gone() -> None:
    cluster = Cluster()
    for number in range(3):
        incarnation = f"a@{number}"
        cluster.join(incarnation)
        cluster.routes.put((b"x", incarnation), None, None)
        cluster.leave(incarnation)
        cluster.routes.delete((b"x", incarnation), None)
    assert cluster.router.route(b"x").fanout.peers == []
    cluster.join("a@0")
    assert cluster.targets(b"x") == set()


def test_a_bootstrap_replaces_all_routes_and_places_those_who_joined_meanwhile() -> None:
    cluster = Cluster()
    cluster.join("a@1")
    cluster.routes.put((b"old", "a@1"), None, None)
    fresh = cluster.routes.fresh()
    fresh.put((b"new", "a@1"), None, None)
    fresh.put((b"new", "late@1"), None, None)
    cluster.join("late@1")
    assert cluster.targets(b"old") == {"a@1"}, "the fresh routes are nobody's yet"
    cluster.routes.swap(fresh)
    assert (cluster.targets(b"old"), cluster.targets(b"new")) == (set(), {"a@1", "late@1"})


def test_a_bootstrap_of_the_members_places_rows_that_were_there_first() -> None:
    cluster = Cluster()
    cluster.routes.put((b"x", "a@1"), None, None)
    members = cluster.routes.members.fresh()
    members.put("a@1", INFO, None)
    cluster.members["a@1"] = NodeTarget()
    cluster.routes.members.swap(members)
    assert cluster.targets(b"x") == {"a@1"}


def test_routes_of_a_slot_need_no_node_and_outlive_all() -> None:
    cluster = Cluster()
    for filter in (b"x/+", b"x/#", b"x/1"):
        cluster.routes.put((filter, slot_owner(5)), None, None)
    cluster.routes.put((b"x/1", slot_owner(6)), None, None)
    cluster.join("a@1")
    cluster.leave("a@1")
    assert cluster.router.route(b"x/1").fanout.slots.numbers == [5, 6]
    assert cluster.router.route(b"y").fanout.slots is None
    cluster.routes.delete((b"x/#", slot_owner(5)), None)
    assert cluster.router.route(b"x/1/2").fanout.slots is None
    fresh = cluster.routes.fresh()
    fresh.put((b"x/1", slot_owner(7)), None, None)
    cluster.routes.swap(fresh)
    assert cluster.router.route(b"x/1").fanout.slots.numbers == [7]


def test_a_slot_is_not_mistaken_for_a_node() -> None:
    assert [slot_of_owner(owner) for owner in (slot_owner(0), slot_owner(1023), "a@1", "#5@1")] == [0, 1023, -1, -1]
