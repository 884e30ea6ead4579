"""The Redis of a simulated cluster: one server, a primary with replicas and Sentinels, or a cluster of masters.

With Sentinels each host has a server and a Sentinel, as the operator's pods have. A server that starts asks the
Sentinels who the primary is, and follows it unless it is itself (the operator's valkey.sh).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from redis.crc import key_slot

from simulation.loop import RUNNING
from simulation.network import Network
from simulation.redis.cluster import Cluster
from simulation.redis.sentinel import Sentinel, Sentinels
from simulation.redis.server import Server
from simulation.redis_host import RedisHost

SERVER, SENTINEL, CLUSTER = "server", "sentinel", "cluster"
NAMES: Final = {
    SERVER: ("redis",),
    SENTINEL: ("redis-1", "redis-2", "redis-3"),
    CLUSTER: ("redis-1", "redis-2", "redis-3"),
}
"""Of hosts."""
PORT, SENTINEL_PORT = 6379, 26379
ADDRESSES: Final = ("10.77.0.5", "10.77.0.6", "10.77.0.7")
NAME: Final = "main"
DOWN_AFTER_S: Final = 6.0
"""As the operator sets it."""
QUORUM: Final = 2
NODE_TIMEOUT_S: Final = 3.0
HASH_SLOTS: Final = 16_384
LAG_S: Final = (0.0002, 0.003)
"""Of a replica."""
LOOK_S: Final = 0.1


class Topology:
    """`hosts` by name; `url` and `min_replicas` are what nodes are configured with."""

    def __init__(self, kind: str, network: Network, rng: random.Random) -> None:
        self.kind = kind
        self.min_replicas = 1 if kind == SENTINEL else 0
        self._network = network
        self._random = rng
        addresses = ADDRESSES[:1] if kind == SERVER else ADDRESSES
        self.hosts = [
            RedisHost(name, (address, PORT), network, random.Random(rng.getrandbits(64)))
            for name, address in zip(NAMES[kind], addresses, strict=True)
        ]
        self._by_server: dict[Server, RedisHost] = {host.server: host for host in self.hosts}
        self._sentinels: Sentinels | None = None

    @property
    def url(self) -> str:
        match self.kind:
            case "sentinel":
                return f"redis+sentinel://{','.join(f'{host.address}:{SENTINEL_PORT}' for host in self.hosts)}/{NAME}"
            case "cluster":
                return f"redis+cluster://{','.join(f'{host.address}:{PORT}' for host in self.hosts)}"
            case _:
                return f"redis://{self.hosts[0].address}:{PORT}"

    def start(self) -> None:
        """In the process that runs nothing else: what watches the servers never dies."""
        for host in self.hosts:
            host.start_now()
        servers = [host.server for host in self.hosts]
        if self.kind == CLUSTER:
            firsts = [-(-number * HASH_SLOTS // len(servers)) for number in range(len(servers))]
            ends = [*(first - 1 for first in firsts[1:]), HASH_SLOTS - 1]
            ranges = list(zip(firsts, ends, servers, strict=True))
            Cluster(
                ranges,
                (),
                self._network.loop,
                self._random,
                reaches=self._reaches,
                node_timeout_s=NODE_TIMEOUT_S,
                requires_full_coverage=False,  # as docs/redis.md asks for
            )
        elif self.kind == SENTINEL:
            self._start_sentinels(servers)

    def primary(self) -> RedisHost:
        """The server that takes writes, as most of the Sentinels say; of a cluster the first master."""
        if self._sentinels is None:
            return self.hosts[0]
        named = [sentinel.config for sentinel in self._sentinels.each]
        return self._by_server[max(named, key=lambda config: config.epoch).primary]

    def host_of(self, key: bytes) -> RedisHost:
        """Where it is; of a cluster: its master, for there are no replicas."""
        return self.hosts[key_slot(key) * len(self.hosts) // HASH_SLOTS] if self.kind == CLUSTER else self.primary()

    def is_well(self) -> bool:
        """All servers run, and each replica follows the primary and has what it has."""
        if not all(host.server.responds for host in self.hosts):
            return False
        primary = self.primary().server
        return self.kind != SENTINEL or primary.replication.good_replicas == len(self.hosts) - 1

    def serves(self, address: str) -> bool:
        """Whoever is there can write to all that it may have to write to."""
        needed = self.hosts if self.kind == CLUSTER else [self.primary()]
        return all(
            host.server.responds and host.server.used_part < 1.0 and self._is_whole(address, host.address)
            for host in needed
        )

    def _start_sentinels(self, servers: list[Server]) -> None:
        for replica in servers[1:]:
            replica.replicate_from(servers[0], self._lag_s)
        self._sentinels = Sentinels(
            NAME,
            [(host.address, SENTINEL_PORT) for host in self.hosts],
            servers,
            self._network.loop,
            self._random,
            reaches=self._reaches,
            down_after_s=DOWN_AFTER_S,
            quorum=QUORUM,
        )
        for host, sentinel in zip(self.hosts, self._sentinels.each, strict=True):
            host.have_sentinel(sentinel, self._role)
        self._look()

    def _role(self, host: RedisHost) -> None:
        """A server has started: it is what the Sentinels say."""
        assert self._sentinels is not None
        primary = max((sentinel.config for sentinel in self._sentinels.each), key=lambda config: config.epoch).primary
        if primary is host.server:
            host.server.promote()
        else:
            host.server.replicate_from(primary, self._lag_s)

    def _look(self) -> None:
        """Replication goes over the same paths as everything else."""
        for host in self.hosts:
            primary = host.server.replication.primary
            if primary is not None:
                host.server.replication_is_cut = not self._is_whole(host.address, self._by_server[primary].address)
        self._network.loop.call_later(LOOK_S, self._look)

    def _reaches(self, one: Any, other: Any) -> bool:
        hosts = [self._host_of(one), self._host_of(other)]
        return all(host.process.state == RUNNING for host in hosts) and self._is_whole(
            *(each.address for each in hosts)
        )

    def _host_of(self, process: Any) -> RedisHost:
        """Of a server, a cluster's node or a Sentinel."""
        server = getattr(process, "server", process)
        if isinstance(server, Sentinel):
            return next(host for host in self.hosts if host.address == server.address[0])
        return self._by_server[server]

    def _is_whole(self, one: str, other: str) -> bool:
        return not self._network.is_cut((one, other)) and not self._network.is_cut((other, one))

    def _lag_s(self) -> float:
        return self._random.uniform(*LAG_S)

    def reseed(self, chance: Callable[[str], random.Random]) -> None:
        self._random.seed(chance("redis").random())
        for host in self.hosts:
            host.server.random.seed(chance(host.name).random())
