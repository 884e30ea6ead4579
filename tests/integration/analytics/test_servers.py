"""Reading from every Redis that nodes can use, each a real one: who is asked, what a failover amid it costs."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
import trustme

from integration.redis.servers import Clustered, Replicated, Server, tls_in_front, until
from pyspark_flockmq import reading, servers
from pyspark_flockmq.errors import RedisUnavailable
from pyspark_flockmq.events import STREAMS
from pyspark_flockmq.options import redis_config
from pyspark_flockmq.plan import ALL_IDS, IdRange, StreamId
from pyspark_flockmq.reading import COMMITTED_KEY, PAGE_ENTRIES, ends, entries, last_ids, release, replicated_last_ids
from pyspark_flockmq.servers import Primaries

KEYS = [stream.key for stream in STREAMS.values()]
LAG = STREAMS["lag"].key
SLOT_OF_LAG = 15828
PASSWORD, SENTINEL_PASSWORD = "p4ss", "s3nt"


def at(url: str, **options: str) -> Primaries:
    return Primaries(redis_config({"url": url, **options}))


@contextmanager
def started(make: Callable[[], Server]) -> Iterator[Server]:
    server = make()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Replicated]:
    made = Replicated(tmp_path / "replicated", password=PASSWORD, sentinel_password=SENTINEL_PASSWORD)
    yield made
    made.stop()


@pytest.fixture
def by_sentinels(replicated: Replicated, tmp_path: Path) -> Primaries:
    files = {}
    for name, password in (("password_file", PASSWORD), ("sentinel_password_file", SENTINEL_PASSWORD)):
        files[name] = str(tmp_path / name)
        Path(files[name]).write_text(f"{password}\n")
    return at(replicated.url, **files)


def add(server: Server, *numbers: int, key: str = LAG) -> None:
    for number in numbers:
        server.call("XADD", key, f"{number}-1", "events", str(number))


def numbers(redis: Primaries, end: int, key: str = LAG) -> Iterator[int]:
    yield from (int(fields[b"events"]) for _, fields in entries(redis, key, IdRange(StreamId(0, 1), StreamId(end, 1))))


def test_a_unix_socket_is_read(tmp_path: Path) -> None:
    path = tmp_path / "valkey.sock"
    with (
        started(lambda: Server(tmp_path / "server", "--unixsocket", str(path))) as server,
        at(f"unix://{path}") as redis,
    ):
        add(server, 1, 2)
        assert list(numbers(redis, 2)) == [1, 2]


def test_a_database_and_a_user_of_an_acl_are_used(tmp_path: Path) -> None:
    rules = ["%R~flockmq:events:*", "~flockmq:events:committed", "+exists", "+xinfo|stream", "+xrange", "+xrevrange"]
    (tmp_path / "password").write_text("of-the-report")
    with started(lambda: Server(tmp_path / "server")) as server:
        server.call("ACL", "SETUSER", "report", "reset", "on", ">of-the-report", *rules, "+hset", "+info", "+select")
        server.call("ACL", "SETUSER", "default", "resetkeys", "%R~flockmq:events:*")
        with redis.Redis(port=server.port, db=3) as client:
            client.execute_command("ACL", "SETUSER", "default", "~*")
            client.xadd(LAG, {"events": "7"}, id="7-1")
        url = f"{server.url}/3"
        with at(url, username="report", password_file=str(tmp_path / "password")) as reader:
            assert list(numbers(reader, 7)) == [7]
            assert replicated_last_ids(reader, [LAG], 0) == {LAG: StreamId(7, 1)}
            assert release(reader, {"lag": "7-1"}) == ""
        (tmp_path / "password").write_text("another")
        with (
            at(url, username="report", password_file=str(tmp_path / "password")) as wrong,
            pytest.raises(
                RedisUnavailable, match=rf"Redis at 127\.0\.0\.1:{server.port} refused the password .*; check"
            ),
        ):
            last_ids(wrong, [LAG])


async def test_by_tls_the_certificate_is_checked_and_our_own_is_shown(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    stranger.cert_pem.write_to_path(str(tmp_path / "stranger.crt"))
    own = authority.issue_cert("report")
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    own.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    shown = {"certfile": str(tmp_path / "tls.crt"), "keyfile": str(tmp_path / "tls.key")}

    def read(port: int, ca: str, **options: str) -> list[int]:
        with at(f"rediss://127.0.0.1:{port}", cacertfile=str(tmp_path / ca), **options) as redis:
            return list(numbers(redis, 1))

    with started(lambda: Server(tmp_path / "server")) as server:
        add(server, 1)
        async with tls_in_front(server, authority) as port:
            assert await asyncio.to_thread(read, port, "ca.crt", **shown) == [1]
            with pytest.raises(
                RedisUnavailable, match=r"can't be used by TLS: the certificate of the server is refused"
            ):
                await asyncio.to_thread(read, port, "stranger.crt", **shown)


def test_sentinels_name_the_primary_and_have_a_password_of_their_own(
    replicated: Replicated, by_sentinels: Primaries, tmp_path: Path
) -> None:
    add(replicated.primary, 1, 2)
    with by_sentinels as redis:
        assert list(numbers(redis, 2)) == [1, 2]
    with (
        at(replicated.url, password_file=str(tmp_path / "password_file")) as without,
        pytest.raises(RedisUnavailable, match=r"nobody can be asked where it is: .*name a sentinel password file"),
    ):
        last_ids(without, [LAG])


def test_a_sentinel_that_is_away_or_stands_still_delays_nothing(
    replicated: Replicated, by_sentinels: Primaries
) -> None:
    add(replicated.primary, 1)
    replicated.sentinels[1].signal(signal.SIGSTOP)
    with by_sentinels as redis:
        assert list(numbers(redis, 1)) == [1]


def test_a_failover_amid_reading_loses_and_doubles_nothing(replicated: Replicated, by_sentinels: Primaries) -> None:
    """It goes on with the page at which it was."""
    old, count = replicated.primary, 3 * PAGE_ENTRIES + 5
    add(old, *range(1, count + 1))
    with by_sentinels as redis:
        assert replicated_last_ids(redis, [LAG], 2) == {LAG: StreamId(count, 1)}
        reading_on = numbers(redis, count)
        read = [next(reading_on)]
        old.kill()
        read += reading_on
        new = replicated.await_new_primary(old)
        assert read == list(range(1, count + 1))
        new.call("XADD", LAG, "*", "events", "new")
        last = last_ids(redis, [LAG])[LAG]
        assert last is not None
        assert last > StreamId(count, 1)
        assert release(redis, {"lag": f"{count}-1"}) == ""
        assert new.call("HGET", COMMITTED_KEY, "lag") == f"{count}-1".encode()


def test_only_what_all_connected_replicas_have_is_drained(
    replicated: Replicated, by_sentinels: Primaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(replicated.primary, 1)
    replica = replicated.replicas[0]
    until(lambda: replica.rows("XRANGE", LAG, "-", "+"))
    replica.signal(signal.SIGSTOP)
    add(replicated.primary, 2)
    with by_sentinels as redis:
        with monkeypatch.context() as patched:
            patched.setattr(reading, "REPLICAS_WAIT_S", 0.0)
            with pytest.raises(RedisUnavailable, match=rf"replicas .*127\.0\.0\.1:{replica.port}.* lack what it has"):
                replicated_last_ids(redis, [LAG], 1)
        sleep = time.sleep

        def wake(seconds: float) -> None:
            replica.signal(signal.SIGCONT)
            sleep(seconds)

        monkeypatch.setattr(time, "sleep", wake)
        assert replicated_last_ids(redis, [LAG], 2) == {LAG: StreamId(2, 1)}
        monkeypatch.setattr(reading, "REPLICAS_WAIT_S", 0.0)
        with pytest.raises(RedisUnavailable, match="2 of 3 replicas are connected"):
            replicated_last_ids(redis, [LAG], 3)


def test_a_replica_is_drained_by_nobody(tmp_path: Path) -> None:
    with (
        started(lambda: Server(tmp_path / "primary")) as primary,
        started(lambda: Server(tmp_path / "replica", "--replicaof", f"127.0.0.1 {primary.port}")) as replica,
        at(replica.url) as redis,
        pytest.raises(RedisUnavailable, match="is a replica: name its primary, or the sentinels that know it"),
    ):
        replicated_last_ids(redis, [LAG], 0)


def test_a_server_that_lacks_what_another_one_had_is_no_end_of_the_stream(tmp_path: Path) -> None:
    with started(lambda: Server(tmp_path / "server")) as server, at(server.url) as redis:
        add(server, 1)
        with pytest.raises(RedisUnavailable, match=f"doesn't have entry 2-1 of {LAG}"):
            list(numbers(redis, 2))
        server.call("XTRIM", LAG, "MAXLEN", 0)
        assert last_ids(redis, [LAG]) == {LAG: StreamId(1, 1)}
        assert list(numbers(redis, 1)) == []


def test_an_unreachable_redis_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "FAILOVER_WAIT_S", 0.0)
    for url in ("redis+sentinel://127.0.0.1:1/main", "redis+cluster://127.0.0.1:1"):
        with (
            at(url) as redis,
            pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1:1.*nobody can be asked where it is"),
        ):
            last_ids(redis, [LAG])


@pytest.fixture
def clustered(tmp_path: Path) -> Iterator[Clustered]:
    made = Clustered(tmp_path / "clustered", replicas=True)
    yield made
    made.stop()


def test_the_streams_of_a_cluster_are_read_where_their_hash_slots_are(clustered: Clustered) -> None:
    first, second, third = clustered.masters
    places = dict(zip(KEYS, (first, first, third, second), strict=True))
    for number, (key, master) in enumerate(places.items(), 1):
        add(master, *range(1, number + 1), key=key)
    with at(clustered.url) as redis:
        found = replicated_last_ids(redis, KEYS, 1)
        assert found == {key: StreamId(number, 1) for number, key in enumerate(KEYS, 1)}
        assert ends(redis, LAG, ALL_IDS) == IdRange(StreamId(1, 1), StreamId(3, 1))
        assert release(redis, {"lag": "3-1"}) == ""
        assert first.call("HGET", COMMITTED_KEY, "lag") == b"3-1"
        reading_on = numbers(redis, 3)
        clustered.move_slot(SLOT_OF_LAG, third, first)
        assert list(reading_on) == [1, 2, 3]
        first.kill()
        assert list(numbers(redis, 3)) == [1, 2, 3]
        assert list(numbers(redis, 4, STREAMS["nodes"].key)) == [1, 2, 3, 4]
