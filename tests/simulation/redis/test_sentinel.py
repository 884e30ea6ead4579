"""Simulated Sentinels: when they replace a primary, by whom, and who hears of it."""

from __future__ import annotations

from random import Random

import pytest

from flockmq.redis.connection import Reply
from simulation.redis.fakes import Asked, FakeTimers, ask, new_server
from simulation.redis.sentinel import HELLO_S, RECONFIGURE_AFTER_S, Sentinel, Sentinels
from simulation.redis.server import Server

LAG_S = 0.01
DOWN_AFTER_S = 0.5
REPLACED_WITHIN_S = 5.0


class Group:
    """A primary with two replicas and three Sentinels. `cut`: who doesn't reach whom."""

    def __init__(self, quorum: int = 2) -> None:
        self.timers = FakeTimers()
        self.servers = [new_server(self.timers, number) for number in range(3)]
        for replica in self.servers[1:]:
            replica.replicate_from(self.servers[0], lambda: LAG_S)
        self.cut: dict[tuple[Sentinel, Server | Sentinel], None] = {}
        self.sentinels = Sentinels(
            "main",
            [(f"10.1.0.{number}", 26379) for number in range(3)],
            self.servers,
            self.timers,
            Random(1),
            reaches=lambda sentinel, other: (sentinel, other) not in self.cut,
            down_after_s=DOWN_AFTER_S,
            quorum=quorum,
        )
        self.timers.run(1.0)

    def named(self, number: int) -> Server:
        """Whom the Sentinel names."""
        session = self.sentinels.each[number].connect()
        (reply,) = ask(self.timers, session, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"))
        return next(server for server in self.servers if reply == address(server))

    def write(self, server: Server, key: str) -> None:
        assert ask(self.timers, server.connect(), ("SET", key, 1)) == [b"OK"]

    def primaries(self) -> list[Server]:
        return [server for server in self.servers if server.is_running and server.replication.primary is None]


def address(server: Server) -> Reply:
    host, port = server.address
    return [host.encode(), b"%d" % port]


@pytest.fixture
def group() -> Group:
    return Group()


def test_they_name_the_primary(group: Group) -> None:
    assert [group.named(number) for number in range(3)] == 3 * [group.servers[0]]
    session = group.sentinels.each[0].connect()
    assert ask(group.timers, session, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "other")) == [None]


def test_a_primary_that_is_back_in_time_stays(group: Group) -> None:
    group.servers[0].crash()
    group.timers.run(DOWN_AFTER_S * 0.8)
    group.servers[0].start()
    group.timers.run(60.0)
    assert group.primaries() == [group.servers[0]]


def test_a_dead_primary_is_replaced_and_all_hear_of_it(group: Group) -> None:
    group.write(group.servers[0], "a")
    group.timers.run(1.0)
    clients = [server.connect() for server in group.servers[1:]]
    group.servers[0].crash()
    group.timers.run(REPLACED_WITHIN_S)
    (primary,) = group.primaries()
    assert [group.named(number) for number in range(3)] == 3 * [primary]
    assert [client.is_open for client in clients] == [False, False]
    group.write(primary, "b")
    group.timers.run(1.0)
    assert [set(server.keys.values) for server in group.servers[1:]] == 2 * [{b"a", b"b"}]


def test_the_replica_that_has_most_is_promoted(group: Group) -> None:
    group.servers[1].replication_is_cut = True
    group.write(group.servers[0], "a")
    group.timers.run(1.0)
    group.servers[0].crash()
    group.timers.run(REPLACED_WITHIN_S)
    assert group.primaries() == [group.servers[2]]


def test_a_primary_whose_disk_hangs_is_replaced(group: Group) -> None:
    group.servers[0].fsync_stalls = True
    Asked(group.servers[0].connect(), ("SET", "a", 1))
    group.timers.run(REPLACED_WITHIN_S)
    assert group.named(0) is not group.servers[0]


def test_one_that_sees_it_down_alone_replaces_nobody(group: Group) -> None:
    group.cut[group.sentinels.each[0], group.servers[0]] = None
    group.timers.run(60.0)
    assert group.primaries() == [group.servers[0]]


@pytest.mark.parametrize("quorum", [1, 2])
def test_a_minority_replaces_nobody(quorum: int) -> None:
    group = Group(quorum)
    for sentinel in group.sentinels.each[1:]:
        sentinel.crash()
    group.servers[0].crash()
    group.timers.run(60.0)
    assert group.primaries() == []
    group.sentinels.each[1].start()
    group.timers.run(REPLACED_WITHIN_S)
    assert len(group.primaries()) == 1


def test_one_that_is_cut_off_names_the_old_one_until_it_hears(group: Group) -> None:
    alone = group.sentinels.each[0]
    others: list[Server | Sentinel] = [*group.servers[1:], *group.sentinels.each[1:]]
    group.cut |= {(alone, other): None for other in others}
    for sentinel in group.sentinels.each[1:]:
        group.cut[sentinel, group.servers[0]] = None
    group.timers.run(REPLACED_WITHIN_S)
    assert group.named(0) is group.servers[0]
    assert group.named(1) is group.named(2) is not group.servers[0]
    group.cut.clear()
    group.timers.run(2 * HELLO_S)
    assert group.named(0) is group.named(1)


def test_a_primary_of_old_takes_writes_for_a_while_and_loses_them(group: Group) -> None:
    old = group.servers[0]
    group.write(old, "a")
    group.timers.run(1.0)
    old.crash()
    group.timers.run(REPLACED_WITHIN_S)
    new = group.named(0)
    old.start()
    group.timers.run(RECONFIGURE_AFTER_S / 2)
    client = old.connect()
    group.write(old, "lost")
    assert group.primaries() == [old, new]
    group.timers.run(RECONFIGURE_AFTER_S)
    assert group.primaries() == [new]
    assert not client.is_open
    assert set(old.keys.values) == {b"a"}


def test_a_sentinel_that_crashed_answers_nobody(group: Group) -> None:
    lost: list[bool] = []
    session = group.sentinels.each[0].connect()
    session.on_lost = lambda: lost.append(True)
    asked = Asked(session, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"))
    group.sentinels.each[0].crash()
    group.timers.run(1.0)
    assert asked.replies is None
    assert lost == [True]


def test_a_group_that_is_stopped_replaces_nobody(group: Group) -> None:
    group.sentinels.stop()
    group.servers[0].crash()
    group.timers.run(60.0)
    assert group.primaries() == []
