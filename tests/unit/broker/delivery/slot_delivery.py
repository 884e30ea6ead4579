"""A cluster of slot senders and owners without sockets, clock or Redis: each step is taken when a test says so.

What is real: `SlotSender`, `SlotTable`, `SlotReceiver`, `Deduplicator`, and the frames between them. What is a model:
the log (a list of rows that each node applies in its own time), links (queues that may be cut anywhere, whose rest may
still arrive late), and Redis (what is durable of each slot, behind its fence).

Redis judges: a slot's messages of one source are in the order of their numbers, none twice; and whatever is told to be
accepted is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from flockmq import bounds
from flockmq.delivery.batch_queue import Carrier, size_of
from flockmq.delivery.frames import BATCH, addressed_frame, batch_frame, parse_addressed, parse_batch
from flockmq.delivery.slot_acceptance import Deduplicator, SlotBarriers, number_bytes
from flockmq.delivery.slot_receiver import SlotReceiver
from flockmq.delivery.slot_sender import SlotSender
from flockmq.membership.frames import FrameReader
from flockmq.membership.slot_table import LET_GO, SEND, TAKE, SlotMove, SlotTable
from flockmq.mqtt import encode
from flockmq.mqtt.message import Publish, parse_publish
from flockmq.rlog.entry import StreamId
from flockmq.routing.message_id import node_source, origin_of
from flockmq.routing.sink import Sink
from flockmq.routing.slots import SlotMessage
from flockmq.routing.targets import SlotSet

CORES = ("a@1", "b@1", "c@1")
NODES = (*CORES, "r@1")
SLOTS = 4

Id = tuple[bytes, int]
Row = tuple[str, int | str, str]
"""("slot", number, owner) or ("gone", incarnation, "")"""


class Redis:
    """What is durable: of each slot its fence, its marks, and the messages that it took."""

    def __init__(self) -> None:
        self.fences = [0] * SLOTS
        self.marks: list[dict[bytes, bytes]] = [{} for _ in range(SLOTS)]
        self.taken: list[list[Id]] = [[] for _ in range(SLOTS)]
        self.dead = -1
        """The slot whose master is."""

    def enqueue(self, slot: int, message: Id) -> None:
        source, number = message
        before = [n for s, n in self.taken[slot] if s == source]
        assert not before or before[-1] < number, f"slot {slot} took {number} after {before[-1]}"
        self.taken[slot].append(message)


class Slot:
    """One slot at its owner."""

    def __init__(self, gained_at: int, fence: int) -> None:
        self.gained_at = gained_at
        self.fence = fence
        self.marks = Deduplicator()


class Sessions:
    """As `durable.session_service`: what is put waits in `ops` until Redis has it, and who asked for a barrier hears
    then; what is for slots that aren't loaded is `held`.
    """

    def __init__(self, me: str, redis: Redis, table: SlotTable) -> None:
        self.me = me
        self.redis = redis
        self.table = table
        self.slots: dict[int, Slot] = {}
        self.unloaded: dict[int, int] = {}
        self.lost: dict[int, None] = {}
        self.held: dict[int, list[SlotMessage | Callable[[bool], None]]] = {}
        self.changed_at = 0
        self.ops: deque[tuple[int, int, Id | None, Callable[[bool], None] | None]] = deque()

    def epoch(self) -> int:
        return self.table.epoch

    def view(self) -> int:
        return self.changed_at

    def is_loading(self) -> bool:
        return self.is_changing() or bool(self.unloaded)

    def is_changing(self) -> bool:
        return bool(self.lost)

    @property
    def is_holding(self) -> bool:
        return bool(self.held)

    def advance(self) -> None:
        for slot in [slot for slot in self.held if slot in self.slots]:
            for item in self.held.pop(slot):
                if isinstance(item, SlotMessage):
                    self._put(slot, item)
                else:
                    self.ops.append((slot, self.slots[slot].fence, None, item))

    def let_go(self, moves: list[SlotMove]) -> None:
        for slot, former, _ in moves:
            if former == self.me:
                self.changed_at = self.table.epoch
                self.slots.pop(slot, None)
                self.unloaded.pop(slot, None)
                self.lost.pop(slot, None)
                self._release(slot)

    def gain(self, moves: list[SlotMove]) -> None:
        for slot, _, owner in moves:
            if owner == self.me:
                self.changed_at = self.unloaded[slot] = self.table.epoch

    def load(self) -> None:
        """Set the fences, and read what is there, but for slots of a master that is dead. A slot that another owner
        took before stays lost until the log tells of that owner: to go on without it would be to accept what it misses.
        """
        for slot, gained_at in list(self.unloaded.items()):
            if slot == self.redis.dead:
                continue
            if self.redis.fences[slot] >= gained_at:
                del self.unloaded[slot]
                self.lost[slot] = None
            else:
                self.redis.fences[slot] = gained_at
                self.slots[slot] = Slot(gained_at, gained_at)
                assert not self.slots[slot].marks.restore(self.redis.marks[slot])
                del self.unloaded[slot]

    def take(
        self, slot_messages: Sequence[SlotMessage], epoch: int, sender: str, done: Callable[[bool], None]
    ) -> SlotBarriers:
        touched: dict[int, None] = {}
        for slot_message in slot_messages:
            for number in slot_message.slots:
                if (number in self.held or number in self.unloaded) and self._gained_at(number) <= epoch:
                    self.held.setdefault(number, []).append(slot_message)
                    touched[number] = None
            for number in wanted_by(slot_message):
                slot = self.slots.get(number)
                if slot is not None and slot.gained_at <= epoch and number not in self.held:
                    touched[number] = None
                    self._put(number, slot_message)
        waits = SlotBarriers(touched, done)
        if not touched:
            done(True)
        for number in list(touched):
            one = partial(waits.one, number)
            if number in self.held:
                self.held[number].append(one)
            else:
                self.ops.append((number, self.slots[number].fence, None, one))
        return waits

    def _gained_at(self, number: int) -> int:
        slot = self.slots.get(number)
        return self.unloaded[number] if slot is None else slot.gained_at

    def _put(self, number: int, slot_message: SlotMessage) -> None:
        slot = self.slots[number]
        if slot.marks.is_new(slot_message.source, slot_message.number):
            slot.marks.set(slot_message.source, slot_message.number)
            self.ops.append((number, slot.fence, (slot_message.source, slot_message.number), None))

    def take_runs(self, slot_messages: Sequence[SlotMessage]) -> None:
        raise AssertionError("no run was put")

    def _release(self, slot: int) -> None:
        """What wasn't durable never will be."""
        lost = [done for number, _, _, done in self.ops if number == slot and done is not None]
        self.ops = deque(op for op in self.ops if op[0] != slot)
        lost += [item for item in self.held.pop(slot, []) if not isinstance(item, SlotMessage)]
        for done in lost:
            done(False)

    def commit(self, count: int) -> None:
        """So many ops reach Redis, but for slots of a master that is dead. A slot that is fenced has another owner, of
        which the log will tell: until then nothing is taken."""
        for op in [op for op in self.ops if op[0] != self.redis.dead][:count]:
            if op not in self.ops:
                continue  # let go of
            self.ops.remove(op)
            slot, fence, message, done = op
            holds = self.redis.fences[slot] == fence
            if not holds and slot in self.slots:
                del self.slots[slot]
                self.lost[slot] = None
            if message is not None and holds:
                self.redis.enqueue(slot, message)
                self.redis.marks[slot][message[0]] = number_bytes(message[1])
            if done is not None:
                done(holds)

    def node_gone(self, incarnation: str) -> None:
        source = node_source(incarnation)
        for number, slot in self.slots.items():
            if slot.marks.forget(source) and self.redis.fences[number] == slot.fence:
                self.redis.marks[number].pop(source, None)


class Wire:
    """A link between a sender and a core; `back` are its answers. Once cut, what was sent may still arrive."""

    data_bytes = 0

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.back: deque[tuple[int, int, dict[int, int]]] = deque()
        self.is_cut = False

    def send(self, number: int, epoch: int, slot_messages: Sequence[SlotMessage], size_bytes: int) -> None:
        assert size_bytes == sum(map(size_of, slot_messages))
        frame = batch_frame if number % 4 == 0 else addressed_frame
        self.frames.append(b"".join(frame(number, epoch, slot_messages, size_bytes)))

    def answer(self, number: int, view: int, blocked: dict[int, int]) -> None:
        if not self.is_cut:
            self.back.append((number, view, blocked))


class Here:
    """The way to a node's own intake."""

    data_bytes = 0

    def __init__(self, node: Node) -> None:
        self.node = node

    def send(self, number: int, epoch: int, slot_messages: Sequence[SlotMessage], size_bytes: int) -> None:
        assert self.node.receiver is not None
        back = partial(self.node.slot_sender.accepted, self.node.name)
        self.node.receiver.received(self.node.name, back, number, epoch, slot_messages, size_bytes)


class Node:
    """`applied`: how much of the log it knows."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.is_dead = False
        self.applied = 0
        self.members = set(NODES)
        self.turn: list[Sink] = []
        self.soon: list[Callable[[], None]] = []
        self.wires: dict[str, Wire] = {}
        self.table = SlotTable()
        self.slot_sender = SlotSender(
            self.turn, name, self.table, self.find_carrier, lambda _: None, lambda: None, _no_clock
        )
        self.sessions = Sessions(name, cluster.redis, self.table)
        self.table.listen(LET_GO, self.sessions.let_go)
        self.table.listen(TAKE, self.sessions.gain)
        self.table.listen(TAKE, self.slots_changed)
        self.table.listen(SEND, self.slot_sender.slots_moved)
        self.receiver: SlotReceiver | None = None
        if name in CORES:
            self.receiver = SlotReceiver(self.sessions, self.members.__contains__, self.soon.append, cluster.clock)

    def find_carrier(self, core: str) -> Carrier | None:
        if core == self.name:
            return Here(self)
        return self.wires.get(core)

    def slots_changed(self, moves: list[SlotMove]) -> None:
        if self.receiver is not None:
            self.soon.append(self.receiver.advance)

    def apply(self) -> None:
        """The next entry of the log; callbacks come before the node says that it is there."""
        if self.applied == len(self.cluster.log):
            return
        for kind, key, owner in self.cluster.log[self.applied]:
            if kind == "gone":
                assert isinstance(key, str)
                self.members.discard(key)
                self.slot_sender.gone(key)
                self.sessions.node_gone(key)
                if self.receiver is not None:
                    self.receiver.node_gone(key)
            else:
                assert isinstance(key, int)
                self.table.put(key, owner, None)
        self.applied += 1
        self.table.entry_applied(StreamId(0, self.applied))

    def end_turn(self) -> None:
        for sink in self.turn:
            sink.flush()
        self.turn.clear()

    def run_soon(self) -> None:
        calls = self.soon.copy()
        self.soon.clear()
        for call in calls:
            call()

    def beat(self) -> None:
        """What the rim does now and then."""
        self.cluster.now_s += bounds.TAKEN_APART_AFTER_S
        if self.slot_sender.is_behind():
            self.slot_sender.look()
        if self.receiver is not None:
            self.receiver.advance()

    def load(self) -> None:
        self.sessions.load()
        if self.receiver is not None:
            self.receiver.advance()


class Cluster:
    def __init__(self) -> None:
        self.redis = Redis()
        self.now_s = 0.0
        self.log: list[list[Row]] = []
        self.nodes = {name: Node(name, self) for name in NODES}
        self.ghosts: list[tuple[str, str, Wire]] = []
        self.sent: dict[Id, tuple[str, frozenset[int]]] = {}
        """What may not be lost: by whom it was put last, and for which slots."""
        self.accepted: set[Id] = set()
        self.session_number = 0
        self.session_sent: list[tuple[int, frozenset[int]]] = []
        """QoS 2 messages of one session that weren't accepted."""
        self.session_at = "r@1"

    def clock(self) -> float:
        """What isn't durable at one look is blocked at the next one."""
        return self.now_s

    def alive(self, name: str) -> Node | None:
        node = self.nodes[name]
        return None if node.is_dead else node

    # --- messages ---------------------------------------------------------------------------------------------------

    def put(self, name: str, slots: frozenset[int]) -> None:
        node = self.alive(name)
        if node is not None:
            number = node.slot_sender._last_number + 1
            self._put(node, (node_source(name), number), slots, b"")

    def put_as_session(self, slots: frozenset[int]) -> None:
        node = self.alive(self.session_at)
        if node is not None:
            self.session_number += 1
            self.session_sent.append((self.session_number, slots))
            self._put(node, (SESSION, self.session_number), slots, origin_of(SESSION, self.session_number))

    def move_session(self, name: str) -> None:
        """Its client comes back on another node, and sends again what it heard nothing of."""
        node = self.alive(name)
        if node is not None:
            self.session_at = name
            for number, slots in self.session_sent:
                self._put(node, (SESSION, number), slots, origin_of(SESSION, number))

    def _put(self, node: Node, message: Id, slots: frozenset[int], origin: bytes) -> None:
        wanted = SlotSet(sorted(slots))
        publish = publish_to(slots)
        publish.origin = origin
        assert node.slot_sender.put_acknowledged(wanted, publish, partial(self._accepted, message, slots)) == 1
        self.sent[message] = (node.name, slots)

    def _accepted(self, message: Id, slots: frozenset[int]) -> None:
        for slot in slots:
            assert message in self.redis.taken[slot], f"{message} was accepted, and slot {slot} hasn't got it"
        self.accepted.add(message)
        if message[0] == SESSION:
            self.session_sent = [(number, slots) for number, slots in self.session_sent if number != message[1]]

    # --- links ------------------------------------------------------------------------------------------------------

    def connect(self, sender: str, core: str) -> None:
        node = self.alive(sender)
        if node is not None and sender != core and not self.nodes[core].is_dead and core not in node.wires:
            wire = node.wires[core] = Wire()
            if node.slot_sender.carrier_of(core) is None:
                node.slot_sender.linked(core, wire)

    def cut(self, sender: str, core: str) -> None:
        node = self.nodes[sender]
        if (wire := node.wires.pop(core, None)) is not None:
            wire.is_cut = True
            node.slot_sender.unlinked(core)
            self.ghosts.append((sender, core, wire))

    def carry(self, sender: str, core: str) -> None:
        if (wire := self.nodes[sender].wires.get(core)) is not None:
            self._carry(sender, core, wire)

    def carry_late(self) -> None:
        """What was under way on a link that was cut."""
        if self.ghosts:
            sender, core, wire = self.ghosts[0]
            if not wire.frames:
                self.ghosts.pop(0)
            else:
                self._carry(sender, core, wire)

    def _carry(self, sender: str, core: str, wire: Wire) -> None:
        receiver = self.nodes[core].receiver
        assert receiver is not None
        if wire.frames and not self.nodes[core].is_dead:
            ((kind, body),) = FrameReader(bounds.LINK_FRAME_MAX_BYTES).feed(wire.frames.popleft())
            parse = parse_batch if kind == BATCH else parse_addressed
            receiver.received(sender, wire.answer, *parse(body), len(body))

    def carry_back(self, sender: str, core: str) -> None:
        node = self.nodes[sender]
        if (wire := node.wires.get(core)) is not None and wire.back:
            node.slot_sender.accepted(core, *wire.back.popleft())

    # --- the log ----------------------------------------------------------------------------------------------------

    def move(self, slots: Mapping[int, str]) -> None:
        """An entry of the log; who is dead gets no slot."""
        rows: list[Row] = [
            ("slot", slot, "" if owner and self.nodes[owner].is_dead else owner) for slot, owner in slots.items()
        ]
        self.log.append(rows)

    def kill(self, name: str) -> None:
        """The node is dead; the log says so, and links to it end."""
        if sum(not self.nodes[core].is_dead for core in CORES) == 1 and name in CORES:
            return
        self.nodes[name].is_dead = True
        self.log.append([("gone", name, "")])
        for sender in NODES:
            self.cut(sender, name)
            self.cut(name, sender)
        self.sent = {message: sent for message, sent in self.sent.items() if sent[0] != name}
        if self.session_at == name:
            self.move_session(next(node for node in NODES if not self.nodes[node].is_dead))

    # --- the end ----------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """All that lives goes on until nothing is left to do: what was put and not lost with its node is durable."""
        self.redis.dead = -1
        living = [core for core in CORES if not self.nodes[core].is_dead]
        self.move({slot: living[slot % len(living)] for slot in range(SLOTS)})
        for sender in NODES:
            for core in living:
                self.connect(sender, core)
        while self.ghosts:
            self.carry_late()
            if self.ghosts and self.nodes[self.ghosts[0][1]].is_dead:
                self.ghosts.pop(0)
        for _ in range(200):
            for node in self.nodes.values():
                if not node.is_dead:
                    self._go_on(node, living)
        for message, (sender, slots) in self.sent.items():
            assert message in self.accepted, f"{message} of {sender} for {set(slots)} was never accepted"
        for name in NODES:
            if not self.nodes[name].is_dead:
                assert self.nodes[name].slot_sender.waiting_messages == 0
                assert self.nodes[name].slot_sender.waiting_bytes == 0

    def _go_on(self, node: Node, living: list[str]) -> None:
        node.apply()
        node.run_soon()
        node.load()
        node.end_turn()
        node.sessions.commit(1000)
        node.beat()
        for core in living:
            for _ in range(20):
                self.carry(node.name, core)
                self.carry_back(node.name, core)


SESSION = b"\x01session"


def _no_clock() -> float:
    return 0.0


def publish_to(slots: frozenset[int]) -> Publish:
    """Its topic says which slots want it."""
    topic = b"".join(b"%d" % slot for slot in sorted(slots))
    packet = encode.publish(4, topic, b"payload", qos=1, packet_id=1)
    return parse_publish(packet, 0, 2, len(packet), 4)


def wanted_by(slot_message: SlotMessage) -> list[int]:
    packet = slot_message.packet
    return [byte - 48 for byte in packet[4 : 4 + packet[3]]]
