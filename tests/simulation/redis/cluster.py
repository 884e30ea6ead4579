"""A Redis Cluster: masters that have ranges of the hash slots, and perhaps replicas of them.

Each node acts on what it knows itself. Its map of the slots may be old while it is cut off. It serves nobody while it
reaches no majority of the masters, or while slots have no master and full coverage is required. A replica takes the
slots of its dead master when a majority of the masters lets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from redis.crc import key_slot

from flockmq.redis.connection import Reply
from simulation.redis.keyspace import CommandError
from simulation.redis.server import Server, Timers
from simulation.redis.watch import TICK_S, Ticker, Watch

REBOOT_S: Final = 2.0
"""How long a master that started waits to hear what happened meanwhile."""
REJOIN_MIN_S: Final = 0.5
REJOIN_MAX_S: Final = 5.0
ELECTION_S: Final = (0.5, 1.0)
"""A replica leaves the news time to spread before it runs for the slots."""

_DOWN: Final = "CLUSTERDOWN The cluster is down"
_CROSS_SLOT: Final = "CROSSSLOT Keys in request don't hash to the same slot"
_NOT_LOCAL: Final = "ERR Script attempted to access a non local key in a cluster node"
_NODE_ID_BITS: Final = 160

Reaches = Callable[[Server, Server], bool]


class Range(NamedTuple):
    """Hash slots, both ends included, and their master."""

    first: int
    last: int
    master: Server


class SlotMap(NamedTuple):
    """Who has which slots, since which failover."""

    epoch: int
    ranges: tuple[Range, ...]

    @property
    def masters(self) -> list[Server]:
        return list(dict.fromkeys(each.master for each in self.ranges))

    def master_of(self, slot: int) -> Server:
        return next(each.master for each in self.ranges if each.first <= slot <= each.last)


class Node:
    """What one server knows of the cluster: its Server's Router."""

    def __init__(self, cluster: Cluster, server: Server, node_id: bytes, slot_map: SlotMap) -> None:
        self.server = server
        self.id = node_id
        self.slot_map = slot_map
        self.watch = Watch()
        self.is_ok = True
        self.recovers_in = 0
        """How many ticks it stays down although nothing is wrong any more."""
        self.runs_in: int | None = None
        """In how many ticks it runs for the slots of its master."""
        self.run_id = server.run_id
        self._cluster = cluster

    def check(self, keys: Sequence[bytes]) -> None:
        slots = {key_slot(key) for key in keys}
        if len(slots) > 1:
            raise CommandError(_CROSS_SLOT)
        if not self.is_ok:
            raise CommandError(_DOWN)
        for slot in slots:
            master = self.slot_map.master_of(slot)
            if master is not self.server:
                host, port = master.address
                raise CommandError(f"MOVED {slot} {host}:{port}")

    def check_in_script(self, keys: Sequence[bytes]) -> None:
        try:
            self.check(keys)
        except CommandError:
            raise CommandError(_NOT_LOCAL) from None

    def slots(self) -> Reply:
        ranges: list[Reply] = []
        for first, last, master in self.slot_map.ranges:
            servers = [master, *self._cluster.replicas_of(master)]
            ranges.append([first, last, *(self._cluster.nodes[server].described() for server in servers)])
        return ranges

    def described(self) -> Reply:
        host, port = self.server.address
        return [host.encode(), port, self.id, []]

    def fail(self) -> None:
        """It serves nobody, and lets go who waits."""
        if self.is_ok:
            self.is_ok = False
            self.server.post(self.server.dispatcher.refuse_blocked)


class Cluster:
    """Servers that know one another: a master for each range, and replicas that follow theirs already. `reaches`:
    whether one's packets get to the other, and back."""

    def __init__(
        self,
        ranges: Sequence[tuple[int, int, Server]],
        replicas: Sequence[Server],
        timers: Timers,
        random: Random,
        *,
        reaches: Reaches = lambda _, __: True,
        node_timeout_s: float,
        requires_full_coverage: bool = True,
    ) -> None:
        slot_map = SlotMap(0, tuple(Range(*each) for each in ranges))
        self.nodes: dict[Server, Node] = {}
        for server in (*slot_map.masters, *replicas):
            node_id = b"%040x" % random.getrandbits(_NODE_ID_BITS)
            self.nodes[server] = server.router = Node(self, server, node_id, slot_map)
        self._random = random
        self._reaches = reaches
        self._timeout_s = node_timeout_s
        self._requires_full_coverage = requires_full_coverage
        self._ticker = Ticker(timers, self._tick)

    def stop(self) -> None:
        self._ticker.stop()

    def replicas_of(self, master: Server) -> list[Server]:
        return [server for server in self.nodes if server.replication.primary is master]

    def _tick(self) -> None:
        nodes = [node for node in self.nodes.values() if node.server.responds]
        for node in nodes:
            if node.run_id != node.server.run_id:
                self._reboot(node)
            node.watch.look(self.nodes, lambda other, n=node: self._hears(n, other))  # type: ignore[misc]
        for node in nodes:
            self._gossip(node)
            self._judge(node)
            self._consider_running(node)

    def _reboot(self, node: Node) -> None:
        node.run_id = node.server.run_id
        node.watch = Watch()
        node.runs_in = None
        if node.server.replication.primary is None:
            node.fail()
            node.recovers_in = round(REBOOT_S / TICK_S)

    def _hears(self, node: Node, other: Server) -> bool:
        return other is node.server or (other.responds and self._reaches(node.server, other))

    def _sees_down(self, node: Node, other: Server) -> bool:
        return node.watch.is_down(other, self._timeout_s)

    def _is_failed(self, node: Node, master: Server) -> bool:
        """A majority of the masters says so, as far as this node hears of them."""
        masters = node.slot_map.masters
        against = [
            voter for voter in masters if self._hears(node, voter) and self._sees_down(self.nodes[voter], master)
        ]
        return 2 * len(against) > len(masters)

    # --- the state of a node ------------------------------------------------------------------------------------------

    def _judge(self, node: Node) -> None:
        masters = node.slot_map.masters
        reached = [master for master in masters if not self._sees_down(node, master)]
        if 2 * len(reached) <= len(masters):
            node.fail()
            node.recovers_in = round(min(max(self._timeout_s, REJOIN_MIN_S), REJOIN_MAX_S) / TICK_S)
        elif self._requires_full_coverage and any(self._is_failed(node, master) for master in masters):
            node.fail()
        elif node.recovers_in:
            node.recovers_in -= 1
        else:
            node.is_ok = True

    def _gossip(self, node: Node) -> None:
        for other in self.nodes.values():
            if other.slot_map.epoch > node.slot_map.epoch and self._hears(node, other.server):
                self._adopt(node, other.slot_map)

    def _adopt(self, node: Node, slot_map: SlotMap) -> None:
        """Who lost the slots of its own, or of its master, follows who has them now."""
        old, node.slot_map = node.slot_map, slot_map
        before = node.server.replication.primary or node.server
        slot = next(each.first for each in old.ranges if each.master is before)
        master = slot_map.master_of(slot)
        if master is not node.server:
            node.server.demote(to=master)
            node.recovers_in = 0

    # --- failover -----------------------------------------------------------------------------------------------------

    def _consider_running(self, node: Node) -> None:
        master = node.server.replication.primary
        if master is None or not self._is_failed(node, master):
            node.runs_in = None
        elif node.runs_in is None:
            ahead = [each for each in self.replicas_of(master) if len(each.history) > len(node.server.history)]
            node.runs_in = round((self._random.uniform(*ELECTION_S) + len(ahead)) / TICK_S)
        elif node.runs_in:
            node.runs_in -= 1
        else:
            node.runs_in = None
            self._take_over(node, master)

    def _take_over(self, node: Node, master: Server) -> None:
        """Those who say that the master failed vote for it."""
        epoch, ranges = node.slot_map
        node.server.promote()
        moved = tuple(each._replace(master=node.server) if each.master is master else each for each in ranges)
        node.slot_map = SlotMap(epoch + 1, moved)
