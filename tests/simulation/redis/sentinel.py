"""Sentinels: they watch a primary, agree that it is down, and have a replica take its place.

One of them begins a failover when a quorum sees the primary down, and it reaches a majority of all Sentinels. The
others hear of it later, by way of the servers. A server that comes back as a primary stays one for RECONFIGURE_AFTER_S,
and takes writes meanwhile, as with the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from flockmq.redis.connection import Argument, Reply
from simulation.redis.keyspace import NotSimulatedError
from simulation.redis.server import Server, Timers
from simulation.redis.session import Answer
from simulation.redis.watch import TICK_S, Ticker, Watch

HELLO_S: Final = 2.0
"""How often each tells the others whom it knows as the primary."""
_HELLO_TICKS: Final = round(HELLO_S / TICK_S)
RECONFIGURE_AFTER_S: Final = 8.0
ELECTION_MAX_S: Final = 1.0
"""Candidates wait for a random time, so that mostly there is one."""
SEEN_MAX_S: Final = 1.0
"""Until a Sentinel sees that the replica that it promoted is a primary."""
TRY_AGAIN_S: Final = 4.0

Reaches = Callable[["Sentinel", "Server | Sentinel"], bool]


class Config(NamedTuple):
    """Who is the primary, by which failover."""

    epoch: int
    primary: Server


class Sentinel:
    """One process. It keeps what it knows on disk."""

    def __init__(self, name: str, address: tuple[str, int], primary_name: str, config: Config, timers: Timers) -> None:
        self.name = name
        self.address = address
        self.primary_name = primary_name
        self.config = config
        self.timers = timers
        self.is_running = True
        self.watch = Watch()
        self.epoch = config.epoch
        """The newest one that it voted in."""
        self.begins_in: int | None = None
        """In how many ticks it runs for a failover."""
        self.waits = 0
        """For how many ticks it leaves that to others."""
        self.wrong_for: dict[Server, int] = {}
        """For how many ticks a server has had another opinion."""
        self.sessions: dict[SentinelSession, None] = {}

    def connect(self) -> SentinelSession:
        assert self.is_running
        session = SentinelSession(self)
        self.sessions[session] = None
        return session

    def crash(self) -> None:
        self.is_running = False
        for session in list(self.sessions):
            session.lose()

    def start(self) -> None:
        if not self.is_running:
            self.is_running = True
            self.watch = Watch()
            self.begins_in = None
            self.wrong_for.clear()

    def answer(self, command: Sequence[Argument]) -> Reply:
        match [word.lower() if isinstance(word, str) else word for word in command]:
            case ["sentinel", "get-master-addr-by-name", name]:
                host, port = self.config.primary.address
                return [host.encode(), b"%d" % port] if name == self.primary_name else None
        raise NotSimulatedError(command)


class SentinelSession:
    """As a Session of a Server."""

    def __init__(self, sentinel: Sentinel) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.is_open = True
        self._sentinel = sentinel

    def execute(self, commands: Sequence[Sequence[Argument]], answer: Answer) -> None:
        self._sentinel.timers.call_soon(self._answer, commands, answer)

    def close(self) -> None:
        self.is_open = False
        self._sentinel.sessions.pop(self, None)

    def lose(self) -> None:
        self.close()
        if self.on_lost is not None:
            self.on_lost()

    def _answer(self, commands: Sequence[Sequence[Argument]], answer: Answer) -> None:
        if self.is_open:
            answer([self._sentinel.answer(command) for command in commands])


class Sentinels:
    """All of them, and the servers that they watch: the primary first. `reaches`: whether one's packets get to another
    process, and back."""

    def __init__(
        self,
        primary_name: str,
        addresses: Sequence[tuple[str, int]],
        servers: Sequence[Server],
        timers: Timers,
        random: Random,
        *,
        reaches: Reaches = lambda _, __: True,
        down_after_s: float,
        quorum: int,
    ) -> None:
        config = Config(0, servers[0])
        self.each = [
            Sentinel(f"sentinel-{number}", address, primary_name, config, timers)
            for number, address in enumerate(addresses)
        ]
        self._servers = servers
        self._timers = timers
        self._random = random
        self._reaches = reaches
        self._down_after_s = down_after_s
        self._quorum = quorum
        self._ticks = 0
        self._ticker = Ticker(timers, self._tick)

    def stop(self) -> None:
        self._ticker.stop()

    def _tick(self) -> None:
        self._ticks += 1
        running = [sentinel for sentinel in self.each if sentinel.is_running]
        for sentinel in running:
            sentinel.watch.look(self._servers, lambda server, s=sentinel: self._hears(s, server))  # type: ignore[misc]
        for number, sentinel in enumerate(running):
            if (self._ticks + number * _HELLO_TICKS // len(running)) % _HELLO_TICKS == 0:
                self._say_hello(sentinel)
            self._consider_failover(sentinel)
            self._correct(sentinel)

    def _hears(self, sentinel: Sentinel, server: Server) -> bool:
        return server.responds and self._reaches(sentinel, server)

    def _sees_down(self, sentinel: Sentinel, server: Server) -> bool:
        return sentinel.watch.is_down(server, self._down_after_s)

    # --- failover -----------------------------------------------------------------------------------------------------

    def _consider_failover(self, sentinel: Sentinel) -> None:
        """One that sees the need waits a random time, and looks again."""
        if sentinel.waits:
            sentinel.waits -= 1
        elif not self._is_needed(sentinel):
            sentinel.begins_in = None
        elif sentinel.begins_in is None:
            sentinel.begins_in = self._ticks_below(ELECTION_MAX_S)
        elif sentinel.begins_in:
            sentinel.begins_in -= 1
        else:
            sentinel.begins_in = None
            self._fail_over(sentinel)

    def _is_needed(self, sentinel: Sentinel) -> bool:
        primary = sentinel.config.primary
        if not self._sees_down(sentinel, primary):
            return False
        reached = self._reached_by(sentinel)
        agreeing = [other for other in reached if self._sees_down(other, primary)]
        return len(agreeing) >= self._quorum and 2 * len(reached) > len(self.each)

    def _reached_by(self, sentinel: Sentinel) -> list[Sentinel]:
        return [
            other for other in self.each if other is sentinel or (other.is_running and self._reaches(sentinel, other))
        ]

    def _fail_over(self, sentinel: Sentinel) -> None:
        voters = self._reached_by(sentinel)
        epoch = max(voter.epoch for voter in voters) + 1
        for voter in voters:
            voter.epoch = epoch
            voter.waits = round(TRY_AGAIN_S / TICK_S)
            voter.begins_in = None
        replicas = [
            server
            for server in self._servers
            if server.replication.primary is sentinel.config.primary and self._hears(sentinel, server)
        ]
        if replicas:
            promoted = max(replicas, key=lambda server: len(server.history))
            promoted.promote()
            promoted.disconnect_clients()
            seen_in_s = self._random.uniform(TICK_S, SEEN_MAX_S)
            self._timers.call_later(seen_in_s, self._switch, sentinel, Config(epoch, promoted), replicas)

    def _switch(self, sentinel: Sentinel, config: Config, replicas: Sequence[Server]) -> None:
        """The promotion is seen: clients are sent there, and the other replicas."""
        if sentinel.is_running and config.epoch > sentinel.config.epoch:
            self._adopt(sentinel, config)
            for server in replicas:
                if server is not config.primary and self._hears(sentinel, server):
                    self._make_replica(server, config.primary)

    def _ticks_below(self, seconds: float) -> int:
        return self._random.randrange(round(seconds / TICK_S))

    # --- agreement afterwards -----------------------------------------------------------------------------------------

    def _say_hello(self, sentinel: Sentinel) -> None:
        for other in self.each:
            if other.is_running and other.config.epoch < sentinel.config.epoch:
                by_way_of = (server for server in self._servers if self._hears(sentinel, server))
                if any(self._hears(other, server) for server in by_way_of):
                    self._adopt(other, sentinel.config)

    def _adopt(self, sentinel: Sentinel, config: Config) -> None:
        sentinel.config = config
        sentinel.epoch = max(sentinel.epoch, config.epoch)
        sentinel.begins_in = None
        sentinel.wrong_for.clear()

    def _correct(self, sentinel: Sentinel) -> None:
        """Who has long been a primary, or the replica of another one, without a reason, becomes this one's replica."""
        primary = sentinel.config.primary
        is_sane = self._hears(sentinel, primary) and primary.replication.primary is None
        for server in self._servers:
            is_wrong = server is not primary and server.replication.primary is not primary
            if not is_wrong or not is_sane or not self._hears(sentinel, server):
                sentinel.wrong_for.pop(server, None)
                continue
            sentinel.wrong_for[server] = sentinel.wrong_for.get(server, 0) + 1
            if sentinel.wrong_for[server] * TICK_S > RECONFIGURE_AFTER_S:
                del sentinel.wrong_for[server]
                self._make_replica(server, primary)

    def _make_replica(self, server: Server, primary: Server) -> None:
        server.demote(to=primary)
        server.disconnect_clients()
