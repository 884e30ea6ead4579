"""Links to real servers: TLS, users and passwords, sentinels, clusters, replicas that must have a write."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import msgspec
import pytest
import trustme
from redis.crc import key_slot

from flockmq.bounds import REDIS_CONNECT_MAX_S
from flockmq.redis.errors import RedisRefused, RedisUnreachable, StorageUnavailable
from flockmq.redis.link import RedisConfig, RedisLink, RedisLinks
from integration.redis.servers import PATIENCE_S, Clustered, Replicated, Server, tls_in_front

KEYS = ("flockmq:{route}:x", "flockmq:{auth}:x", "flockmq:{cluster}:x")
"""One on each master of a cluster."""


async def once(config: RedisConfig, *command: str | int, key: str = "") -> object:
    """On a link of its own."""
    link = RedisLink(config, key)
    try:
        return await link.call(*command)
    finally:
        await link.close()


# --- TLS --------------------------------------------------------------------------------------------------------------


class Pki:
    """An authority's certificate and a client's, as files."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.authority = trustme.CA()
        self.ca, self.cert, self.key = (directory / name for name in ("ca.pem", "cert.pem", "key.pem"))
        self.authority.cert_pem.write_to_path(self.ca)
        client = self.authority.issue_cert("flockmq")
        client.private_key_pem.write_to_path(self.key)
        client.cert_chain_pems[0].write_to_path(self.cert)

    def config(self, port: int, host: str = "127.0.0.1") -> RedisConfig:
        url = f"rediss://{host}:{port}"
        return RedisConfig(url, cacertfile=self.ca, certfile=self.cert, keyfile=self.key)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


async def test_tls_with_certificates_on_both_sides(server: Server, pki: Pki) -> None:
    async with tls_in_front(server, pki.authority) as port:
        assert await once(pki.config(port), "PING") == b"PONG"


async def test_a_server_of_another_authority_is_refused(server: Server, pki: Pki, tmp_path: Path) -> None:
    async with tls_in_front(server, Pki(tmp_path / "other").authority) as port:
        with pytest.raises(RedisRefused, match=r"TLS: the certificate of the server is refused: self-signed"):
            await once(pki.config(port), "PING")


async def test_a_server_of_another_name_is_refused(server: Server, pki: Pki) -> None:
    async with tls_in_front(server, pki.authority, "redis.example.com") as port:
        with pytest.raises(RedisRefused, match=r"TLS: the certificate of the server is refused: IP address mismatch"):
            await once(pki.config(port), "PING")


async def test_a_server_that_wants_a_certificate_cuts_us_off(server: Server, pki: Pki) -> None:
    async with tls_in_front(server, pki.authority) as port:
        with pytest.raises(
            RedisUnreachable, match=r"Connection closed by server"
        ):  # uvloop keeps OpenSSL's reason back
            await once(RedisConfig(f"rediss://127.0.0.1:{port}", cacertfile=pki.ca), "PING")


async def test_certificates_are_read_at_each_connect(server: Server, pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path / "other")
    link = None
    async with tls_in_front(server, other.authority) as port:
        link = RedisLink(pki.config(port))
        with pytest.raises(RedisRefused):
            await link.call("PING")
        for file, rotated in ((pki.ca, other.ca), (pki.cert, other.cert), (pki.key, other.key)):
            file.write_bytes(rotated.read_bytes())
        assert await link.call("PING") == b"PONG"
        await link.close()


async def test_plain_text_where_the_server_speaks_tls_is_a_clear_error(server: Server, pki: Pki) -> None:
    async with tls_in_front(server, pki.authority) as port:
        with pytest.raises(RedisUnreachable, match=rf"^Redis at 127.0.0.1:{port}: "):
            await once(RedisConfig(f"redis://127.0.0.1:{port}"), "PING")


# --- users and passwords ----------------------------------------------------------------------------------------------


async def test_each_way_to_be_refused_is_named(server: Server) -> None:
    server.call("ACL", "SETUSER", "reader", "on", ">secret", "~allowed", "+get")
    server.call("CONFIG", "SET", "requirepass", "right")
    user = RedisConfig(server.url, username="reader", password="secret")
    assert await once(user, "GET", "allowed") is None
    refusals = [
        (RedisConfig(server.url), "GET", r"it wants a password \(NOAUTH\); set redis.password_file"),
        (RedisConfig(server.url, password="wrong"), "GET", r"it refuses the user or password \(WRONGPASS\); see redis"),
        (user, "PING", r"its ACL doesn't let us \(NOPERM\): .*'ping'"),
    ]
    for config, command, text in refusals:
        with pytest.raises(RedisRefused, match=f"^Redis at 127.0.0.1:{server.port}: {text}") as error:
            await once(config, command)
        assert "secret" not in str(error.value)


async def test_a_rotated_password_is_taken_up(server: Server, tmp_path: Path) -> None:
    server.call("ACL", "SETUSER", "core", "on", "~*", "+@all")
    file = tmp_path / "password"
    link = RedisLink(RedisConfig(server.url, username="core", password_file=file))
    for password in ("old", "new"):
        server.call("ACL", "SETUSER", "core", "resetpass", f">{password}")
        file.write_text(f"{password}\n")
        await link.close()
        assert await link.call("PING") == b"PONG"
    await link.close()


# --- sentinels --------------------------------------------------------------------------------------------------------


async def call_until_done(link: RedisLink, *command: str | int) -> object:
    """As those do who use a link: again and again, for as long as it takes."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(RedisUnreachable):
                return await link.call(*command)
            await asyncio.sleep(0.02)


async def test_a_link_goes_to_the_primary_and_to_the_next_one(replicated: Replicated) -> None:
    link = RedisLink(RedisConfig(replicated.url))
    assert await link.call("SET", "x", "1") == b"OK"
    old = replicated.primary
    old.kill()
    with pytest.raises(RedisUnreachable, match=f"^Redis at 127.0.0.1:{old.port}: "):
        await link.call("PING")
    with pytest.raises(RedisUnreachable, match=rf"/main: has no primary that can be used: .*{old.port}"):
        await link.call("PING")
    assert await call_until_done(link, "GET", "x") == b"1"
    assert await link.call("SET", "x", "2") == b"OK"
    assert replicated.await_new_primary(old).call("GET", "x") == b"2"
    await link.close()


async def test_a_demoted_primary_is_left_at_its_first_refusal(replicated: Replicated) -> None:
    old, other = replicated.primary, replicated.replicas[0]
    link = RedisLink(RedisConfig(replicated.url))
    await link.connect()
    old.call("REPLICAOF", *other.address)  # as by hand: nobody cuts its clients off
    with pytest.raises(RedisUnreachable, match="read only replica"):
        await link.call("SET", "x", "1")
    assert not link.connected
    with pytest.raises(RedisUnreachable, match="the sentinels name it, but it is no primary"):
        await link.call("SET", "x", "1")
    await link.close()


async def test_sentinels_that_are_dead_or_hang_neither_mislead_nor_delay(replicated: Replicated) -> None:
    config = RedisConfig(replicated.url)
    replicated.sentinels[0].signal(signal.SIGSTOP)
    async with asyncio.timeout(REDIS_CONNECT_MAX_S):
        assert await once(config, "PING") == b"PONG"
    replicated.sentinels[0].kill()
    replicated.sentinels[1].kill()
    assert await once(config, "PING") == b"PONG"
    replicated.sentinels[2].kill()
    with pytest.raises(RedisUnreachable, match="nobody can be asked where it is: the sentinel at"):
        await once(config, "PING")


async def test_a_name_that_the_sentinels_do_not_know(replicated: Replicated) -> None:
    with pytest.raises(RedisUnreachable, match="it knows no primary of that name"):
        await once(RedisConfig(replicated.url.replace("/main", "/other")), "PING")


async def test_passwords_of_redis_and_of_the_sentinels(tmp_path: Path) -> None:
    replicated = Replicated(tmp_path, replicas=1, password="of-redis", sentinel_password="of-sentinels")
    file = tmp_path / "password"
    file.write_text("of-sentinels")
    config = RedisConfig(replicated.url, password="of-redis", sentinel_password_file=file)
    try:
        assert await once(config, "PING") == b"PONG"
        with pytest.raises(RedisRefused, match=r"\(NOAUTH\); set redis.sentinel_password_file"):
            await once(msgspec.structs.replace(config, sentinel_password_file=None), "PING")
        with pytest.raises(RedisRefused, match=r"\(NOAUTH\); set redis.password_file"):
            await once(msgspec.structs.replace(config, password=None), "PING")
        file.write_text("wrong")
        with pytest.raises(RedisRefused, match=r"\(WRONGPASS\); see redis.sentinel_password_file"):
            await once(config, "PING")
    finally:
        replicated.stop()


# --- replicas that must have a write ----------------------------------------------------------------------------------


async def test_a_write_counts_when_the_replicas_have_it(replicated: Replicated) -> None:
    link = RedisLink(RedisConfig(replicated.url, min_replicas=2, wait_timeout_s=PATIENCE_S))
    assert await link.write([("SET", "x", "1"), ("GET", "x")]) == [b"OK", b"1"]
    assert [replica.call("GET", "x") for replica in replicated.replicas] == [b"1", b"1"]
    await link.close()


async def test_too_few_replicas_are_no_acknowledgement_nor_is_a_repeat(replicated: Replicated) -> None:
    link = RedisLink(RedisConfig(replicated.url, min_replicas=2, wait_timeout_s=0.1))
    fresh = RedisLink(link.config)
    stopped = replicated.replicas[0]
    stopped.signal(signal.SIGSTOP)
    for each in (
        link,
        link,
        fresh,
    ):  # what is only read on a new connection was written by somebody before all the same
        with pytest.raises(
            StorageUnavailable, match=r"1 of the 2 replicas that redis\.min_replicas asks for had the write"
        ):
            await each.write([("SETNX", "x", "1")])
        assert not each.connected, "one that was replaced has too few, too: the sentinels are asked again"
        with pytest.raises(StorageUnavailable, match=r"1 of the 2 replicas"):
            await each.replicated()
    stopped.signal(signal.SIGCONT)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(StorageUnavailable):
                assert await fresh.write([("SETNX", "x", "1")]) == [0]
                break
    assert stopped.call("GET", "x") == b"1"
    await link.close()
    await fresh.close()


async def test_what_a_full_primary_accepts_counts_when_the_replicas_have_it(replicated: Replicated) -> None:
    link = RedisLink(RedisConfig(replicated.url, min_replicas=2, wait_timeout_s=PATIENCE_S))
    await link.write([("SET", "x", "1")])
    replicated.primary.call("CONFIG", "SET", "maxmemory", 1)
    assert await link.write([("DEL", "x")]) == [1]
    assert [replica.call("GET", "x") for replica in replicated.replicas] == [None, None]
    await link.close()


async def test_a_server_that_wants_more_replicas_itself_acknowledges_nothing(server: Server) -> None:
    server.call("CONFIG", "SET", "min-replicas-to-write", 1)
    link = RedisLink(RedisConfig(server.url, min_replicas=1))
    with pytest.raises(StorageUnavailable, match="NOREPLICAS"):
        await link.write([("SET", "x", "1")])
    await link.close()


# --- clusters ---------------------------------------------------------------------------------------------------------


async def test_a_link_goes_to_the_master_of_its_key(clustered: Clustered) -> None:
    config = RedisConfig(clustered.url, min_replicas=0)
    for key, master in zip(KEYS, clustered.masters, strict=True):
        assert await once(config, "SET", key, "1", key=key) == b"OK"
        assert master.call("GET", key) == b"1"


async def test_a_link_follows_its_hash_slot(clustered: Clustered) -> None:
    source, target, _ = clustered.masters
    key = KEYS[0]
    link = RedisLink(RedisConfig(clustered.url), key)
    await link.call("SET", key, "1")
    clustered.move_slot(key_slot(key.encode()), source, target)
    with pytest.raises(RedisUnreachable, match=rf"MOVED.*:{target.port}|{target.port}"):
        await link.call("GET", key)
    assert await link.call("GET", key) == b"1"
    assert await link.call("INCR", key) == 2
    assert target.call("GET", key) == b"2"
    await link.close()


async def test_links_are_one_to_a_master_and_prepared_before_use(clustered: Clustered) -> None:
    prepared: list[RedisLink] = []

    async def prepare(link: RedisLink) -> None:
        await link.call("PING")
        prepared.append(link)

    links = RedisLinks(RedisConfig(clustered.url), prepare)
    keys = [f"flockmq:{{s{number}}}:ids" for number in range(64)]
    found = await asyncio.gather(*(links.of(key) for key in keys))
    assert sorted(prepared, key=id) == sorted(set(found), key=id)
    assert len(prepared) == 3
    for key, link in zip(keys, found, strict=True):
        assert await link.write([("SADD", key, "x")]) == [1]
    await links.close()


async def test_one_master_down_concerns_only_its_own_keys(clustered: Clustered) -> None:
    for server in clustered.servers:
        server.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
    links = RedisLinks(RedisConfig(clustered.url))
    for key in KEYS:
        await (await links.of(key)).call("SET", key, "1")
    down = clustered.masters[0]
    down.kill()
    with pytest.raises(RedisUnreachable):
        await (await links.of(KEYS[0])).call("PING")
    with pytest.raises(RedisUnreachable, match=f"127.0.0.1:{down.port}"):
        await links.of(KEYS[0])
    for key in KEYS[1:]:
        assert await (await links.of(key)).call("GET", key) == b"1"
    down.start()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(RedisUnreachable):
                assert await (await links.of(KEYS[0])).call("GET", KEYS[0]) == b"1"
                break
            await asyncio.sleep(0.02)
    await links.close()


async def test_elsewhere_links_are_one(server: Server) -> None:
    links = RedisLinks(RedisConfig(server.url))
    one, other = await asyncio.gather(*(links.of(key) for key in KEYS[:2]))
    assert one is other
    await links.close()
