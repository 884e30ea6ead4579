"""One simulated server: its disk, its crashes, and who waits for what."""

from __future__ import annotations

import copy
import functools

import pytest
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ResponseError

from flockmq.rlog import committer
from simulation.redis.fakes import Asked, FakeTimers, ask, new_server
from simulation.redis.keyspace import NotSimulatedError
from simulation.redis.random_commands import LOAD, Generator
from simulation.redis.server import Server
from simulation.redis.session import Session
from simulation.redis.stream import Stream

FSYNC_S = 0.01
WRITES_THREE = "redis.call('SET', KEYS[1], 1) redis.call('SET', KEYS[2], 1) redis.call('SET', KEYS[3], 1)"


@pytest.fixture
def timers() -> FakeTimers:
    return FakeTimers()


@pytest.fixture
def server(timers: FakeTimers) -> Server:
    return new_server(timers)


@pytest.fixture
def session(server: Server) -> Session:
    return server.connect()


def restart(server: Server) -> Session:
    server.crash()
    server.start()
    return server.connect()


def held(server: Server) -> object:
    """All that it has in memory."""
    values = {
        key: (value.ids, value.rows, value.last) if isinstance(value, Stream) else value
        for key, value in server.keys.values.items()
    }
    return values, server.keys.expires_at_ms


# --- disk -------------------------------------------------------------------------------------------------------------


def test_nobody_is_answered_before_what_was_written_is_on_disk(timers: FakeTimers, server: Server) -> None:
    server.fsync_s = FSYNC_S
    write = Asked(server.connect(), ("SET", "a", 1))
    read = Asked(server.connect(), ("GET", "a"))
    timers.run(FSYNC_S * 0.9)
    assert [write.replies, read.replies] == [None, None]
    timers.run(FSYNC_S)
    assert (write.replies, read.replies) == ([b"OK"], [b"1"])


def test_what_comes_during_an_fsync_is_executed_after_it(timers: FakeTimers, server: Server) -> None:
    server.fsync_s = FSYNC_S
    Asked(server.connect(), ("SET", "a", 1))
    timers.run()
    later = Asked(server.connect(), ("SET", "b", 1))
    timers.run()
    assert b"b" not in server.keys.values
    timers.run(2 * FSYNC_S)
    assert later.replies == [b"OK"]


def test_who_only_reads_waits_for_no_disk(timers: FakeTimers, server: Server, session: Session) -> None:
    server.fsync_s = FSYNC_S
    assert ask(timers, session, ("GET", "a"), ("PING",)) == [None, b"PONG"]


def test_a_stalled_disk_holds_up_everybody(timers: FakeTimers, server: Server, session: Session) -> None:
    server.fsync_s, server.fsync_stalls = FSYNC_S, True
    write = Asked(session, ("SET", "a", 1))
    timers.run(1.0)
    ping = Asked(server.connect(), ("PING",))
    timers.run(60.0)
    assert [write.replies, ping.replies] == [None, None]
    assert not server.responds
    server.fsync_stalls = False
    timers.run(1.0)
    assert (write.replies, ping.replies) == ([b"OK"], [b"PONG"])
    assert server.responds


def test_a_failing_fsync_ends_the_process_and_the_write_may_survive(timers: FakeTimers) -> None:
    survived = set()
    for seed in range(20):
        server = new_server(timers, seed=seed)
        server.fsync_fails = True
        lost: list[bool] = []
        session = server.connect()
        session.on_lost = functools.partial(lost.append, True)
        write = Asked(session, ("SET", "a", 1))
        timers.run(1.0)
        assert not server.is_running
        assert write.replies is None
        assert lost == [True]
        server.fsync_fails = False
        server.start()
        survived |= set(ask(timers, server.connect(), ("GET", "a")))
    assert survived == {None, b"1"}


def test_a_crash_keeps_what_was_answered_and_forgets_the_rest(timers: FakeTimers, server: Server) -> None:
    session, run_id = server.connect(), server.run_id
    ask(timers, session, ("SET", "a", 1))
    server.fsync_s = FSYNC_S
    unanswered = Asked(session, ("SET", "a", 2))
    timers.run()
    server.crash()
    timers.run(1.0)
    assert unanswered.replies is None
    server.start()
    assert server.run_id != run_id
    assert ask(timers, server.connect(), ("GET", "a")) == [b"1"]
    assert not session.is_open


def test_of_what_was_not_synced_whole_commands_may_survive_a_crash(timers: FakeTimers) -> None:
    found = set()
    for seed in range(30):
        server = new_server(timers, seed=seed)
        server.fsync_stalls = True
        Asked(server.connect(), ("SET", "first", 1), ("EVAL", WRITES_THREE, 3, "a", "b", "c"))
        timers.run(1.0)
        server.crash(keeps_unsynced=True)
        server.fsync_stalls = False
        server.start()
        found.add(tuple(server.keys.values))
    assert found == {(), (b"first",), (b"first", b"a", b"b", b"c")}


def test_a_restart_has_functions_expiry_and_ids(timers: FakeTimers, server: Server, session: Session) -> None:
    ask(
        timers,
        session,
        ("FUNCTION", "LOAD", "REPLACE", committer.FUNCTIONS),
        ("SET", "a", 1, "PX", 1000),
        ("XADD", "x", "5-*", "b", "1"),
        ("XTRIM", "x", "MAXLEN", 0),
    )
    session = restart(server)
    life = ("FCALL", "flockmq_checkpoint_1", 5, "log", "life", "sequences", "purged", "fence", "1:a", "1-1")
    *replies, refused = ask(timers, session, ("GET", "a"), ("XADD", "x", "5-*", "b", "2"), life)
    assert replies == [b"1", b"5-1"]
    assert str(refused) == "LIFE "
    timers.run(1.0)
    assert ask(timers, session, ("GET", "a")) == [None]


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_and_a_replica_have_all_that_any_command_did(timers: FakeTimers, seed: int) -> None:
    server, replica = new_server(timers), new_server(timers, 1)
    replica.replicate_from(server, lambda: 0.01)
    ask(timers, server.connect(), *LOAD, *Generator(seed).commands(300))
    timers.run(1.0)
    before = copy.deepcopy(held(server))
    assert held(replica) == before
    server.crash()
    server.start()
    assert held(server) == before


def test_the_disk_can_be_emptied_and_put_back(timers: FakeTimers, server: Server, session: Session) -> None:
    ask(timers, session, ("SET", "a", 1))
    saved = server.keep()
    ask(timers, session, ("SET", "a", 2))
    server.crash()
    server.restore(saved)
    server.start()
    assert ask(timers, server.connect(), ("GET", "a")) == [b"1"]
    server.crash()
    server.empty()
    server.start()
    assert ask(timers, server.connect(), ("GET", "a")) == [None]


def test_while_it_reads_its_file_it_says_so(timers: FakeTimers, server: Server, session: Session) -> None:
    ask(timers, session, ("SET", "a", 1))
    server.loading_s = 1.0
    session = restart(server)
    (refused,) = ask(timers, session, ("GET", "a"))
    assert isinstance(refused, BusyLoadingError)
    timers.run(1.0)
    assert ask(timers, session, ("GET", "a")) == [b"1"]


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_commands_are_executed_in_the_order_in_which_they_came(timers: FakeTimers, server: Server) -> None:
    first, second = server.connect(), server.connect()
    asked = [Asked(session, ("INCR", "a"), ("INCR", "a")) for session in (first, second, first)]
    timers.run(1.0)
    assert [each.replies for each in asked] == [[1, 2], [3, 4], [5, 6]]


def test_who_closed_gets_no_answer_but_its_commands_are_executed(timers: FakeTimers, server: Server) -> None:
    session = server.connect()
    asked = Asked(session, ("SET", "a", 1))
    session.close()
    timers.run(1.0)
    assert asked.replies is None
    assert ask(timers, server.connect(), ("GET", "a")) == [b"1"]


def test_who_is_sent_away_is_not_heard(timers: FakeTimers, server: Server) -> None:
    session = server.connect()
    asked = Asked(session, ("SET", "a", 1))
    server.disconnect_clients()
    timers.run(1.0)
    assert asked.replies is None
    assert ask(timers, server.connect(), ("GET", "a")) == [None]


def test_a_blocked_reader_gets_what_comes_once_it_is_on_disk(timers: FakeTimers, server: Server) -> None:
    reader, writer = server.connect(), server.connect()
    read = Asked(reader, ("XREAD", "BLOCK", 0, "STREAMS", "x", "y", "0-0", "0-0"), ("GET", "a"))
    behind = Asked(reader, ("GET", "a"))
    timers.run(60.0)
    server.fsync_s = FSYNC_S
    write = Asked(writer, ("XADD", "x", "1-1", "b", "1"), ("SET", "a", 1))
    timers.run(FSYNC_S / 2)
    assert read.replies is behind.replies is write.replies is None
    timers.run(FSYNC_S)
    assert read.replies == [[[b"x", [[b"1-1", [b"b", b"1"]]]]], b"1"]
    assert behind.replies == [b"1"]
    assert write.replies == [b"1-1", b"OK"]


def test_a_blocked_reader_gives_up_in_time(timers: FakeTimers, server: Server) -> None:
    reader = server.connect()
    read = Asked(reader, ("XREAD", "BLOCK", 500, "STREAMS", "x", "0-0"))
    timers.run(0.49)
    assert read.replies is None
    assert ask(timers, server.connect(), ("PING",)) == [b"PONG"]
    timers.run(0.02)
    assert read.replies == [None]
    assert ask(timers, reader, ("PING",)) == [b"PONG"]


def test_a_blocked_reader_that_closes_is_forgotten(timers: FakeTimers, server: Server) -> None:
    reader = server.connect()
    read = Asked(reader, ("XREAD", "BLOCK", 500, "STREAMS", "x", "0-0"), ("SET", "a", 1))
    timers.run(0.1)
    reader.close()
    ask(timers, server.connect(), ("XADD", "x", "1-1", "b", "1"))
    timers.run(60.0)
    assert read.replies is None
    assert b"a" not in server.keys.values


# --- commands that no comparison with a real one covers ---------------------------------------------------------------


def test_keys_expire_by_the_servers_own_clock(timers: FakeTimers, server: Server, session: Session) -> None:
    ask(timers, session, ("SET", "a", 1, "PX", 60_000), ("SET", "b", 1), ("PEXPIRE", "b", 60_000))
    server.now_s = lambda: timers.now_s + 61
    assert ask(timers, session, ("GET", "a"), ("GET", "b")) == [None, None]
    server.now_s = lambda: timers.now_s - 61
    assert ask(timers, session, ("GET", "a")) == [None]


def test_ids_of_the_time_grow_also_when_the_clock_jumps_back(timers: FakeTimers, server: Server) -> None:
    session = server.connect()
    server.now_s = lambda: 1000.0
    assert ask(timers, session, ("XADD", "x", "*", "b", "1")) == [b"1000000-0"]
    server.now_s = lambda: 500.0
    assert ask(timers, session, ("XADD", "x", "*", "b", "1"), ("TIME",)) == [b"1000000-1", [b"500", b"0"]]


def test_a_scan_in_pages_finds_all_that_stay(timers: FakeTimers, session: Session) -> None:
    fields = [b"field-%d" % number for number in range(1000)]
    ask(timers, session, *(("HSET", "h", field, b"value of " + field) for field in fields))
    found: dict[bytes, bytes] = {}
    cursor, pages = b"0", 0
    while pages == 0 or cursor != b"0":
        ((cursor, page),) = ask(timers, session, ("HSCAN", "h", cursor, "COUNT", 100))
        ask(timers, session, ("HDEL", "h", *fields[pages * 50 : pages * 50 + 10]))
        found |= dict(zip(page[::2], page[1::2], strict=True))
        pages += 1
    assert pages == 10
    stay = [field for number, field in enumerate(fields) if number >= 500 or number % 50 >= 10]
    assert {field: found[field] for field in stay} == {field: b"value of " + field for field in stay}


def test_a_script_that_fails_keeps_what_it_wrote(timers: FakeTimers, server: Server, session: Session) -> None:
    (failed,) = ask(timers, session, ("EVAL", "redis.call('SET', KEYS[1], 1)\nreturn nothing.at_all", 1, "a"))
    assert str(failed).startswith("user_script:2: attempt to index global 'nothing'")
    assert ask(timers, restart(server), ("GET", "a")) == [b"1"]


def test_what_a_script_catches_it_may_answer(timers: FakeTimers, session: Session) -> None:
    caught = "local reply = redis.pcall('HGET', KEYS[1], 'f') return {reply.err, 3.7, false, 'not reached'}"
    (reply,) = ask(timers, session, ("SET", "a", 1), ("EVAL", caught, 1, "a"))[1:]
    assert reply == [b"WRONGTYPE Operation against a key holding the wrong kind of value", 3, None, b"not reached"]


def test_a_script_without_flags_is_refused_at_its_first_write(timers: FakeTimers, server: Server) -> None:
    session = server.connect()
    server.used_part = 1.0
    reads, writes = ("EVAL", "return redis.call('GET', 'a')", 0), ("EVAL", "return redis.call('SET', 'a', 1)", 0)
    nothing, refused = ask(timers, session, reads, writes)
    assert nothing is None
    assert isinstance(refused, OutOfMemoryError)
    assert "maxmemory" in str(refused)


def test_a_script_that_promised_not_to_write_cannot(timers: FakeTimers, session: Session) -> None:
    (refused,) = ask(timers, session, ("EVAL", "#!lua flags=no-writes\nredis.call('SET', 'a', 1)", 0))
    assert isinstance(refused, ResponseError)
    assert "Write commands are not allowed from read-only scripts" in str(refused)


def test_what_the_broker_never_sent_before_is_a_fault_of_the_test(timers: FakeTimers, server: Server) -> None:
    Asked(server.connect(), ("LPUSH", "a", 1))
    with pytest.raises(NotSimulatedError):
        timers.run(1.0)


def test_inside_a_script_too(timers: FakeTimers, server: Server) -> None:
    Asked(server.connect(), ("EVAL", "return redis.pcall('LPUSH', 'a', 1)", 0))
    with pytest.raises(NotSimulatedError):
        timers.run(1.0)
