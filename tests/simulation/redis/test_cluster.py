"""A simulated Redis Cluster: who has which key, and what becomes of a master that is gone."""

from __future__ import annotations

from random import Random

import pytest
from redis.crc import key_slot
from redis.exceptions import ClusterCrossSlotError, ClusterDownError, MovedError, ResponseError

from simulation.redis.cluster import REBOOT_S, Cluster
from simulation.redis.fakes import Asked, FakeTimers, ask, new_server
from simulation.redis.server import Server

LAG_S = 0.01
NODE_TIMEOUT_S = 1.0
RANGES = ((0, 10_000), (10_001, 14_000), (14_001, 16_383))
KEYS = ("{route}", "{auth}", "{cluster}")
"""One of each master."""


class Clustered:
    """Three masters; `cut`: pairs that don't reach each other."""

    def __init__(self, *, replicas: bool = False, requires_full_coverage: bool = True) -> None:
        self.timers = FakeTimers()
        self.masters = [new_server(self.timers, number) for number in range(3)]
        self.replicas = [new_server(self.timers, number + 3) for number in range(3)] if replicas else []
        for replica, master in zip(self.replicas, self.masters, strict=False):
            replica.replicate_from(master, lambda: LAG_S)
        self.cut: dict[tuple[Server, Server], None] = {}
        self.cluster = Cluster(
            [(*slots, master) for slots, master in zip(RANGES, self.masters, strict=True)],
            self.replicas,
            self.timers,
            Random(1),
            reaches=lambda one, other: (one, other) not in self.cut and (other, one) not in self.cut,
            node_timeout_s=NODE_TIMEOUT_S,
            requires_full_coverage=requires_full_coverage,
        )
        self.timers.run(1.0)

    def ask(self, server: Server, *command: str | int) -> object:
        return ask(self.timers, server.connect(), command)[0]


@pytest.fixture
def clustered() -> Clustered:
    return Clustered()


def test_the_keys_are_those_of_each_master() -> None:
    for key, (first, last) in zip(KEYS, RANGES, strict=True):
        assert first <= key_slot(key.encode()) <= last


def test_each_node_names_who_has_which_slots() -> None:
    clustered = Clustered(replicas=True)
    for server in (*clustered.masters, *clustered.replicas):
        slots = clustered.ask(server, "CLUSTER", "SLOTS")
        assert isinstance(slots, list)
        assert [(first, last, [node[:2] for node in nodes]) for first, last, *nodes in slots] == [
            (first, last, [[b"10.0.0.%d" % number, 6379], [b"10.0.0.%d" % (number + 3), 6379]])
            for number, (first, last) in enumerate(RANGES)
        ]


def test_a_master_serves_its_own_keys_and_names_who_has_the_others(clustered: Clustered) -> None:
    first, second, _ = clustered.masters
    assert clustered.ask(first, "SET", KEYS[0], 1) == b"OK"
    moved = clustered.ask(first, "GET", KEYS[1])
    assert isinstance(moved, MovedError)
    assert (moved.slot_id, moved.host, moved.port) == (key_slot(KEYS[1].encode()), *second.address)
    assert clustered.ask(first, "PING") == b"PONG"
    assert clustered.ask(first, "WAIT", 0, 0) == 0


@pytest.mark.parametrize(
    "command",
    [
        ("XREAD", "STREAMS", "{route}:x", "{auth}:x", "0-0", "0-0"),
        ("EVAL", "return 1", 2, "{route}:x", "{auth}:x"),
        ("DEL", "{route}:x", "{auth}:x"),
    ],
)
def test_keys_of_several_slots_are_refused(clustered: Clustered, command: tuple[str | int, ...]) -> None:
    assert isinstance(clustered.ask(clustered.masters[0], *command), ClusterCrossSlotError)


def test_a_script_is_kept_to_the_keys_of_its_node(clustered: Clustered) -> None:
    refused = clustered.ask(clustered.masters[0], "EVAL", "return redis.call('GET', ARGV[1])", 1, KEYS[0], KEYS[1])
    assert isinstance(refused, ResponseError)
    assert "Script attempted to access a non local key in a cluster node" in str(refused)


def test_without_a_master_the_cluster_is_down_until_it_is_back(clustered: Clustered) -> None:
    first, dead, _ = clustered.masters
    clustered.ask(dead, "SET", KEYS[1], 1)
    dead.crash()
    clustered.timers.run(NODE_TIMEOUT_S / 2)
    assert clustered.ask(first, "SET", KEYS[0], 1) == b"OK"
    clustered.timers.run(NODE_TIMEOUT_S)
    assert isinstance(clustered.ask(first, "SET", KEYS[0], 2), ClusterDownError)
    dead.start()
    clustered.timers.run(1.0)
    assert clustered.ask(first, "GET", KEYS[0]) == b"1"
    assert isinstance(clustered.ask(dead, "GET", KEYS[1]), ClusterDownError)
    clustered.timers.run(REBOOT_S)
    assert clustered.ask(dead, "GET", KEYS[1]) == b"1"


def test_where_full_coverage_is_not_required_the_others_go_on() -> None:
    clustered = Clustered(requires_full_coverage=False)
    clustered.masters[1].crash()
    clustered.timers.run(60.0)
    assert clustered.ask(clustered.masters[0], "SET", KEYS[0], 1) == b"OK"
    assert isinstance(clustered.ask(clustered.masters[0], "GET", KEYS[1]), MovedError)


def test_a_master_that_is_cut_off_serves_nobody_and_lets_go_who_waits(clustered: Clustered) -> None:
    alone, *others = clustered.masters
    read = Asked(alone.connect(), ("XREAD", "BLOCK", 0, "STREAMS", KEYS[0], "0-0"))
    clustered.cut |= {(alone, other): None for other in others}
    clustered.timers.run(2 * NODE_TIMEOUT_S)
    assert read.replies is not None
    assert isinstance(read.replies[0], ClusterDownError)
    assert isinstance(clustered.ask(alone, "GET", KEYS[0]), ClusterDownError)
    clustered.cut.clear()
    clustered.timers.run(2 * NODE_TIMEOUT_S)
    assert clustered.ask(alone, "GET", KEYS[0]) is None


def test_a_replica_takes_the_slots_of_its_dead_master_which_follows_it_later() -> None:
    clustered = Clustered(replicas=True)
    dead, replica = clustered.masters[1], clustered.replicas[1]
    clustered.ask(dead, "SET", KEYS[1], 1)
    assert isinstance(clustered.ask(replica, "GET", KEYS[1]), MovedError)
    clustered.timers.run(1.0)
    dead.crash()
    clustered.timers.run(5.0)
    moved = clustered.ask(clustered.masters[0], "GET", KEYS[1])
    assert isinstance(moved, MovedError)
    assert (moved.host, moved.port) == replica.address
    assert clustered.ask(replica, "GET", KEYS[1]) == b"1"
    assert clustered.ask(clustered.masters[0], "SET", KEYS[0], 1) == b"OK"
    dead.start()
    clustered.timers.run(1.0)
    assert dead.replication.primary is replica
    assert isinstance(clustered.ask(dead, "GET", KEYS[1]), MovedError)


def test_a_master_that_only_one_other_does_not_reach_stays() -> None:
    clustered = Clustered(replicas=True)
    clustered.cut[clustered.masters[0], clustered.masters[1]] = None
    clustered.timers.run(60.0)
    assert [master.replication.primary for master in clustered.masters] == [None, None, None]
    for master, key in zip(clustered.masters, KEYS, strict=True):
        assert clustered.ask(master, "SET", key, 1) == b"OK"


def test_a_replica_without_a_majority_of_the_masters_takes_nothing() -> None:
    clustered = Clustered(replicas=True)
    lonely = clustered.replicas[1]
    clustered.cut |= {(lonely, other): None for other in (*clustered.masters, *clustered.replicas)}
    clustered.masters[1].crash()
    clustered.timers.run(60.0)
    assert lonely.replication.primary is clustered.masters[1]


def test_a_master_that_was_cut_off_loses_what_it_took_meanwhile() -> None:
    clustered = Clustered(replicas=True)
    old, replica = clustered.masters[1], clustered.replicas[1]
    everybody = (*clustered.masters, *clustered.replicas)
    clustered.cut |= {(old, other): None for other in everybody if other is not old}
    replica.replication_is_cut = True
    assert clustered.ask(old, "SET", KEYS[1], "lost") == b"OK"
    clustered.timers.run(5.0)
    assert clustered.ask(replica, "SET", KEYS[1], "kept") == b"OK"
    clustered.cut.clear()
    clustered.timers.run(5.0)
    assert old.replication.primary is replica
    assert old.keys.values == {KEYS[1].encode(): b"kept"}
    clustered.cluster.stop()
