"""Real Valkey servers in every shape that Redis comes in: one alone, a primary with replicas and sentinels, a cluster;
and TLS in front of one.

Each is a process of its own on free ports of 127.0.0.1, writes an append-only file (fsync always), and can be killed,
paused and started again with what it had. Whoever makes one stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, cast

import redis
import trustme

from flockmq.processes import die_with_parent
from flockmq.redis.embedded import server_binary
from flockmq.redis.link import Reply
from ports import free_port

PATIENCE_S: Final = 30.0
PRIMARY: Final = "main"
"""What the sentinels call it."""
DOWN_AFTER_MS: Final = 500
CLUSTER_RANGES: Final = ((0, 10_000), (10_001, 14_000), (14_001, 16_383))
"""By which the log's shards are on three masters: route on the first, auth on the second, cluster and retained on the
third."""


def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Until it holds; the time only bounds a failure. A server that can't be asked just now doesn't hold."""
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(redis.exceptions.RedisError):
            if condition():
                return
        assert time.monotonic() < deadline, "what was waited for didn't come"
        time.sleep(0.01)  # what is waited for has no event


class Server:
    """One process on one port and one directory, through kills and restarts."""

    def __init__(self, directory: Path, *options: str, password: str | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self._options = options
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def address(self) -> tuple[str, str]:
        return "127.0.0.1", str(self.port)

    def start(self) -> None:
        with (self.directory / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                cwd=self.directory,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl
            )
        until(lambda: self.call("PING"))

    def call(self, *command: str | int | bytes) -> Reply:
        """One command. Raises what redis-py raises."""
        connection = redis.Connection(
            port=self.port, password=self._password, socket_timeout=PATIENCE_S, protocol=2, driver_info=None
        )
        try:
            connection.send_command(*command)
            return cast(Reply, connection.read_response())
        finally:
            connection.disconnect()

    def rows(self, *command: str | int | bytes) -> list[Reply]:
        """A command that answers a list."""
        reply = self.call(*command)
        assert isinstance(reply, list)
        return reply

    def said(self, *command: str | int | bytes) -> str:
        """A command that answers a text."""
        reply = self.call(*command)
        assert isinstance(reply, bytes)
        return reply.decode()

    def info(self, field: str) -> str:
        """One of INFO's fields."""
        lines = self.said("INFO", "server", "replication").splitlines()
        return next(line for line in lines if line.startswith(f"{field}:")).partition(":")[2]

    def signal(self, number: int) -> None:
        """SIGSTOP, SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As a crash does it: no flush, no farewell."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait(PATIENCE_S)
            self._process = None

    def _command(self) -> Sequence[str]:
        return (
            str(server_binary()),
            *("--bind", "127.0.0.1"),
            *("--port", str(self.port)),
            *("--dir", str(self.directory)),
            *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
            *("--maxmemory-policy", "noeviction"),
            *("--repl-diskless-sync-delay", "0"),
            *(("--requirepass", self._password, "--primaryauth", self._password) if self._password else ()),
            *self._options,
        )


class Sentinel(Server):
    """Watches one primary; a majority of three makes a failover."""

    def __init__(self, directory: Path, primary: Server, *, password: str | None, primary_password: str | None) -> None:
        self._conf = directory / "sentinel.conf"
        directory.mkdir(parents=True)
        self._conf.write_text(
            f"sentinel monitor {PRIMARY} 127.0.0.1 {primary.port} 2\n"
            f"sentinel down-after-milliseconds {PRIMARY} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {PRIMARY} 4000\n"
            + (f"sentinel auth-pass {PRIMARY} {primary_password}\n" if primary_password else "")
            + (f"requirepass {password}\nsentinel sentinel-pass {password}\n" if password else "")
        )
        super().__init__(directory, password=password)

    def _command(self) -> Sequence[str]:
        return str(server_binary()), str(self._conf), "--sentinel", "--bind", "127.0.0.1", "--port", str(self.port)


class Replicated:
    """A primary with two replicas and three sentinels, ready to fail over."""

    def __init__(
        self, directory: Path, *, replicas: int = 2, password: str | None = None, sentinel_password: str | None = None
    ) -> None:
        self._password = password
        self.sentinel_password = sentinel_password
        first = Server(directory / "server-0", password=password)
        following = ("--replicaof", f"127.0.0.1 {first.port}")
        self.servers = [first]
        for number in range(1, replicas + 1):
            self.servers.append(Server(directory / f"server-{number}", *following, password=password))
        until(lambda: first.info("connected_slaves") == str(replicas))
        until(lambda: all(server.info("master_link_status") == "up" for server in self.servers[1:]))
        self.sentinels = [
            Sentinel(directory / f"sentinel-{number}", first, password=sentinel_password, primary_password=password)
            for number in range(3)
        ]
        for sentinel in self.sentinels:
            until(lambda s=sentinel: len(s.rows("SENTINEL", "SENTINELS", PRIMARY)) == 2)  # type: ignore[misc]
            until(lambda s=sentinel: len(s.rows("SENTINEL", "REPLICAS", PRIMARY)) == replicas)  # type: ignore[misc]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in self.sentinels)}/{PRIMARY}"

    @property
    def primary(self) -> Server:
        """As the first sentinel knows it."""
        named = self.sentinels[0].rows("SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY)
        return next(server for server in self.servers if server.address[1].encode() == named[1])

    @property
    def replicas(self) -> list[Server]:
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    def await_new_primary(self, old: Server) -> Server:
        until(lambda: self.primary is not old and self.primary.info("role") == "master")
        return self.primary

    def stop(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.stop()


class Clustered:
    """Three masters, and a replica of each if wanted."""

    def __init__(self, directory: Path, *, replicas: bool = False) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        count = 2 * len(CLUSTER_RANGES) if replicas else len(CLUSTER_RANGES)
        buses = [free_port() for _ in range(count)]
        self.servers = [
            Server(directory / f"server-{number}", *options, "--cluster-port", str(bus))
            for number, bus in enumerate(buses)
        ]
        self.masters = self.servers[: len(CLUSTER_RANGES)]
        for master, (first, last) in zip(self.masters, CLUSTER_RANGES, strict=True):
            master.call("CLUSTER", "ADDSLOTSRANGE", first, last)
        for number, server in enumerate(self.servers):
            server.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            server.call("CLUSTER", "MEET", *self.servers[0].address, buses[0])
        known = f"cluster_known_nodes:{count}"
        until(lambda: all(known in server.said("CLUSTER", "INFO") for server in self.servers))
        for replica, master in zip(self.servers[len(self.masters) :], self.masters, strict=False):
            replica.call("CLUSTER", "REPLICATE", master.said("CLUSTER", "MYID"))
            until(lambda r=replica: r.info("master_link_status") == "up")  # type: ignore[misc]
        self.await_ok()

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}"

    def await_ok(self) -> None:
        """Every server sees every hash slot served."""
        until(lambda: all("cluster_state:ok" in server.said("CLUSTER", "INFO") for server in self.servers))

    def move_slot(self, slot: int, source: Server, target: Server) -> None:
        """With its keys, while it is used."""
        self.begin_move(slot, source, target)
        while keys := source.rows("CLUSTER", "GETKEYSINSLOT", slot, 100):
            self.move_keys(source, target, [key for key in keys if type(key) is bytes])
        for server in (target, source):
            server.call("CLUSTER", "SETSLOT", slot, "NODE", target.said("CLUSTER", "MYID"))

    def begin_move(self, slot: int, source: Server, target: Server) -> None:
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.said("CLUSTER", "MYID"))
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.said("CLUSTER", "MYID"))

    def move_keys(self, source: Server, target: Server, keys: Sequence[bytes]) -> None:
        source.call("MIGRATE", *target.address, "", 0, 10_000, "KEYS", *keys)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


@contextlib.asynccontextmanager
async def tls_in_front(server: Server, authority: trustme.CA, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """TLS on another port, as a proxy beside the server does it (the test's own Valkey has none); gives the port.
    Clients must show a certificate of the authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(host).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, ahead = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pump(reader, ahead), pump(behind, writer))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
