"""How nodes tell one another what users have, and who hears of users that are over a quota."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec
import pytest

from flockmq import bounds
from flockmq.bounds import (
    QUOTA_NAMES_TOLD_MAX_BYTES,
    QUOTA_RETAINED_SHOWN_BYTES,
    QUOTA_USERS_TOLD_MAX,
    RETAINED_MESSAGE_BYTES,
)
from flockmq.config.conversion import read
from flockmq.config.schema import QuotasSettings as Settings
from flockmq.default_quotas import LeastMemory, default_limits
from flockmq.errors import ConfigError
from flockmq.node.user_quotas import HELD, PREFIX, UserQuotas, _used_up, name_of
from flockmq.publishing.retained_feed import RetainedFeed
from flockmq.quotas import INFINITE, NOTHING, UNLIMITED, FilterRoom, Held, Quotas, Usage
from flockmq.redis.memory import RedisMemory
from flockmq.rlog.schema import MESSAGES, QUOTAS, OwnQuotas, RetainedMessage
from unit.broker.auth.harness import FakeLog

MIB = 1024 * 1024
STANDS = int(bounds.QUOTA_SHRINKS_AFTER_S / bounds.QUOTA_TOLD_EVERY_S) + 3
"""Looks until a `maxmemory` counts, for all nodes."""


class Network:
    """Nodes that hear at once, or a moment later, what is told; all are linked, but replicants to one another."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.delay_s = 0.0
        self.nodes: dict[str, NodeOf] = {}

    def now(self) -> float:
        return self.now_s + asyncio.get_running_loop().time()


class Link:
    def __init__(self, sender: NodeOf, to: NodeOf, delay_s: float) -> None:
        self._sender = sender
        self._delay_s = delay_s
        self._to = to
        self.peer = SimpleNamespace(incarnation=to.name, role=to.role)

    def note(self, method: str, body: bytes) -> None:
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, self._to.handlers[method], self._sender.name, body)
        else:
            self._to.handlers[method](self._sender.name, body)


class NodeOf:
    """A cluster, as `UserQuotas` sees it, and the log's alarms."""

    def __init__(
        self, network: Network, name: str, role: str, settings: Settings, redis_bytes: int = 0, memory_bytes: int = 0
    ) -> None:
        self.name = name
        self.role = role
        self.handlers: dict[str, Any] = {}
        self.is_core = role == "core"
        self.is_leader = name == "core-0"
        self.identifies = True
        self.alarms: dict[str, str] = {}
        self.version = SimpleNamespace(at_least=lambda version: version <= 2, gate=lambda version: lambda: True)
        self.on_link_lost: list[Any] = []
        self._network = network
        network.nodes[name] = self
        self.log = FakeLog()
        rlog: Any = SimpleNamespace(
            tables=SimpleNamespace(alarms=self.alarms, quotas=self.log.tables.quotas),
            raise_alarm=self.alarms.__setitem__,
            clear_alarm=self.alarms.pop,
            on_change=self.log.on_change,
        )
        self.room = SimpleNamespace(memory=RedisMemory(1, redis_bytes))
        store: Any = SimpleNamespace(rooms=lambda: {"redis:6379": self.room}) if self.is_core else None
        cluster: Any = self
        self.part = UserQuotas(settings, cluster, rlog, store, lambda: self.identifies, network.now, memory_bytes)

    @property
    def mesh(self) -> Any:
        links = [Link(self, node, self._network.delay_s) for node in self._network.nodes.values() if node is not self]
        reached = [link for link in links if self.is_core or link.peer.role == "core"]
        return SimpleNamespace(one_of_each=lambda: reached)

    @property
    def nodes_table(self) -> Collection[str]:
        return self._network.nodes

    def is_linked(self, incarnation: str) -> bool:
        return incarnation in self._network.nodes

    def on_note(self, method: str, handler: Any) -> None:
        self.handlers[method] = handler

    def begin(self, user: bytes, sessions: int) -> list[Any]:
        usage = self.part.usage(user)
        assert usage is not None
        for _ in range(sessions):
            usage.began()
        return [usage]

    def total(self, user: bytes) -> Held:
        return self.part.quotas.total(user)


def cluster(settings: Settings, redis_bytes: int = 0) -> tuple[Network, list[NodeOf]]:
    network = Network()
    names = [("core-0", "core"), ("core-1", "core"), ("replicant-0", "replicant"), ("replicant-1", "replicant")]
    return network, [NodeOf(network, name, role, settings, redis_bytes) for name, role in names]


def look(network: Network, nodes: list[NodeOf], times: int = 3) -> None:
    for _ in range(times):
        network.now_s += bounds.QUOTA_TOLD_EVERY_S
        for node in nodes:
            node.part.look()


async def test_every_node_knows_what_a_user_has_in_the_whole_cluster() -> None:
    network, nodes = cluster(Settings(max_sessions=100))
    kept = [node.begin(b"eve", 10 * (at + 1)) for at, node in enumerate(nodes)]
    look(network, nodes)
    assert [node.total(b"eve").sessions for node in nodes] == [100] * 4
    assert not any(usage.may_begin() for (usage,) in kept)
    kept[1][0].ended()
    look(network, nodes)
    assert [node.total(b"eve").sessions for node in nodes] == [99] * 4


async def test_long_names_make_no_report_large_and_keep_no_other_user_out_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, nodes = cluster(Settings(max_sessions=10))
    sizes: list[int] = []
    note = Link.note

    def noted(link: Link, method: str, body: bytes) -> None:
        sizes.append(len(body))
        note(link, method, body)

    monkeypatch.setattr(Link, "note", noted)
    kept = [
        node.begin(b"%d" % number * 30_000, 10) for node in nodes for number in range(10, 10 + QUOTA_USERS_TOLD_MAX)
    ]
    kept += [node.begin(b"eve", 2) for node in nodes]
    look(network, nodes)
    assert max(sizes) < 2 * QUOTA_USERS_TOLD_MAX * QUOTA_NAMES_TOLD_MAX_BYTES
    assert [node.total(b"eve").sessions for node in nodes] == [8] * 4
    assert kept


async def test_what_a_node_had_that_is_gone_counts_no_more() -> None:
    network, nodes = cluster(Settings(max_sessions=100))
    kept = nodes[1].begin(b"eve", 50)
    look(network, nodes)
    assert [node.total(b"eve").sessions for node in nodes] == [50] * 4
    del network.nodes["core-1"]
    nodes.pop(1)
    for lost in nodes[0].on_link_lost:
        lost("core-1")
    await asyncio.sleep(2 * bounds.QUOTA_TOLD_SOON_S)
    assert [node.total(b"eve").sessions for node in nodes] == [0, 50, 50], "replicants hear of it from each core"
    look(network, nodes, 2)
    assert [node.total(b"eve").sessions for node in nodes] == [0] * 3
    assert kept


async def test_an_alarm_names_who_is_over_until_there_is_room() -> None:
    network, nodes = cluster(Settings(max_sessions=10))
    (usage,) = nodes[1].begin(b"eve", 10)
    look(network, nodes)
    assert "'eve' has used up its sessions (10 of 10)" in nodes[0].alarms[PREFIX + "eve"]
    usage.ended()
    look(network, nodes)
    assert nodes[0].alarms, "it doesn't come and go with one session"
    usage.ended()
    look(network, nodes)
    assert nodes[0].alarms == {}
    assert [node.alarms for node in nodes[1:]] == [{}] * 3, "the leader raises it"


@pytest.mark.parametrize(
    ("limit", "shown"),
    [(300, "450 of 300 bytes"), (3 * 1024, "4.5 of 3.0 KiB"), (3 * MIB, "4.5 of 3.0 MiB"), (0, "0 of 0 bytes")],
)
def test_a_size_is_shown_in_a_unit_that_fits(limit: int, shown: str) -> None:
    limits = UNLIMITED._replace(retained_bytes=limit)
    assert _used_up(Held(retained_bytes=limit * 3 // 2), limits) == f"its retained_bytes ({shown})"


async def test_so_many_alarms_stand_at_most() -> None:
    network, nodes = cluster(Settings(max_sessions=1))
    kept = [nodes[0].begin(b"%d" % number, 1) for number in range(3 * bounds.QUOTA_ALARMS_MAX)]
    look(network, nodes)
    assert len(nodes[0].alarms) == bounds.QUOTA_ALARMS_MAX
    assert kept


async def test_what_isnt_set_comes_from_redis_memory_on_all_nodes() -> None:
    network, nodes = cluster(Settings(max_sessions=7, max_subscriptions=INFINITE), 64 * MIB)
    look(network, nodes, STANDS)
    expected = default_limits(LeastMemory(64 * MIB))._replace(sessions=7, subscriptions=INFINITE)
    assert [node.part.quotas.limits for node in nodes] == [expected] * 4


async def test_a_maxmemory_of_before_is_forgotten_by_all_nodes() -> None:
    network, nodes = cluster(Settings(), 64 * MIB)
    look(network, nodes, STANDS)
    for node in nodes:
        node.room.memory = RedisMemory(1, 0)
    look(network, nodes)
    assert [node.part.quotas.limits for node in nodes] == [default_limits(LeastMemory())] * 4


async def test_a_maxmemory_counts_when_it_has_stood_and_a_larger_one_at_once() -> None:
    network, nodes = cluster(Settings())

    def limits(maxmemory: int, seconds: int) -> list[Held]:
        for node in nodes:
            node.room.memory = RedisMemory(1, maxmemory)
        look(network, nodes, seconds)
        return [node.part.quotas.limits for node in nodes]

    assert limits(1, STANDS - 5) == [default_limits(LeastMemory())] * 4, (
        "what nodes see first may be there for a moment"
    )
    assert limits(64 * MIB, STANDS) == [default_limits(LeastMemory(64 * MIB))] * 4
    for _ in range(3):
        assert limits(MIB, STANDS - 5) == [default_limits(LeastMemory(64 * MIB))] * 4
        assert limits(64 * MIB, 2) == [default_limits(LeastMemory(64 * MIB))] * 4
    assert limits(MIB, STANDS) == [default_limits(LeastMemory(MIB))] * 4
    assert limits(2 * MIB, 2) == [default_limits(LeastMemory(2 * MIB))] * 4
    assert limits(0, 2) == [default_limits(LeastMemory())] * 4, "none is as much as there can be"
    assert limits(1, STANDS - 5) == [default_limits(LeastMemory())] * 4
    assert limits(0, 2) == [default_limits(LeastMemory())] * 4


async def test_quotas_follow_the_smallest_core_and_the_smallest_node_at_once_on_all_nodes() -> None:
    network = Network()
    sizes = {"core-0": 4096 * MIB, "core-1": 2048 * MIB, "replicant-0": 512 * MIB, "replicant-1": 1024 * MIB}
    nodes = [NodeOf(network, name, name.partition("-")[0], Settings(), 0, size) for name, size in sizes.items()]
    look(network, nodes)
    expected = default_limits(LeastMemory(0, 2048 * MIB, 512 * MIB))
    assert [node.part.quotas.limits for node in nodes] == [expected] * 4
    for gone in ("core-1", "replicant-0"):
        del network.nodes[gone]
    nodes = [node for node in nodes if node.name in network.nodes]
    look(network, nodes)
    expected = default_limits(LeastMemory(0, 4096 * MIB, 1024 * MIB))
    assert [node.part.quotas.limits for node in nodes] == [expected] * 2, "what has left counts no more"


async def test_a_node_of_an_earlier_release_says_nothing_of_its_memory() -> None:
    network = Network()
    nodes = [NodeOf(network, "core-0", "core", Settings(), 0, 1024 * MIB)]
    network.nodes["core-1"] = nodes[0]
    nodes[0].handlers[HELD]("core-1", msgspec.msgpack.encode([0, [], False]))
    look(network, nodes)
    assert nodes[0].part.quotas.limits == default_limits(LeastMemory(0, 1024 * MIB, 1024 * MIB))


async def test_a_core_that_starts_while_maxmemory_is_smaller_makes_no_quota_smaller() -> None:
    network, nodes = cluster(Settings(), 64 * MIB)
    look(network, nodes, STANDS)
    for node in nodes:
        node.room.memory = RedisMemory(1, MIB)
    nodes.append(NodeOf(network, "core-2", "core", Settings(), MIB))
    look(network, nodes)
    assert [node.part.quotas.limits for node in nodes] == [default_limits(LeastMemory(64 * MIB))] * 5


async def test_where_nobody_is_identified_there_are_no_quotas() -> None:
    network, nodes = cluster(Settings(max_sessions=7), 64 * MIB)
    for node in nodes:
        node.identifies = False
    look(network, nodes)
    assert nodes[0].part.quotas.limits == UNLIMITED
    assert nodes[0].part.usage(b"") is None
    nodes[0].identifies = True
    assert nodes[0].part.usage(None) is None, "client ids aren't bound to users"
    assert nodes[0].part.usage(b"") is not None, "clients without a name are one user"


async def test_a_users_own_quota_holds_on_every_node_as_soon_as_its_tables_have_it() -> None:
    network, nodes = cluster(Settings(max_sessions=100_000))
    kept = [node.begin(b"eve", 2) for node in nodes]
    look(network, nodes)
    assert [node.total(b"eve").sessions for node in nodes] == [2] * 4, "too little to tell of"
    for node in nodes:
        node.log.put([QUOTAS.put("eve", OwnQuotas(max_sessions=9))])
    await asyncio.sleep(3 * bounds.QUOTA_TOLD_SOON_S)
    assert [node.total(b"eve").sessions for node in nodes] == [8] * 4, "known without a look of theirs"
    assert all(usage.may_begin() for (usage,) in kept)
    for node in nodes:
        node.log.put([QUOTAS.put("eve", OwnQuotas(max_sessions=8))])
    assert not any(usage.may_begin() for (usage,) in kept)
    look(network, nodes)
    assert "'eve' has used up its sessions (8 of 8)" in nodes[0].alarms[PREFIX + "eve"]
    (row,) = nodes[3].part.shown().users
    assert (row.over, row.limits) == (["sessions"], {**nodes[3].part.shown().limits, "max_sessions": 8})
    for node in nodes:
        node.log.put([QUOTAS.delete("eve")])
    look(network, nodes)
    assert nodes[0].alarms == {}
    assert all(usage.may_begin() for (usage,) in kept)


async def test_a_share_of_a_users_own_quota_is_granted_before_others_know() -> None:
    network, nodes = cluster(Settings(max_retained_bytes=100))
    look(network, nodes)
    nodes[0].log.put([QUOTAS.put("eve", OwnQuotas(max_retained_bytes=64 * 100))])
    part = nodes[0].part
    async with (
        part.storing(b"eve", 60) as first,
        part.storing(b"eve", 40) as second,
        part.storing(b"jo", 101) as others,
    ):
        assert (first, second, others) == (True, True, False)


def test_people_see_names_that_fit_into_a_line() -> None:
    assert name_of(b"") == "(anonymous)"
    assert name_of(b"\xff" * 1000) == ("\\xff" * 32)


@pytest.mark.parametrize(
    ("said", "bytes_"),
    [("infinity", INFINITE), (5, 5), ("64MB", 64 * MIB), ("7", 7)],
)
def test_a_quota_is_a_number_or_infinity(said: object, bytes_: int) -> None:
    kinds = {field.name: field for field in msgspec.structs.fields(Settings)}
    assert set(kinds) == {f"max_{kind}" for kind in Held._fields}
    hints = get_type_hints(Settings, include_extras=True)
    assert read(said, hints["max_queued_bytes"], "quotas.max_queued_bytes") == bytes_


@pytest.mark.parametrize("said", [0, -1, "some", True, 1.5, "64XB"])
def test_what_is_no_quota_is_refused(said: object) -> None:
    hints = get_type_hints(Settings, include_extras=True)
    with pytest.raises(ConfigError, match='must be a number of at least 1, for example 100000, or "infinity"'):
        read(said, hints["max_sessions"], "quotas.max_sessions")


# What is retained and delayed.


def test_what_stands_in_the_log_counts_for_who_wrote_it_last() -> None:
    quotas = Quotas(UNLIMITED._replace(retained_bytes=1000))
    retained = RetainedFeed(quotas.retained)
    eves = RetainedMessage(b"x" * 100, 1, b"", 5, user=b"eve")
    jos = RetainedMessage(b"x" * 10, 1, b"", 5, user=b"jo")
    retained.put(b"t", eves, None)
    assert quotas.total(b"eve").retained_bytes == RETAINED_MESSAGE_BYTES + 101
    retained.put(b"t", jos, eves)
    assert (quotas.total(b"eve"), quotas.total(b"jo").retained_bytes) == (NOTHING, RETAINED_MESSAGE_BYTES + 11)
    retained.put(b"u", RetainedMessage(b"x", 1, b"", 5), None)
    retained.delete(b"u", RetainedMessage(b"x", 1, b"", 5))
    retained.delete(b"t", jos)
    assert quotas.retained.by_user == {}


def test_a_bootstrap_brings_what_users_have() -> None:
    quotas = Quotas()
    live = RetainedFeed(quotas.retained)
    live.put(b"t", RetainedMessage(b"x", 1, b"", 5, user=b"eve"), None)
    fresh = live.fresh()
    fresh.put(b"u", RetainedMessage(b"x" * QUOTA_RETAINED_SHOWN_BYTES, 1, b"", 5, user=b"jo"), None)
    live.swap(fresh)
    assert list(quotas.retained.by_user) == [b"jo"]
    assert quotas.retained.large == {b"jo"}


async def test_what_is_on_its_way_into_the_log_counts() -> None:
    _, nodes = cluster(Settings(max_retained_bytes=100))
    part = nodes[0].part
    async with part.storing(b"eve", 60) as first, part.storing(b"eve", 60) as second, part.storing(b"jo", 60) as others:
        assert (first, second, others) == (True, False, True)
    async with part.storing(b"eve", 60) as may:
        assert may, "it never came there"
    async with part.storing(None, 1000) as may:
        assert may, "nobody knows whose it is"
    assert part.quotas.refused["retained_bytes"] == 1


async def test_what_others_dont_know_of_yet_is_a_share_and_the_rest_waits_in_its_order() -> None:
    network, nodes = cluster(Settings(max_retained_bytes=64 * 100))
    look(network, nodes)
    part, log, order = nodes[0].part, asyncio.Event(), list[int]()

    async def store(number: int, more_bytes: int) -> None:
        async with part.storing(b"eve", more_bytes) as may:
            assert may
            order.append(number)
            await log.wait()

    sizes = [60, 40, 300, -60, 1]
    writes = [asyncio.create_task(store(number, size)) for number, size in enumerate(sizes)]
    await asyncio.sleep(0.01)
    assert order == [0, 1]
    log.set()
    await asyncio.gather(*writes)
    assert order == [0, 1, 2, 3, 4], "what is larger than a share goes alone"
    async with part.storing(b"eve", 6400) as may:
        assert may, "all of it went there"


async def test_what_waits_for_a_log_that_is_away_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.publishing.storage_quota.LOG_WRITE_DEADLINE_S", 0.01)
    network, nodes = cluster(Settings(max_retained_bytes=6400))
    look(network, nodes)
    part = nodes[0].part
    async with part.storing(b"eve", 100), part.storing(b"eve", 1) as first, part.storing(b"eve", 1) as second:
        assert (first, second) == (False, False)
    async with part.storing(b"eve", 6400) as may:
        assert may


@pytest.mark.parametrize("clients", [1, 24])
async def test_a_burst_at_all_nodes_passes_a_quota_by_a_sixteenth_for_each(clients: int) -> None:
    limit = 1600
    network, nodes = cluster(Settings(max_subscriptions=limit))
    network.delay_s = bounds.QUOTA_TOLD_SOON_S / 2
    look(network, nodes)
    granted, refused = list[bytes](), list[bytes]()

    def placed(usage: Usage, filters: list[bytes]) -> None:
        for filter in filters:
            if usage.may_subscribe(filter):
                usage.subscribed(filter)
                granted.append(filter)
            else:
                refused.append(filter)

    usages = [node.part.usage(b"eve") for node in nodes]
    for usage in usages:
        assert usage is not None
        for number in range(clients):
            filters = [b"%d/%d" % (number, place) for place in range(2 * limit // clients)]
            FilterRoom(usage, filters, partial(placed, usage, filters)).make()
    await until(lambda: len(granted) + len(refused) == 4 * (2 * limit // clients) * clients)
    assert limit <= len(granted) <= limit * (1 + len(nodes) / 16)


async def test_nobody_is_refused_by_a_burst_while_there_is_room() -> None:
    network, nodes = cluster(Settings(max_subscriptions=640))
    look(network, nodes)
    usage = nodes[2].part.usage(b"eve")
    assert usage is not None
    placed = list[bool]()
    for number in range(60):
        filters = [b"%d/%d" % (number, place) for place in range(10)]
        FilterRoom(usage, filters, lambda filters=filters: placed.extend(_placed(usage, filters))).make()
    assert len(placed) == 10, "a share, before others are told"
    await until(lambda: len(placed) == 600)
    assert all(placed)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - what is looked at tells nobody
            await asyncio.sleep(0.01)


def _placed(usage: Usage, filters: list[bytes]) -> Iterator[bool]:
    for filter in filters:
        yield usage.may_subscribe(filter)
        usage.subscribed(filter)


@pytest.mark.parametrize("user", [None, b"", b"eve"])
@pytest.mark.parametrize("author", [b"", b"a" * 25])
def test_the_row_of_a_retained_message_says_whose_it_is(user: bytes | None, author: bytes) -> None:
    row = RetainedMessage(b"x", 1, b"", 5, 0, author, user)
    raw = MESSAGES.encode(row)
    assert MESSAGES.decode(raw) == row
    fields = len(msgspec.msgpack.decode(raw))
    assert fields == (7 if user is not None else 6 if author else 5), "an older release reads what it knows"


async def test_other_quotas_hold_at_once_and_what_exists_continues() -> None:
    _, (node, *_) = cluster(Settings(max_sessions=10))
    held = node.begin(b"eve", 5)
    node.part.configure(Settings(max_sessions=5))
    assert not held[0].may_begin()
    assert held[0].sessions == 5
    node.part.configure(Settings(max_sessions=6))
    assert held[0].may_begin()
