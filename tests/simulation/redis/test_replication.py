"""Replicas of a simulated server: late, cut off, promoted, demoted; and who waits for them."""

from __future__ import annotations

import pytest
from redis.exceptions import ReadOnlyError, ResponseError

from flockmq.redis.connection import Argument
from simulation.redis.fakes import NOW_S, Asked, FakeTimers, ask, new_server
from simulation.redis.replication import MISSED_AFTER_S
from simulation.redis.server import Server

LAG_S = 0.1
ROUND_TRIP_S = 2 * LAG_S + 2 * NOW_S


@pytest.fixture
def timers() -> FakeTimers:
    return FakeTimers()


@pytest.fixture
def primary(timers: FakeTimers) -> Server:
    return new_server(timers)


@pytest.fixture
def replicas(timers: FakeTimers, primary: Server) -> list[Server]:
    """In step with it."""
    made = [new_server(timers, number) for number in (1, 2)]
    for replica in made:
        replica.replicate_from(primary, lambda: LAG_S)
    timers.run(1.0)
    return made


def value(server: Server, key: bytes = b"a") -> object:
    return server.keys.values.get(key)


def wait(wanted: int, timeout_s: float) -> tuple[Argument, ...]:
    return "WAIT", wanted, int(timeout_s * 1000)


# --- late -------------------------------------------------------------------------------------------------------------


def test_a_replica_has_it_late(timers: FakeTimers, primary: Server, replicas: list[Server]) -> None:
    ask(timers, primary.connect(), ("SET", "a", 1))
    timers.run(LAG_S - 2 * NOW_S)
    assert [value(each) for each in replicas] == [None, None]
    timers.run(3 * NOW_S)
    assert [value(each) for each in replicas] == [b"1", b"1"]


def test_a_replica_has_nothing_that_is_not_on_the_primarys_disk(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    primary.fsync_stalls = True
    Asked(primary.connect(), ("SET", "a", 1))
    timers.run(60.0)
    assert value(replicas[0]) is None


@pytest.mark.parametrize(
    ("lags_s", "found"), [((0.1, 0.5), [{b"a"}, {b"a", b"b"}]), ((0.5, 0.1), [set(), {b"a", b"b"}])]
)
def test_what_overtakes_waits_for_what_was_sent_before(
    timers: FakeTimers, primary: Server, lags_s: tuple[float, float], found: list[set[bytes]]
) -> None:
    replica = new_server(timers, 1)
    replica.replicate_from(primary, lambda: 0.0)
    timers.run(1.0)
    lags = iter((*lags_s, 0.0, 0.0))
    replica.replicate_from(primary, lambda: next(lags))
    ask(timers, primary.connect(), ("SET", "a", 1))
    ask(timers, primary.connect(), ("SET", "b", 1))
    seen = []
    for _ in range(2):
        timers.run(0.3)
        seen.append(set(replica.keys.values))
    assert seen == found


def test_a_reader_that_waits_at_a_replica_is_woken(timers: FakeTimers, primary: Server, replicas: list[Server]) -> None:
    read = Asked(replicas[0].connect(), ("XREAD", "BLOCK", 0, "STREAMS", "x", "0-0"))
    ask(timers, primary.connect(), ("XADD", "x", "1-1", "b", "1"))
    timers.run(ROUND_TRIP_S)
    assert read.replies == [[[b"x", [[b"1-1", [b"b", b"1"]]]]]]


def test_a_replica_only_hides_what_is_expired(timers: FakeTimers, primary: Server, replicas: list[Server]) -> None:
    ask(timers, primary.connect(), ("SET", "a", 1, "PX", 1000))
    timers.run(2.0)
    assert ask(timers, replicas[0].connect(), ("GET", "a")) == [None]
    assert value(replicas[0]) == b"1"
    ask(timers, primary.connect(), ("GET", "a"))
    timers.run(ROUND_TRIP_S)
    assert value(replicas[0]) is None


def test_a_replica_takes_no_writes(timers: FakeTimers, replicas: list[Server]) -> None:
    refused, read = ask(timers, replicas[0].connect(), ("SET", "a", 1), ("GET", "a"))
    assert isinstance(refused, ReadOnlyError)
    assert read is None


# --- WAIT -------------------------------------------------------------------------------------------------------------


def test_wait_counts_the_replicas_that_have_it(timers: FakeTimers, primary: Server, replicas: list[Server]) -> None:
    session = primary.connect()
    write = Asked(session, ("SET", "a", 1), wait(2, 1.0))
    timers.run(2 * LAG_S - NOW_S)
    assert write.replies is None
    assert ask(timers, primary.connect(), ("PING",)) == [b"PONG"]
    timers.run(2 * NOW_S)
    assert write.replies == [b"OK", 2]
    assert ask(timers, session, wait(1, 1.0)) == [2]


@pytest.mark.usefixtures("replicas")
def test_who_wrote_nothing_waits_for_nobody(timers: FakeTimers, primary: Server) -> None:
    Asked(primary.connect(), ("SET", "a", 1))
    assert ask(timers, primary.connect(), wait(2, 1.0)) == [2]


def test_wait_answers_with_those_that_have_it_when_the_time_is_over(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    replicas[0].replication_is_cut = True
    write = Asked(primary.connect(), ("SET", "a", 1), wait(2, 1.0))
    timers.run(0.99)
    assert write.replies is None
    timers.run(0.02)
    assert write.replies == [b"OK", 1]


def test_a_replica_acknowledges_what_is_on_its_disk(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    replicas[0].fsync_stalls = True
    write = Asked(primary.connect(), ("SET", "a", 1), wait(2, 1.0))
    timers.run(2.0)
    assert write.replies == [b"OK", 1]
    assert value(replicas[0]) == b"1"


def test_too_few_replicas_that_are_heard_of_refuse_writes(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    primary.min_replicas_to_write = 2
    session = primary.connect()
    assert ask(timers, session, ("SET", "a", 1)) == [b"OK"]
    replicas[0].replication_is_cut = True
    assert ask(timers, session, ("SET", "a", 1)) == [b"OK"]
    timers.run(MISSED_AFTER_S)
    (refused,) = ask(timers, session, ("SET", "a", 1))
    assert str(refused) == "NOREPLICAS Not enough good replicas to write."
    replicas[0].replication_is_cut = False
    timers.run(2 * ROUND_TRIP_S)
    assert ask(timers, session, ("SET", "a", 1)) == [b"OK"]


# --- cut, crashed -----------------------------------------------------------------------------------------------------


def test_a_link_that_was_cut_goes_on_from_where_it_was(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    session = primary.connect()
    Asked(session, ("SET", "a", 1))
    timers.run(LAG_S / 2)
    replicas[0].replication_is_cut = True
    ask(timers, session, ("SET", "b", 1))
    timers.run(60.0)
    assert replicas[0].keys.values == {}
    kept = replicas[0].keys.values
    replicas[0].replication_is_cut = False
    timers.run(2 * ROUND_TRIP_S)
    assert kept == {b"a": b"1", b"b": b"1"}


def test_a_replica_that_crashed_catches_up(timers: FakeTimers, primary: Server, replicas: list[Server]) -> None:
    session = primary.connect()
    ask(timers, session, ("SET", "a", 1))
    timers.run(ROUND_TRIP_S)
    replicas[0].crash()
    ask(timers, session, ("SET", "b", 1))
    replicas[0].start()
    assert (value(replicas[0]), value(replicas[0], b"b")) == (b"1", None)
    timers.run(2 * ROUND_TRIP_S)
    assert value(replicas[0], b"b") == b"1"
    assert ask(timers, session, wait(2, 1.0)) == [2]


def test_replicas_of_a_primary_that_comes_back_empty_are_emptied(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    ask(timers, primary.connect(), ("SET", "a", 1))
    timers.run(ROUND_TRIP_S)
    primary.crash()
    primary.empty()
    primary.start()
    timers.run(2 * ROUND_TRIP_S)
    assert [each.keys.values for each in replicas] == [{}, {}]


# --- another primary --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("with_rest", "found"), [(False, b"1"), (True, b"2")])
def test_a_promoted_replica_has_what_it_applied_or_all(
    timers: FakeTimers, primary: Server, replicas: list[Server], *, with_rest: bool, found: bytes
) -> None:
    ask(timers, primary.connect(), ("SET", "a", 1))
    timers.run(ROUND_TRIP_S)
    ask(timers, primary.connect(), ("SET", "a", 2))
    primary.crash()
    replicas[0].promote(with_rest=with_rest)
    session = replicas[0].connect()
    assert ask(timers, session, ("GET", "a"), ("SET", "b", 1)) == [found, b"OK"]
    replicas[0].crash()
    replicas[0].start()
    assert ask(timers, replicas[0].connect(), ("GET", "a"), ("GET", "b")) == [found, b"1"]


def test_the_rest_of_a_crashed_primary_is_what_its_disk_kept(timers: FakeTimers) -> None:
    found = set()
    for seed in range(20):
        primary, replica = new_server(timers, seed=seed), new_server(timers, 1)
        replica.replicate_from(primary, lambda: LAG_S)
        primary.fsync_stalls = True
        Asked(primary.connect(), ("SET", "a", 1), ("SET", "a", 2))
        timers.run(1.0)
        primary.crash(keeps_unsynced=True)
        replica.promote(with_rest=True)
        found.add(value(replica))
    assert found == {None, b"1", b"2"}


def test_a_promoted_replica_deletes_what_is_expired(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    ask(timers, primary.connect(), ("SET", "a", 1, "PX", 1000))
    timers.run(2.0)
    replicas[0].promote()
    assert ask(timers, replicas[0].connect(), ("GET", "a")) == [None]
    assert value(replicas[0]) is None


def test_a_demoted_primary_loses_what_the_new_one_lacks(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    ask(timers, primary.connect(), ("SET", "a", 1))
    timers.run(ROUND_TRIP_S)
    replicas[0].promote()
    ask(timers, primary.connect(), ("SET", "a", "lost"), ("SET", "c", "lost"))
    ask(timers, replicas[0].connect(), ("SET", "b", 1))
    primary.demote(to=replicas[0])
    replicas[1].demote(to=replicas[0])
    timers.run(2 * ROUND_TRIP_S)
    for server in (primary, *replicas):
        assert server.keys.values == {b"a": b"1", b"b": b"1"}
    assert ask(timers, replicas[0].connect(), wait(2, 1.0)) == [2]


def test_a_demoted_primary_sends_away_who_waits_and_refuses_writes(
    timers: FakeTimers, primary: Server, replicas: list[Server]
) -> None:
    reader, writer, other = primary.connect(), primary.connect(), primary.connect()
    lost: list[str] = []
    reader.on_lost = lambda: lost.append("reader")
    writer.on_lost = lambda: lost.append("writer")
    read = Asked(reader, ("XREAD", "BLOCK", 0, "STREAMS", "x", "0-0"))
    write = Asked(writer, ("SET", "a", 1), wait(3, 0.0))
    timers.run(1.0)
    replicas[0].promote()
    primary.demote(to=replicas[0])
    (refused,) = ask(timers, other, ("SET", "a", 1))
    assert isinstance(refused, ReadOnlyError)
    for asked in (read, write):
        assert asked.replies is not None
        assert isinstance(asked.replies[-1], ResponseError)
        assert str(asked.replies[-1]).startswith("UNBLOCKED ")
    assert lost == ["reader", "writer"]
    assert other.is_open


def test_it_says_which_role_it_has(timers: FakeTimers, primary: Server, replicas: list[Server]) -> None:
    role, info = ask(timers, primary.connect(), ("ROLE",), ("INFO", "replication"))
    assert role == [b"master", 0, [[b"10.0.0.1", b"6379", b"0"], [b"10.0.0.2", b"6379", b"0"]]]
    assert isinstance(info, bytes)
    assert {b"role:master", b"connected_slaves:2"} <= set(info.splitlines())
    role, info = ask(timers, replicas[0].connect(), ("ROLE",), ("INFO", "replication"))
    assert role == [b"slave", b"10.0.0.0", 6379, b"connected", 0]
    assert isinstance(info, bytes)
    assert {b"role:slave", b"master_link_status:up"} <= set(info.splitlines())
