"""A node that is short of memory: what it refuses, what it tells other nodes, and whom it disconnects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flockmq.durable.store_servers import MemoryRoom
from flockmq.memory_limit import ANY_MEMORY, NodeMemory
from flockmq.node import memory_shortage
from flockmq.node.memory_shortage import MemoryShortage
from flockmq.redis.memory import RedisMemory

MIB = 1024 * 1024
LIMIT = 1000 * MIB


class Log:
    """The alarms that all nodes see."""

    def __init__(self) -> None:
        self.alarms: dict[str, str] = {}
        self.tables = SimpleNamespace(alarms=self.alarms)
        self.core = None
        self.raised: list[str] = []

    def raise_alarm(self, name: str, text: str) -> None:
        self.raised.append(name)
        self.alarms[name] = text

    def clear_alarm(self, name: str) -> None:
        del self.alarms[name]

    def end_alarm(self, name: str) -> Any:
        del self.alarms[name]
        return SimpleNamespace(add_done_callback=lambda _: None)


class Part:
    """Of one node. `has_clients` that don't read."""

    def __init__(self, log: Log, name: str, *, is_core: bool = True, memory: NodeMemory | None = None) -> None:
        self.used_mib = 100
        self.has_clients = False
        self.relieved: list[int] = []
        self.is_refusing = False
        self.rooms: dict[str, MemoryRoom] = {}
        store: Any = SimpleNamespace(core_is_short=False, rooms=lambda: self.rooms)
        self.store: Any = store if is_core else None
        self.members = {"a": SimpleNamespace(name="a"), "b": SimpleNamespace(name="b")}
        cluster: Any = SimpleNamespace(
            settings=SimpleNamespace(name=name),
            is_leader=name == "a",
            nodes_table=self.members,
            version=SimpleNamespace(at_least=lambda _: True),
            events=SimpleNamespace(limit=lambda _: None),
        )
        sender: Any = SimpleNamespace(redis_is_short=lambda is_short: setattr(self, "is_refusing", is_short))
        rlog: Any = log
        own = NodeMemory(LIMIT, lambda: self.used_mib * MIB)
        self.shortage = MemoryShortage(cluster, sender, rlog, self.store, memory or own, self.relieve)

    def relieve(self, wanted_bytes: int) -> bool:
        self.relieved.append(wanted_bytes)
        return self.has_clients

    def use(self, mib: int) -> None:
        self.used_mib = mib
        self.shortage.look_at_node()


def refusals(part: Part) -> tuple[bool, bool]:
    """Whether it refuses what would be stored, and new subscriptions."""
    assert part.is_refusing == part.shortage.is_on
    return part.shortage.refuses(1), not part.shortage.takes_filters


def test_a_node_that_is_short_refuses_at_once_and_all_others_follow_its_alarm() -> None:
    log = Log()
    node, other = Part(log, "a"), Part(log, "b", is_core=False)
    node.use(750)
    assert refusals(node) == (True, False)
    assert node.store.core_is_short
    other.shortage.look()
    assert refusals(other) == (False, False), "nobody has told it"
    node.shortage.look()
    assert "a uses 750 of 1000 MiB: nothing more waits" in log.alarms["node-memory/a"]
    other.shortage.look()
    assert refusals(other) == (True, False)
    node.use(699)
    node.shortage.look()
    node.shortage.look()
    other.shortage.look()
    assert log.alarms == {}
    assert (refusals(node), refusals(other)) == ((False, False), (False, False))
    assert not node.store.core_is_short


def test_no_node_takes_new_subscriptions_while_one_is_full() -> None:
    log = Log()
    node, other = Part(log, "b", is_core=False), Part(log, "a")
    node.use(850)
    assert refusals(node) == (True, True)
    node.shortage.look()
    assert sorted(log.alarms) == ["node-memory-full/b", "node-memory/b"]
    other.shortage.look()
    assert refusals(other) == (True, True)
    assert other.store.core_is_short, "new sessions have filters too"
    node.use(799)
    node.shortage.look()
    other.shortage.look()
    assert sorted(log.alarms) == ["node-memory/b"]
    assert refusals(other) == (True, False)


def test_a_full_node_disconnects_who_does_not_read_but_not_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[bool] = []
    monkeypatch.setattr(memory_shortage, "give_back", lambda: given_back.append(True))
    node, forgotten = Part(Log(), "a"), []
    node.shortage.on_full = lambda: forgotten.append(True)
    node.use(849)
    assert (node.relieved, forgotten) == ([], [])
    node.use(850)
    assert forgotten == [True], "what can be found out again"
    assert (node.relieved, given_back) == ([50 * MIB], []), "there was nobody"
    node.has_clients = True
    node.use(850)
    assert (node.relieved, given_back) == ([50 * MIB] * 2, [True]), "until so much is free"
    node.use(820)
    assert node.relieved[2:] == [20 * MIB], "at each look, for more comes meanwhile"
    node.use(799)
    assert len(node.relieved) == 3


def test_an_alarm_of_a_node_that_has_left_ends() -> None:
    log = Log()
    leader, other = Part(log, "a"), Part(log, "b")
    other.use(900)
    other.shortage.look()
    leader.shortage.look()
    assert log.alarms
    del leader.members["b"]
    leader.shortage.look()
    assert log.alarms == {}


def test_an_alarm_is_raised_once() -> None:
    log = Log()
    node = Part(log, "a")
    node.use(800)
    for _ in range(3):
        node.shortage.look()
    assert log.raised == ["node-memory/a"]


def test_a_redis_that_is_short_is_no_reason_to_refuse_subscriptions() -> None:
    log = Log()
    core, other = Part(log, "a"), Part(log, "b", is_core=False)
    core.rooms["r:6379"] = MemoryRoom()
    core.rooms["r:6379"].looked(RedisMemory(80, 100))
    core.shortage.look()
    other.shortage.look()
    assert list(log.alarms) == ["redis-memory/r:6379"]
    assert refusals(other) == (True, False)
    assert other.shortage.is_redis_short
    core.rooms["r:6379"].looked(RedisMemory(60, 100))
    core.shortage.look()
    other.shortage.look()
    assert (log.alarms, refusals(other)) == ({}, (False, False))


def test_a_burst_does_not_fill_redis_before_it_is_checked_again() -> None:
    core = Part(Log(), "a")
    room = core.rooms["r:6379"] = MemoryRoom()
    room.looked(RedisMemory(10 * MIB, 100 * MIB))
    core.shortage.look()
    taken = 0
    while not core.shortage.refuses(MIB):
        taken += 1
    assert 30 < taken < 45, "it may take twice as much there"
    assert core.shortage.refused == 1
    room.looked(RedisMemory(50 * MIB, 100 * MIB))
    assert not core.shortage.refuses(MIB)


def test_without_a_limit_a_node_is_never_short() -> None:
    node = Part(Log(), "a", memory=ANY_MEMORY)
    node.use(10**6)
    assert (refusals(node), node.relieved) == ((False, False), [])
