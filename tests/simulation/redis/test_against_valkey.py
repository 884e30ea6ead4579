"""The simulated Redis answers what a real Valkey answers: random commands, the same to both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final, cast

import pytest
import redis
from redis.exceptions import RedisError

from flockmq.redis.connection import Reply
from integration.redis.servers import Server as RealServer
from simulation.redis.fakes import Asked, FakeTimers
from simulation.redis.random_commands import LOAD, SLOT, Command, Generator
from simulation.redis.server import Server
from simulation.redis.session import Answers

COMMANDS: Final = 300
SEEDS: Final = range(6)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    started = RealServer(tmp_path_factory.mktemp("valkey"), "--appendonly", "no")
    yield started
    started.stop()


@pytest.fixture
def real_connection(real: RealServer) -> Iterator[redis.Connection]:
    connection = redis.Connection(port=real.port, protocol=2, driver_info=None)
    ask_real(connection, [("FLUSHALL",), ("FUNCTION", "FLUSH")])
    yield connection
    connection.disconnect()


def ask_real(connection: redis.Connection, commands: Sequence[Command]) -> Answers:
    connection.send_packed_command(connection.pack_commands(commands))
    return [_read(connection) for _ in commands]


def _read(connection: redis.Connection) -> Reply | RedisError:
    try:
        return cast(Reply, connection.read_response())
    except RedisError as error:
        return error


class Simulated:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.server = Server("server", ("10.0.0.1", 6379), self.timers, random.Random(0), self.timers.wall_clock)
        self._session = self.server.connect()

    def ask(self, commands: Sequence[Command]) -> Answers:
        asked = Asked(self._session, *commands)
        self.timers.run()
        assert asked.replies is not None
        return asked.replies


def check_equal(commands: Sequence[Command], simulated: Answers, real: Answers) -> None:
    for number, (command, got, wanted) in enumerate(zip(commands, simulated, real, strict=True)):
        assert _comparable(command, got) == _comparable(command, wanted), f"command {number}: {command!r}"


def _comparable(command: Command, reply: Reply | RedisError) -> object:
    """A scan's members in an order of ours: Redis' depends on its hash function."""
    match command[0], reply:
        case _, RedisError():
            return type(reply).__name__, str(reply)
        case "HSCAN", [cursor, list(found)]:
            return cursor, sorted(zip(cast(list[bytes], found[::2]), cast(list[bytes], found[1::2]), strict=True))
        case "SSCAN", [cursor, list(found)]:
            return cursor, sorted(cast(list[bytes], found))
    return reply


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_are_answered_alike(seed: int, real_connection: redis.Connection) -> None:
    commands = LOAD + Generator(seed).commands(COMMANDS)
    check_equal(commands, Simulated().ask(commands), ask_real(real_connection, commands))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_server_refuses_the_same(seed: int, real_connection: redis.Connection) -> None:
    generator, simulated = Generator(seed), Simulated()
    before = LOAD + generator.commands(COMMANDS)
    check_equal(before, simulated.ask(before), ask_real(real_connection, before))
    full = [*generator.commands(COMMANDS), *LOAD]
    simulated.server.used_part = 1.0
    ask_real(real_connection, [("CONFIG", "SET", "maxmemory", 1)])
    try:
        check_equal(full, simulated.ask(full), ask_real(real_connection, full))
    finally:
        ask_real(real_connection, [("CONFIG", "SET", "maxmemory", 0)])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_refuses_the_same(seed: int, real_connection: redis.Connection) -> None:
    generator, simulated = Generator(seed), Simulated()
    before = LOAD + generator.commands(COMMANDS)
    check_equal(before, simulated.ask(before), ask_real(real_connection, before))
    primary = Simulated().server
    primary.crash()
    simulated.server.replicate_from(primary, lambda: 0.001)
    ask_real(real_connection, [("REPLICAOF", "127.0.0.1", 1)])
    as_replica = [*generator.commands(COMMANDS), *LOAD, ("WAIT", 0, 1)]
    try:
        check_equal(as_replica, simulated.ask(as_replica), ask_real(real_connection, as_replica))
    finally:
        ask_real(real_connection, [("REPLICAOF", "NO", "ONE")])


def test_too_few_replicas_refuse_the_same(real_connection: redis.Connection) -> None:
    commands, simulated = Generator(0).commands(COMMANDS), Simulated()
    simulated.ask(LOAD)
    simulated.server.min_replicas_to_write = 1
    ask_real(real_connection, [*LOAD, ("CONFIG", "SET", "min-replicas-to-write", 1)])
    try:
        check_equal(commands, simulated.ask(commands), ask_real(real_connection, commands))
    finally:
        ask_real(real_connection, [("CONFIG", "SET", "min-replicas-to-write", 0)])


@pytest.mark.parametrize(
    "sizes",
    [[], [10], 1000 * [10], 300 * [1000], 50 * [60_000], 5 * [60_000] + 2000 * [100], 2000 * [100] + [60_000]],
    ids=["empty", "one", "small", "large", "huge", "huge first", "huge last"],
)
def test_a_stream_is_estimated_alike(sizes: list[int], real_connection: redis.Connection) -> None:
    """From few nodes, which may mislead a lot, or from all."""
    filled = [("XADD", "x", "1-*", "events", b"e" * size) for size in (0, *sizes)]
    emptied = [] if sizes else [("XTRIM", "x", "MAXLEN", 0)]
    commands = [*filled, *emptied, ("MEMORY", "USAGE", "x"), ("MEMORY", "USAGE", "x", "SAMPLES", 0)]
    assert Simulated().ask(commands)[-2:] == pytest.approx(ask_real(real_connection, commands)[-2:], rel=0.15)


@pytest.mark.parametrize("sizes", [[1], 9 * [1_000_000], 3000 * [100]], ids=["small", "large", "many"])
def test_a_hash_and_a_set_take_no_less_than_is_in_them(sizes: list[int], real_connection: redis.Connection) -> None:
    members = [b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    fields = [text for number, member in enumerate(members) for text in (b"f%d" % number, member)]
    commands: list[Command] = [
        ("HSET", "h", *fields),
        ("SADD", "s", *members),
        ("MEMORY", "USAGE", "h", "SAMPLES", 0),
        ("MEMORY", "USAGE", "s", "SAMPLES", 0),
    ]
    for simulated, real, put in zip(
        Simulated().ask(commands)[-2:], ask_real(real_connection, commands)[-2:], (fields, members), strict=True
    ):
        assert isinstance(simulated, int)
        assert isinstance(real, int)
        assert sum(map(len, put)) <= simulated <= real


def test_a_batch_beyond_luas_stack_is_taken_alike(real_connection: redis.Connection) -> None:
    fields = [text for number in range(9000) for text in (f"f{number}", number)]
    begins = ("1-1 a 1", "1-1 a 2", "B", len(fields), 0, *fields)
    commands: list[Command] = [
        *LOAD,
        ("FCALL", "flockmq_home_take_2", 1, SLOT[0], "1-1 a", 1),
        ("FCALL", "flockmq_home_write_2", 3, *SLOT, "flockmq:{s3}:c:ann", *begins),
        ("HMGET", "flockmq:{s3}:c:ann", "f0", "f8999", "f9000"),
    ]
    check_equal(commands, Simulated().ask(commands), ask_real(real_connection, commands))
