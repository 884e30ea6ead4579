"""An owner over one Redis, with the node and the network around it; its one client, `ID`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import cast

from flockmq import bounds
from flockmq.clock import Clock
from flockmq.durable.router import DurableRouter
from flockmq.durable.session_service import SessionService
from flockmq.membership.slot_table import SlotTable
from flockmq.mqtt.message import Publish, Will, publication
from flockmq.quotas import Quotas, Usage
from flockmq.routing.message_id import node_source
from flockmq.routing.router import Router
from flockmq.routing.sink import Sink, SinkHost
from flockmq.routing.slots import SlotMessage, SlotPeers, slot_of
from flockmq.routing.subscriber import Subscription
from flockmq.routing.targets import SlotDispatcher
from flockmq.session.limits import Limits
from flockmq.session.remote_session import SETTLED
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import PendingWill
from flockmq.session_rpc.ports import Attach
from flockmq.telemetry.counters import Counters
from unit.broker.durable.redis import Disk, Redis
from unit.broker.protocol.harness import publish, split

ID = b"client"
SLOT = slot_of(ID)
REPLICANT = "replicant-0@1"
SENDER = "replicant-1@1"
SOURCE = node_source(SENDER)


def request(
    nonce: int = 1, *, clean: bool = False, expiry_s: int = 60, will: Will | None = None
) -> messages.SessionRequest:
    row = (
        None
        if will is None
        else messages.WillRow(will.delay_s, will.message.version, will.message.packet, will.authorization)
    )
    return messages.SessionRequest(4, clean, expiry_s, 32, 0, "default", nonce.to_bytes(8, "big"), row)


def will() -> Will:
    return Will(publication(4, 1, False, b"w", b"gone", b""), 0)


class Dispatcher(SlotDispatcher):
    """Keeps what is dealt out to slots."""

    __slots__ = ("shared",)

    def __init__(self) -> None:
        super().__init__()
        self.shared: list[tuple[int, bytes]] = []

    def put_shared(
        self, slot: int, version: int, chunk: bytes, on_accepted: Callable[[], None], origin: bytes = b""
    ) -> bool:
        self.shared.append((slot, chunk))
        return True


class Machine:
    """Its clock, which stands until it is put forward."""

    def __init__(self, booted_ago_s: float = 1e4, wall_s: float = 1e9) -> None:
        self._since_boot_s = booted_ago_s
        self._wall_s = wall_s
        self.clock = Clock(lambda: self._since_boot_s, lambda: self._wall_s)

    def forward(self, by_s: float) -> None:
        self._since_boot_s += by_s
        self._wall_s += by_s

    def next(self, after_s: float) -> Machine:
        """Another one, so much later, 10 s after it booted."""
        return Machine(10.0, self._wall_s + after_s)


class Owner:
    """Sessions with the node and the network around them: `host`, `owners` and `store` in one."""

    def __init__(self, redis: Redis, incarnation: str, epoch: int, machine: Machine | None = None) -> None:
        self.incarnation = incarnation
        self.epoch = epoch
        self.turn: list[Sink] = []
        router = Router(SinkHost(Counters()), 1 << 20)
        self.dispatcher = Dispatcher()
        self.slot_peers = SlotPeers(self.dispatcher)
        self.router = DurableRouter(router, self.slot_peers)
        self.disk = Disk(redis)
        self.machine = machine or Machine()
        self.service = SessionService(self, self, self.disk, self.router, self.machine.clock)
        self.delivered: list[tuple[str, int, bytes]] = []
        self.overflown: list[tuple[str, bytes, int]] = []
        self.asked_again: list[int] = []
        """Slots of which every node is to say what it has."""
        self.congestion_reports: list[tuple[int, bool]] = []
        self.took: list[tuple[int, bool, list[bytes]]] = []
        self.left: list[PendingWill] = []
        self.published: list[Publish] = []
        self.accepted: list[Callable[[], None]] = []
        self.awaiting_retained: list[tuple[Subscription, bool]] = []
        self.banned: set[tuple[bytes, bytes | None]] = set()
        self.linked = True
        self.connected: set[bytes] = set()
        self.routed: list[tuple[int, bytes]] = []
        self.came: list[tuple[int, bytes, list[bytes]]] = []
        self.changes = 0
        self.alarms: dict[int, str] = {}
        self.nodes = [REPLICANT, SENDER]
        self.zones: dict[str, Limits] = {}
        self.quotas = Quotas()
        self.is_sure = True
        """No other core may own its slots."""
        self.knows = True
        """All nodes know of the nonces of SUBSCRIBEs."""

    # What a host is.

    @property
    def slots(self) -> SlotTable:
        return cast(SlotTable, SimpleNamespace(epoch=self.epoch))

    def floor(self, slot: int) -> int:
        return self.epoch << 58 | slot

    def has_authors(self) -> bool:
        return True

    def may_do_what_is_due(self) -> bool:
        return self.is_sure

    def members(self) -> Collection[str]:
        return self.nodes

    def limits(self, zone: str) -> Limits:
        return self.zones.get(zone, Limits())

    def usage(self, user: bytes | None) -> Usage | None:
        return None if user is None else self.quotas.of(user)

    def publish(self, left: PendingWill, accepted: Callable[[], None]) -> None:
        if (left.client_id, left.user) in self.banned:
            accepted()
            return
        self.left.append(left)
        self.published.append(left.will.message)
        self.accepted.append(accepted)

    def session_ended(self, client_id: bytes) -> None: ...

    def alarm(self, slot: int, text: str, *, is_ours: bool = True) -> None:
        self.alarms[slot] = text

    def changed(self) -> None:
        self.changes += 1

    def flush_soon(self) -> None:
        while self.router.turn:
            sink = self.router.turn.pop(0)
            sink.dirty = False
            sink.flush()

    def soon(self, call: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_soon(call)

    def claim(
        self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None], user: bytes
    ) -> None:
        done({})

    def release(self, client_id: bytes, filters: list[bytes]) -> None: ...

    def route_slot(self, slot: int, filters: list[bytes], done: Callable[[int], None], user: bytes) -> None:
        self.routed += [(slot, filter) for filter in filters]
        done(0)

    def unrouted_slot(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        self.routed = [row for row in self.routed if row not in [(slot, filter) for filter in filters]]

    def filters_loaded(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        self.came.append((slot, client_id, filters))

    def slot_gone(self, slot: int) -> None: ...

    def knows_subscribes(self) -> bool:
        return self.knows

    def see_retained(self, then: Callable[[bool], None]) -> None:
        then(True)

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self.awaiting_retained += [(subscription, saw_all) for subscription in subscriptions]

    # What owners are.

    def deliver(self, incarnation: str, token: int, packets: bytes) -> None:
        self.delivered.append((incarnation, token, packets))

    def overflow(self, incarnation: str, client_id: bytes, token: int) -> None:
        self.overflown.append((incarnation, client_id, token))
        if incarnation == self.incarnation:
            self.service.leave(client_id, token, 60, True)

    def congested(self, slot: int, is_congested: bool) -> None:
        self.congestion_reports.append((slot, is_congested))

    def report_memory(self, slot: int, members_accept: bool, filters: list[bytes]) -> None:
        self.took.append((slot, members_accept, filters))

    def loaded(self, slot: int) -> None: ...

    def retaken(self, slot: int) -> None:
        self.asked_again.append(slot)

    def is_linked(self, incarnation: str) -> bool:
        return self.linked

    def is_connected(self, client_id: bytes) -> bool:
        return client_id in self.connected

    # What tests do.

    async def own(self, *slots: int) -> None:
        for slot in slots:
            self.service.own(slot)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
            self.flush_soon()

    async def commit(self) -> None:
        self.disk.commit()
        await self.settle()

    def open(
        self,
        token: int,
        asked: messages.SessionRequest | None,
        client_id: bytes = ID,
        node: str = REPLICANT,
        *,
        confirms: bool = True,
    ) -> list[int | None]:
        """The flags that are answered, when they are. `confirms`: its node says that it sent CONNACK."""
        answers: list[int | None] = []

        def answered(flags: int | None) -> None:
            answers.append(flags)
            if confirms and flags is not None:
                self.service.report(node, token, b"")

        def again() -> None:
            self.service.open(attach)

        attach = Attach(client_id, node, token, asked, answered, again=again, nonce=messages.nonce_of(asked))
        self.service.open(attach)
        return answers

    def open_all(self, clients: Sequence[bytes], *, expiry_s: int = 60, will: Will | None = None) -> None:
        """Their connections have the tokens from 1 on."""
        for token, client_id in enumerate(clients, start=1):
            self.open(token, request(token, expiry_s=expiry_s, will=will), client_id)

    async def pass_turn(self) -> None:
        """One of the event loop."""
        await asyncio.sleep(0)
        self.flush_soon()

    def ask(self, token: int, question: messages.Question, number: int = 1, behind: int = 0) -> list[bytes]:
        answers: list[bytes] = []
        self.service.ask(ID, token, (number, behind), question, answers.append)
        return answers

    def subscribe(self, token: int, filter: bytes = b"a/#", qos: int = 1, nonce: bytes = b"") -> list[bytes]:
        return self.ask(token, messages.SubscribeQuestion([messages.WantedSubscription(filter, qos)], b"", nonce))

    def take(self, *numbers: int, epoch: int | None = None) -> list[bool]:
        """Messages with these numbers, whose payload they are; what the sender hears."""
        done: list[bool] = []
        slot_messages = [SlotMessage(SOURCE, n, b"", 4, publish(4, "a/b", str(n), qos=1, packet_id=9)) for n in numbers]
        self.service.intake.take(slot_messages, self.epoch if epoch is None else epoch, SENDER, done.append)
        return done

    def take_run(self, *payloads: str, topic: str = "a/b") -> None:
        """Of QoS 0."""
        run = b"".join([publish(4, topic, payload) for payload in payloads])
        self.service.intake.take_runs([SlotMessage(b"", 0, b"", 4, run)])

    def packets(self) -> list[bytes]:
        """For the client."""
        self.flush_soon()
        taken = [packet for _, _, chunk in self.delivered for packet in split(chunk) if packet[0] != SETTLED]
        self.delivered.clear()
        return taken

    def payloads(self) -> list[bytes]:
        return [packet[9:] for packet in self.packets()]

    def payloads_of_run(self) -> list[bytes]:
        return [packet[7:] for packet in self.packets()]


async def another(redis: Redis, machine: Machine | None = None) -> Owner:
    """The next owner of the slot."""
    made = Owner(redis, "core-1@1", 2, machine)
    await made.own(SLOT)
    return made


def clients_of_slot(count: int) -> list[bytes]:
    """Client ids of the same slot."""
    ids = (b"%d" % number for number in range(count * 10 * bounds.SLOTS))
    return list(islice((client_id for client_id in ids if slot_of(client_id) == SLOT), count))


def subscribed(owner: Owner, token: int = 1) -> None:
    owner.open(token, request(token))
    owner.subscribe(token)
    owner.packets()
