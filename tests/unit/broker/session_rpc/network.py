"""Owners on a network of their own: links that are cut, notes that are lost or held back, slots that move."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import cast

from flockmq.bounds import SLOTS
from flockmq.default_callbacks import ignore
from flockmq.delivery.session_packets import ClientPackets
from flockmq.membership.cluster import Cluster
from flockmq.membership.slot_table import SlotTable
from flockmq.rlog.entry import StreamId
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import PendingWill
from flockmq.session_rpc.client_registry import are_different_users
from flockmq.session_rpc.messages import Admission, Answered, AttachError
from flockmq.session_rpc.ports import Attach, Registration
from flockmq.session_rpc.rpc import SWEEP_S, SessionRpc

DELIVERY = "delivery"
TURNS = 40
"""More than any exchange takes."""


class Member:
    """What a node's owners see of the cluster; all of them see the same slots."""

    def __init__(self, network: Network, incarnation: str) -> None:
        self.incarnation = incarnation
        self.fencing = SimpleNamespace(is_confirmed_member=True)
        self.on_node_gone: list[Callable[[str], None]] = []
        self.slots = SlotTable()
        self.on_core_linked: list[Callable[[str], None]] = []
        self.on_link_lost: list[Callable[[str], None]] = []
        self.on_received: Callable[[str, bytes], None] = _nobody
        self.handlers: dict[str, Callable[[str, bytes], None]] = {}
        self.choked = False
        self._network = network

    @property
    def nodes_table(self) -> dict[str, None]:
        return dict.fromkeys(self._network.members)

    def on_note(self, method: str, handler: Callable[[str, bytes], None]) -> None:
        self.handlers[method] = handler

    def is_linked(self, incarnation: str) -> bool:
        return self._network.is_linked(self.incarnation, incarnation)

    def notify(self, incarnation: str, method: str, body: bytes) -> bool:
        return not self.choked and self._network.put(self.incarnation, incarnation, method, body)

    def cut(self, incarnation: str) -> None:
        raise AssertionError("so much is never said here")

    def is_backed_up(self, incarnation: str) -> bool:
        return self.choked

    def send(self, incarnation: str, parts: list[bytes], size_bytes: int) -> bool:
        return self._network.put(self.incarnation, incarnation, DELIVERY, b"".join(parts))


class Clients:
    """The connections of a node. `holds_on`: one that is kicked stays until `let_go`."""

    def __init__(self) -> None:
        self.rpc: SessionRpc
        self.held: dict[bytes, int] = {}
        self.requests: dict[int, messages.SessionRequest | None] = {}
        self.kicked: list[tuple[bytes, int]] = []
        self.overflown: list[tuple[bytes, int]] = []
        self.packets: list[tuple[str, int, bytes]] = []
        self.unsettled_pairs: dict[int, bytes] = {}
        self.holds_on = False

    def kick(self, client_id: bytes, token: int) -> bool:
        if self.held.get(client_id) != token:
            return False
        self.kicked.append((client_id, token))
        if not self.holds_on:
            self.let_go(client_id)
        return True

    def let_go(self, client_id: bytes, expiry_s: int = -1, *, with_will: bool = False) -> None:
        self.rpc.client.detach(client_id, self.held.pop(client_id), expiry_s, with_will=with_will)

    def overflow(self, client_id: bytes, token: int) -> None:
        self.overflown.append((client_id, token))

    def connections(self) -> Iterable[Registration]:
        return [Registration(client_id, token, self.requests[token]) for client_id, token in self.held.items()]

    def holds(self, client_id: bytes, token: int) -> bool:
        return self.held.get(client_id) == token

    def delivered(self, owner: str, token: int, packets: bytes) -> None:
        self.packets.append((owner, token, packets))

    def unsettled(self, token: int) -> bytes:
        return self.unsettled_pairs.get(token, b"")

    def connect(
        self, client_id: bytes, request: messages.SessionRequest | None = None
    ) -> list[Admission | AttachError]:
        """What the owner answers, when it does."""
        answers: list[Admission | AttachError] = []

        def done(answer: Admission | AttachError) -> None:
            answers.append(answer)
            if isinstance(answer, Admission):
                self.held[client_id] = answer.token
                self.requests[answer.token] = request

        self.rpc.client.attach(client_id, request, done)
        return answers


class Sessions:
    """The sessions of an owner, which note what they are told; `load` brings a slot's sessions. `ended`: none is there
    for who comes back; `present`: one is for who attaches. `answers_late`: to who is admitted, when `answer` is called.
    """

    def __init__(self) -> None:
        self.rpc: SessionRpc
        self.loads_at_once = True
        self.full = False
        self.loaded: set[int] = set()
        self.opened: list[tuple[bytes, str, messages.SessionRequest | None]] = []
        self.left: list[tuple[bytes, int, int, bool]] = []
        self.nonces: list[bytes] = []
        """Of the requests of those that left."""
        self.holds: list[float] = []
        """For how long their wills are held back."""
        self.held: list[tuple[PendingWill, float]] = []
        self.cancelled: list[tuple[bytes, bytes]] = []
        self.resumed: list[tuple[bytes, str, int, bytes]] = []
        self.reports: list[tuple[str, int, bytes]] = []
        self.questions: list[tuple[bytes, messages.Question, Answered]] = []
        self.places: list[tuple[int, int]] = []
        self.ended = False
        self.present = False
        self.users: dict[bytes, bytes] = {}
        """Client id -> whose session it has."""
        self.cuts: list[str] = []
        self.gone: list[str] = []
        self.on_open: Callable[[], None] = ignore
        self.answers_late = False
        self.unanswered: dict[int, Attach] = {}
        self.asked_by: dict[bytes, bytes] = {}
        """Client id → the nonce of the last request."""

    def has_loaded(self, slot: int) -> bool:
        return slot in self.loaded

    def own(self, slot: int) -> None:
        if self.loads_at_once:
            self.load(slot)

    def load(self, slot: int) -> None:
        self.loaded.add(slot)
        self.rpc.server.loaded(slot)

    def disown(self, slot: int) -> None:
        self.loaded.discard(slot)

    def open(self, attach: Attach) -> int:
        if self.full:
            return messages.FULL
        self.on_open()
        self.opened.append((attach.client_id, attach.incarnation, attach.request))
        self.unanswered[attach.token] = attach
        self.asked_by[attach.client_id] = messages.nonce_of(attach.request)
        if not self.answers_late:
            self.answer()
        return messages.ADMITTED

    def answer(self) -> None:
        while self.unanswered:
            attach = self.unanswered.pop(next(iter(self.unanswered)))
            flags = messages.DURABLE | (messages.PRESENT if self.present else 0)
            attach.answer(0 if attach.request is None else flags)

    def is_other_users(self, client_id: bytes, user: bytes | None) -> bool:
        return are_different_users(user, self.users.get(client_id))

    def was_asked_by(self, client_id: bytes, request: messages.SessionRequest | None) -> bool:
        return request is not None and request.nonce == self.asked_by.get(client_id)

    def leave(
        self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes = b"", hold_s: float = 0.0
    ) -> None:
        self.left.append((client_id, token, expiry_s, with_will))
        self.nonces.append(nonce)
        self.holds.append(hold_s)
        if (attach := self.unanswered.pop(token, None)) is not None:
            attach.answer(None)

    def hold(self, left: PendingWill, hold_s: float) -> None:
        self.held.append((left, hold_s))

    def cancel(self, client_id: bytes, origin: bytes) -> None:
        self.cancelled.append((client_id, origin))

    def resume(
        self, client_id: bytes, incarnation: str, token: int, request: messages.SessionRequest, pairs: bytes
    ) -> bool:
        if not self.ended:
            self.resumed.append((client_id, incarnation, token, pairs))
        return not self.ended

    def report(self, incarnation: str, token: int, pairs: bytes) -> None:
        self.reports.append((incarnation, token, pairs))

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: messages.Question, answer: Answered
    ) -> None:
        self.questions.append((client_id, question, answer))
        self.places.append(place)

    def report_load(self) -> None: ...

    def cut(self, incarnation: str) -> None:
        self.cuts.append(incarnation)

    def node_gone(self, incarnation: str) -> None:
        self.gone.append(incarnation)


class Node:
    def __init__(self, network: Network, incarnation: str, *, is_core: bool) -> None:
        self.incarnation = incarnation
        self.is_core = is_core
        self.member = Member(network, incarnation)
        self.clients = Clients()
        self.clients.rpc = self.rpc = SessionRpc(
            cast(Cluster, self.member), cast(ClientPackets, self.member), self.clients, self.clients
        )
        self.rpc.tick_s, self.rpc.sweep_s = 0.0, network.sweep_s
        self.sessions = Sessions()
        self.sessions.rpc = self.rpc
        if is_core:
            self.rpc.server.sessions = self.sessions


class Network:
    """`loses` are kinds of notes that don't come; `holds` those that come when it is taken out again."""

    def __init__(self) -> None:
        self.owners = [""] * SLOTS
        self.epoch = 1
        self.sweep_s = SWEEP_S
        self.nodes: dict[str, Node] = {}
        self.members: set[str] = set()
        self.loses: set[str] = set()
        self.holds: set[str] = set()
        self.said: list[tuple[str, str, str]] = []
        self._cut: set[frozenset[str]] = set()
        self._under_way: deque[tuple[str, str, str, bytes]] = deque()

    async def start(self, *names: str) -> list[Node]:
        """Cores have names that begin so; they share the slots, and everybody has heard so."""
        started = [Node(self, f"{name}@1", is_core=name.startswith("core")) for name in names]
        cores = [node.incarnation for node in started if node.is_core]
        self.owners = [cores[slot % len(cores)] for slot in range(SLOTS)]
        for node in started:
            self.tell(node, dict(enumerate(self.owners)))
            self.nodes[node.incarnation] = node
            self.members.add(node.incarnation)
            node.rpc.start()
        await self.settle()
        return started

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.rpc.stop()

    def is_linked(self, one: str, other: str) -> bool:
        return one in self.nodes and other in self.nodes and frozenset((one, other)) not in self._cut

    def put(self, sender: str, to: str, method: str, body: bytes) -> bool:
        if not self.is_linked(sender, to):
            return False
        self.said.append((sender, to, method))
        if method not in self.loses:
            self._under_way.append((sender, to, method, body))
        return True

    def cut(self, one: Node, other: Node) -> None:
        """With what is under way on the link."""
        pair = frozenset((one.incarnation, other.incarnation))
        self._cut.add(pair)
        self._under_way = deque(note for note in self._under_way if frozenset(note[:2]) != pair)
        for node, peer in ((one, other), (other, one)):
            for listener in node.member.on_link_lost:
                listener(peer.incarnation)

    def mend(self, one: Node, other: Node) -> None:
        self._cut.discard(frozenset((one.incarnation, other.incarnation)))
        for node, peer in ((one, other), (other, one)):
            if peer.is_core:
                for listener in node.member.on_core_linked:
                    listener(peer.incarnation)

    def move(self, slots: Iterable[int], owner: Node | None) -> None:
        """By one entry of the log, which all nodes see in the same turn."""
        self.epoch += 1
        moved = dict.fromkeys(slots, "" if owner is None else owner.incarnation)
        for slot, to in moved.items():
            self.owners[slot] = to
        for node in self.nodes.values():
            self.tell(node, moved)

    def tell(self, node: Node, owners: dict[int, str]) -> None:
        """What one node's table says of these slots."""
        for slot, owner in owners.items():
            node.member.slots.put(slot, owner, None)
        node.member.slots.entry_applied(StreamId(0, self.epoch))

    async def lose_node(self, lost: Node) -> None:
        """It crashes, and is purged."""
        del self.nodes[lost.incarnation]
        await lost.rpc.stop()
        self.purge(lost)

    def rename(self, node: Node, incarnation: str) -> None:
        """It was purged, and is a member again."""
        del self.nodes[node.incarnation]
        self.members.discard(node.incarnation)
        node.incarnation = node.member.incarnation = incarnation
        self.nodes[incarnation] = node
        self.members.add(incarnation)

    def purge(self, gone: Node) -> None:
        """Its links may be up."""
        self.members.discard(gone.incarnation)
        for node in self.nodes.values():
            for listener in node.member.on_node_gone:
                listener(gone.incarnation)

    async def settle(self) -> None:
        """Until all that can come has come."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
            held: deque[tuple[str, str, str, bytes]] = deque()
            while self._under_way:
                sender, to, method, body = note = self._under_way.popleft()
                if method in self.holds:
                    held.append(note)
                elif to in self.nodes:
                    self._bring(sender, self.nodes[to].member, method, body)
            self._under_way.extend(held)

    @staticmethod
    def _bring(sender: str, to: Member, method: str, body: bytes) -> None:
        if method == DELIVERY:
            to.on_received(sender, body)
        else:
            to.handlers[method](sender, body)


def _nobody(incarnation: str, body: bytes) -> None:
    raise AssertionError("nobody takes deliveries")
