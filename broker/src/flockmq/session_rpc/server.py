"""Client ids and their homes: how a node's clients get theirs, and how this node, as a home, grants them.

    node of the connection                      home
       attach (what CONNECT asks for) ────────▶   the registry: one connection a client id; kicks an older one
                                                  the session, if it lasts: opened, durable
       ◀──────────────────────── answer (token)
       ◀──────────────────────────── deliveries   what the session sends
       report, ask ───────────────────────────▶   what the client answers, subscribes to
       ◀──────────────── told; settled, amid deliveries, when it is durable
       detach ────────────────────────────────▶

Where this node is the home itself all of that is a call, not a note. What always holds:
- A kicked connection's node answers with a detach when it is gone, at once if it never had it; who waits for it is
  admitted then, or when its node was purged, or after KICK_WAIT_S, or KICK_UNLINKED_S without a link to that node. If
  such a node is back it registers the older connection, and is told that it is to go.
- A home that was just given a slot admits nobody before it has the slot's sessions, and one that may have been
  purged admits nobody: its slots may be another's.
- A home hears of connections from members only: who isn't one asks again, and what it registers waits until it is.
- A will of a session that is at its node is kept here (clean_session_wills.py), and published when the node was purged.
- A client id is its user's while there is a connection or a session of it: another user's attach is refused before it
  has any effect.
- Who wants to put more into a store that is full is refused at once; so is who would wait for it with too many others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from flockmq import bounds, tasks
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import CleanSessionWills, Left
from flockmq.session_rpc.client import Answered, ClientConnections, Done, SessionRpcClient
from flockmq.session_rpc.client_registry import ClientRegistry, Kick
from flockmq.session_rpc.early_notes import EarlyNotes
from flockmq.session_rpc.outbox import Outbox
from flockmq.session_rpc.pending_attaches import Unloaded, Waiting
from flockmq.session_rpc.ports import Attach, ClusterPort, Nobody, PacketsPort, SessionServicePort

log: Final = logging.getLogger(__name__)

BEAT_S: Final = 0.1
SWEEP_S: Final = 1.0

Item = TypeVar("Item")


class SessionRpcServer:
    """`start` it with the cluster, before clients come; a core sets `residents` before."""

    def __init__(self, cluster: ClusterPort, packets: PacketsPort, clients: ClientConnections) -> None:
        self.registry = ClientRegistry()
        self.residents: SessionServicePort = Nobody()
        self.on_crowd: Callable[[int, bool], None] = _nobody_publishes
        """Hears what homes say of their slots, again and again while it holds."""
        self.on_takers: Callable[[int, bool, list[bytes]], None] = _nobody_refuses
        """Hears which sessions of a slot take at once what comes (`takers`)."""
        self.on_will: Callable[[Left], None] = _nobody_hears
        """Publishes the will of a session whose node is gone."""
        self.guests = CleanSessionWills()
        # Tests shorten these: what is compiled has constants built in.
        self.beat_s: float = BEAT_S
        self.sweep_s: float = SWEEP_S
        self.kick_wait_s: float = bounds.KICK_WAIT_S
        self.kick_unlinked_s: float = bounds.KICK_UNLINKED_S
        self._cluster = cluster
        self._packets = packets
        self._me = cluster.incarnation
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        self._asking = SessionRpcClient(self, clients)
        self._outbox = Outbox(cluster, packets.send, self._asking.untold, self._link_lost)
        self._waiting: dict[int, Waiting] = {}
        self._unloaded = Unloaded()
        self._early = EarlyNotes(self._loop.time)
        self._mourned: list[Iterator[list[Left]]] = []
        """Of nodes that were purged: their wills, a slot a step."""
        self._mourning = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._takes: dict[str, Callable[[str, Any], None]] = {}
        """What is done with an item of a note: its decoder gave it its form."""

    def start(self) -> None:
        cluster = self._cluster
        self._hear_notes()
        self._packets.on_came = self._delivered
        cluster.on_node_gone.append(self._node_gone)
        cluster.on_slot.append(self._slot_moved)
        cluster.on_core_linked.append(self._core_linked)
        cluster.on_link_lost.append(self._link_lost)
        for slot, owner in cluster.slots.items():
            self._slot_moved(slot, owner)
        self._tasks = [
            tasks.vital(self._beat(), "home-beat"),
            tasks.vital(self._mourn(), "home-mourn"),
            tasks.vital(self._sweep(), "home-sweep"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._asking.stop()
        self._outbox.stop()

    def rename(self, me: str) -> None:
        """This node is another incarnation: no slot is its own, and every home is told anew who is connected here. Its
        table may say for a while that the former one has slots, when others know already that they are this one's: what
        they say of those waits for the table.
        """
        self._me = me
        for slot in self.registry.slots():
            self._let_go(slot)
        self._asking.slots_moved(self._cluster.slots.keys())

    @property
    def attaching(self) -> int:
        """Connections of this node whose home has not answered yet."""
        return len(self._asking)

    def dropped(self) -> tuple[tuple[str, int], ...]:
        """Notes that found no room, and why: they are said again when there is."""
        return ("unloaded", self._early.dropped), ("unlinked", self._outbox.dropped)

    # --- for the node's own clients ---------------------------------------------------------------------------------

    def register_wills(self) -> None:
        """Homes understand from now on that they are to keep the wills of sessions that are at their nodes."""
        self._asking.register_wills()

    def attach(self, client_id: bytes, opening: messages.Opening | None, done: Done) -> None:
        """Make this node's new connection the one that holds the client id. `opening`: what it asks for, where it wants
        a session that lasts, or one that may be there, or has a will, or a user; None: any that is there ends.
        """
        self._asking.attach(client_id, opening, done)

    def detach(
        self, client_id: bytes, token: int, expiry_s: int = -1, *, with_will: bool = False, nonce: bytes = b""
    ) -> None:
        """An attached connection is gone; `expiry_s`: its DISCONNECT said so; `nonce`: its opening's."""
        self._asking.detach(client_id, token, expiry_s, with_will, nonce)

    def report(self, client_id: bytes, token: int, pairs: bytes) -> None:
        self._asking.report(client_id, token, pairs)

    def ask(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None:
        self._asking.ask(client_id, token, question, answered)

    def owner(self, slot: int) -> str:
        return self._cluster.slots.get(slot, "")

    # --- for the sessions that run here -----------------------------------------------------------------------------

    def deliver(self, incarnation: str, token: int, packets: bytes) -> None:
        """Send to a client of a session that runs here."""
        if incarnation == self._me:
            self._clients.delivered(self._me, token, packets)
        else:
            self._outbox.deliver(incarnation, token, packets)

    def overflow(self, incarnation: str, client_id: bytes, token: int) -> None:
        """The session found no room: its connection must not go on as if it had got everything."""
        self.say(incarnation, messages.OVERFLOW, (client_id, messages.pack_token(token)))

    def crowd(self, slot: int, is_crowded: bool) -> None:
        """For a session of the slot more waits than it takes, or not any more: all nodes are told."""
        self._say_to_all(messages.CROWD, (slot, is_crowded))

    def takers(self, slot: int, members_take: bool, filters: list[bytes]) -> None:
        """Redis is short of memory: what of the slot's sessions would wait."""
        self._say_to_all(messages.TAKERS, (slot, members_take, filters))

    def _say_to_all(self, method: str, item: object) -> None:
        for incarnation in self._cluster.nodes_table:
            if self.is_linked(incarnation):
                self.say(incarnation, method, item)

    def loaded(self, slot: int) -> None:
        """The slot's sessions are here: whoever left is gone, whoever waited goes on."""
        self._hear(slot)
        for waiting in self._unloaded.take(slot):
            self._admit(waiting)
        self._ask_again(slot)

    def retaken(self, slot: int) -> None:
        """Once its sessions are here, every node is to say what it has of the slot."""
        for incarnation in dict.fromkeys((self._me, *self._cluster.nodes_table)):
            if self.is_linked(incarnation):
                self._early.miss(slot, incarnation)

    def _hear(self, slot: int) -> None:
        for note in self._early.take(slot):
            if self._is_heard(slot, note.incarnation):
                self._take(note.incarnation, note.method, note.item)
            else:
                self._early.put_back(slot, note)

    def _ask_again(self, slot: int) -> None:
        for incarnation in self._early.missed(slot, self._is_heard):
            self.say(incarnation, messages.AGAIN, slot)

    # --- notes ------------------------------------------------------------------------------------------------------

    def floor(self, slot: int) -> int:
        """Above the tokens of all connections that came before this core was the slot's home, and below the others."""
        return self.registry.floor(slot, self._cluster.epoch())

    def waits(self, owner: str) -> bool:
        """Without a link, what is to be said once there is one may wait for long, and holds up nobody."""
        return owner != self._me and self._cluster.is_linked(owner) and self._outbox.waits(owner)

    def say(self, to: str, method: str, item: object) -> None:
        if to == self._me:
            self._take(self._me, method, item)
        else:
            self._outbox.put(to, method, item)

    def _hear_notes(self) -> None:
        self._on_note(messages.ATTACH, messages.decode_attaches, self._take_attach)
        self._on_note(messages.ANSWER, messages.decode_answers, self._take_answer)
        self._on_note(messages.KICK, messages.decode_clients, self._take_kick)
        self._on_note(messages.OVERFLOW, messages.decode_clients, self._take_overflow)
        self._on_note(messages.DETACH, messages.decode_detaches, self._take_detach)
        self._on_note(messages.REGISTER, messages.decode_registers, self._take_register)
        self._on_note(messages.REPORT, messages.decode_reports, self._take_report)
        self._on_note(messages.ASK, messages.decode_asks, self._take_question)
        self._on_note(messages.TOLD, messages.decode_tolds, self._take_told)
        self._on_note(messages.AGAIN, messages.decode_slots, self._take_again)
        self._on_note(messages.CROWD, messages.decode_crowds, self._take_crowd)
        self._on_note(messages.TAKERS, messages.decode_takers, self._take_takers)

    def _on_note(
        self, method: str, decode: Callable[[bytes], Sequence[Item]], take: Callable[[str, Item], None]
    ) -> None:
        self._takes[method] = take
        self._cluster.on_note(method, partial(self._came, method, decode))

    def _came(self, method: str, decode: Callable[[bytes], Sequence[object]], incarnation: str, body: bytes) -> None:
        for item in decode(body):
            self._take(incarnation, method, item)

    def _take(self, incarnation: str, method: str, item: object) -> None:
        try:
            self._takes[method](incarnation, item)
        except Exception:  # the link, the others in the note, and whoever said it here, have no part in it
            log.exception("what %s said could not be done: %s", incarnation, method)

    def _delivered(self, incarnation: str, body: bytes) -> None:
        for token, packets in messages.deliveries(body):
            self._clients.delivered(incarnation, token, packets)

    def _take_attach(self, incarnation: str, item: messages.Attach) -> None:
        self._attach_here(incarnation, *item)

    def _take_answer(self, _: str, item: messages.Answer) -> None:
        number, status, token, flags = item
        self._asking.answered(number, status, messages.unpack_token(token), flags)

    def _take_kick(self, incarnation: str, item: messages.ClientToken) -> None:
        client_id, token = item
        self._asking.kicked(incarnation, client_id, messages.unpack_token(token))

    def _take_overflow(self, _: str, item: messages.ClientToken) -> None:
        client_id, token = item
        self._clients.overflow(client_id, messages.unpack_token(token))

    def _take_detach(self, incarnation: str, item: messages.Detach) -> None:
        client_id, token, expiry_s, with_will, nonce = item
        slot = slot_of(client_id)
        if not self._hears(slot, incarnation):
            self._early.put(slot, incarnation, messages.DETACH, item)
        self._detach_here(client_id, messages.unpack_token(token), expiry_s, with_will, nonce)

    def _take_register(self, incarnation: str, item: messages.Register) -> None:
        self._register_here(incarnation, *item)

    def _take_report(self, incarnation: str, item: messages.Report) -> None:
        token, pairs = item
        self.residents.report(incarnation, messages.unpack_token(token), pairs)

    def _take_question(self, incarnation: str, item: messages.Ask) -> None:
        number, behind, client_id, token, question = item
        answer = partial(self._tell, incarnation, number)
        self.residents.ask(client_id, messages.unpack_token(token), (number, behind), question, answer)

    def _take_told(self, _: str, item: messages.Told) -> None:
        self._asking.told(*item)

    def _take_again(self, _: str, slot: messages.Again) -> None:
        self._asking.slots_moved([slot])

    def _take_crowd(self, incarnation: str, item: messages.Crowd) -> None:
        slot, is_crowded = item
        if self.owner(slot) == incarnation:
            self.on_crowd(slot, is_crowded)

    def _take_takers(self, incarnation: str, item: messages.Takers) -> None:
        slot, members_take, filters = item
        if self.owner(slot) == incarnation:
            self.on_takers(slot, members_take, filters)

    def _tell(self, incarnation: str, number: int, answer: bytes) -> None:
        self.say(incarnation, messages.TOLD, (number, answer))

    # --- as a home --------------------------------------------------------------------------------------------------

    def _attach_here(self, incarnation: str, number: int, client_id: bytes, opening: messages.Opening | None) -> None:
        if not self.registry.owns(slot_of(client_id)) or not self._may_attach(incarnation):
            self.say(incarnation, messages.ANSWER, (number, messages.NOT_HOME, b"", 0))
            return
        attached = self.registry.attach(client_id, incarnation, self._cluster.epoch(), messages.user_of(opening))
        if attached is None:
            self.say(incarnation, messages.ANSWER, (number, messages.ANOTHERS, b"", 0))
            return
        waiting = Waiting(client_id, incarnation, number, opening, attached.token)
        if attached.admitted:
            self._admit_member(waiting)
            return
        assert attached.kick is not None
        waiting.kick = attached.kick
        waiting.deadline = self._loop.time() + self.kick_wait_s
        self._waiting[attached.token] = waiting
        if attached.superseded is None:
            self._kick(attached.kick)
            return
        superseded = attached.superseded[1]
        if superseded in self._waiting:
            waiting.deadline = self._waiting[superseded].deadline  # of the same kick
        self._refuse(superseded, messages.SUPERSEDED)

    def _may_attach(self, incarnation: str) -> bool:
        """A purged node may still be linked, and may not know yet."""
        return self._cluster.is_surely_member and (incarnation == self._me or incarnation in self._cluster.nodes_table)

    def _admit(self, waiting: Waiting) -> None:
        """It waited until now, and its node, or this one, may have been purged meanwhile."""
        if self._may_attach(waiting.incarnation):
            self._admit_member(waiting)
        else:
            self._turn_away(waiting, messages.NOT_HOME)

    def _admit_member(self, waiting: Waiting) -> None:
        if self.residents.has_loaded(waiting.slot()):
            self._open_alone(waiting)
        elif not self._unloaded.put(waiting):
            self._turn_away(waiting, messages.FULL)

    def _turn_away(self, waiting: Waiting, status: int) -> None:
        self._answer(waiting, status)
        self._free(waiting.client_id, waiting.token)

    def _open(self, waiting: Waiting) -> None:
        answer = partial(self._admitted, waiting)
        opening = None if waiting.opening is None or messages.is_guest(waiting.opening) else waiting.opening
        user = messages.user_of(waiting.opening)
        again = partial(self._open_again, waiting)
        attach = Attach(waiting.client_id, waiting.incarnation, waiting.token, opening, answer, user, again)
        status = self.residents.open(attach)
        if status != messages.ADMITTED:
            self._turn_away(waiting, status)

    def _open_alone(self, waiting: Waiting) -> None:
        try:
            self._open(waiting)
        except Exception:  # the others that are admitted with it have no part in it
            log.exception("the session of %r could not be opened", waiting.client_id)

    def _open_again(self, waiting: Waiting) -> None:
        """It waited, and its slot may have moved meanwhile."""
        if self.registry.holds(waiting.client_id, waiting.incarnation, waiting.token):
            self._admit(waiting)

    def _admitted(self, waiting: Waiting, flags: int | None) -> None:
        client_id, incarnation = waiting.client_id, waiting.incarnation
        if flags is None:
            self._answer(waiting, messages.SUPERSEDED)
            return
        if (
            waiting.opening is not None
            and not flags & messages.LASTS
            and self.registry.holds(client_id, incarnation, waiting.token)
        ):
            self.guests.keep(client_id, incarnation, waiting.token, waiting.opening)
        if waiting.kick is not None:
            flags &= ~messages.ABSENT
        token = messages.pack_token(waiting.token)
        self.say(waiting.incarnation, messages.ANSWER, (waiting.number, messages.ADMITTED, token, flags))

    def _refuse(self, token: int, status: int) -> None:
        if (waiting := self._waiting.pop(token, None)) is not None:
            self._answer(waiting, status)

    def _answer(self, waiting: Waiting, status: int) -> None:
        """It isn't admitted."""
        self.say(waiting.incarnation, messages.ANSWER, (waiting.number, status, b"", 0))

    def _detach_here(self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes) -> None:
        slot = slot_of(client_id)
        waiting = self._waiting.pop(token, None)
        if (unloaded := self._unloaded.end(slot, token)) is not None:  # a newer one had it kicked: nobody else knew it
            self._answer(unloaded, messages.SUPERSEDED)
        self.guests.drop(slot, token)
        if waiting is None:
            self.residents.leave(client_id, token, expiry_s, with_will, nonce)
        self._free(client_id, token)

    def _free(self, client_id: bytes, token: int) -> None:
        """The token holds nothing any more: who waited for it is admitted."""
        admitted = self.registry.detach(client_id, token)
        if admitted is not None and (next_one := self._waiting.pop(admitted[1], None)) is not None:
            self._admit(next_one)

    def _kick(self, kick: Kick) -> None:
        self.say(kick.incarnation, messages.KICK, (kick.client_id, messages.pack_token(kick.token)))

    def _register_here(
        self, incarnation: str, client_id: bytes, raw: bytes, opening: messages.Opening | None, pairs: bytes
    ) -> None:
        slot, token, user = slot_of(client_id), messages.unpack_token(raw), messages.user_of(opening)
        if not self._hears(slot, incarnation):
            if self.registry.has_newer(client_id, token, user):  # whatever else is heard of it, it has to go
                self._kick(Kick(incarnation, client_id, token))
            else:
                self._early.put(slot, incarnation, messages.REGISTER, (client_id, raw, opening, pairs))
            return
        if self.residents.is_anothers(client_id, user):
            self._kick(Kick(incarnation, client_id, token))
            return
        kick = self.registry.register(client_id, incarnation, token, user)
        if kick is not None:
            self._kick(kick)
        if (outsider := self.registry.others_waiting(client_id, user)) is not None:
            self._refuse(outsider[1], messages.ANOTHERS)
        if opening is None or (kick is not None and kick.token == token):
            return
        if messages.is_guest(opening):
            self.guests.keep(client_id, incarnation, token, opening)
            return
        if not self.residents.resume(client_id, incarnation, token, opening, pairs):
            self._kick(Kick(incarnation, client_id, token))

    def _hears(self, slot: int, incarnation: str) -> bool:
        """What it says of the slot can be done, behind what was said of it before and had to wait."""
        if not self.residents.has_loaded(slot) or not self._is_heard(slot, incarnation):
            return False
        if self._early.has(slot):
            self._hear(slot)
        return True

    def _is_heard(self, slot: int, incarnation: str) -> bool:
        """What it says of the slot is this core's to hear."""
        is_member = incarnation == self._me or incarnation in self._cluster.nodes_table
        return is_member and self.registry.owns(slot)

    # --- changes ----------------------------------------------------------------------------------------------------

    def _slot_moved(self, slot: int, owner: str) -> None:
        if owner == self._me:
            if not self.registry.owns(slot):
                self.registry.own(slot)
                self.residents.own(slot)
        elif self.registry.owns(slot):
            self._let_go(slot)
        if owner:
            self._asking.slots_moved([slot])

    def _let_go(self, slot: int) -> None:
        tokens = [token for _, (_, token, _) in self.registry.disown(slot)]
        self.residents.disown(slot)
        self.guests.let_go(slot)
        for waiting in self._unloaded.take(slot):
            self._waiting[waiting.token] = waiting
            tokens.append(waiting.token)
        for token in tokens:
            self._loop.call_soon(self._refuse, token, messages.NOT_HOME)

    def _node_gone(self, incarnation: str) -> None:
        self._outbox.forget(incarnation)
        self._early.node_gone(incarnation)
        self.residents.node_gone(incarnation)
        self._mourned.append(self.guests.node_gone(incarnation))
        self._mourning.set()
        self._unloaded.node_gone(incarnation)
        for token in [token for token, waiting in self._waiting.items() if waiting.incarnation == incarnation]:
            del self._waiting[token]
        for _, (_, token, _) in self.registry.node_gone(incarnation):
            if (waiting := self._waiting.pop(token, None)) is not None:
                self._admit(waiting)

    def _core_linked(self, incarnation: str) -> None:
        """What was said before the link was lost may never have come."""
        slots = [slot for slot, owner in self._cluster.slots.items() if owner == incarnation]
        self._asking.core_linked(incarnation, slots)
        self._outbox.schedule()

    def _link_lost(self, incarnation: str) -> None:
        self._early.link_lost(incarnation)
        self.residents.cut(incarnation)

    def is_linked(self, incarnation: str) -> bool:
        return incarnation == self._me or self._cluster.is_linked(incarnation)

    # --- time -------------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.beat_s)
            try:
                self._beat_once(self._loop.time())
            except Exception:
                log.exception("a beat of the homes failed")

    def _beat_once(self, now: float) -> None:
        self._outbox.schedule()
        self._asking.beat(now)
        self.residents.beat()
        for slot in self._early.slots():
            if self.residents.has_loaded(slot):
                self._hear(slot)
        for slot in self._early.missed_slots():
            if self.residents.has_loaded(slot):
                self._ask_again(slot)
        for waiting in self._waiting.values():
            if waiting.kick and not self.is_linked(waiting.kick.incarnation):
                waiting.deadline = min(waiting.deadline, now + self.kick_unlinked_s)
        for waiting in [waiting for waiting in self._waiting.values() if waiting.kick and waiting.deadline <= now]:
            assert waiting.kick is not None
            self._kicked_in_vain(waiting, waiting.kick)

    def _kicked_in_vain(self, waiting: Waiting, kick: Kick) -> None:
        """The older one is taken for gone, and its will is published; but one that was asked for by the same CONNECT,
        the answer to which was lost, never was there."""
        log.warning("%s did not close %r in time", kick.incarnation, waiting.client_id)
        will = self.guests.take(waiting.slot(), kick.token, but_of=messages.nonce_of(waiting.opening))
        if will is not None:  # before what its client publishes now
            self.on_will(will)
        with_will = not self.residents.was_asked_by(waiting.client_id, waiting.opening)
        self._detach_here(waiting.client_id, kick.token, -1, with_will, b"")

    async def _mourn(self) -> None:
        """Publish the wills that purged nodes left, a slot a turn."""
        while True:
            await self._mourning.wait()
            self._mourning.clear()
            while self._mourned:
                for wills in self._mourned.pop(0):
                    for will in wills:
                        self.on_will(will)
                    await asyncio.sleep(0)

    async def _sweep(self) -> None:
        """Free what purged nodes held, a little at a time, and what was said of slots that never came here."""
        while True:
            await asyncio.sleep(self.sweep_s)
            try:
                self._early.sweep(self._is_heard, self.is_linked)
                for _ in self.registry.sweep():
                    await asyncio.sleep(0)
            except Exception:
                log.exception("what purged nodes held could not be freed; it is tried again")


def _nobody_hears(left: Left) -> None:
    """Until the node is put together."""


def _nobody_publishes(slot: int, is_crowded: bool) -> None:
    """Until the node is put together."""


def _nobody_refuses(slot: int, members_take: bool, filters: list[bytes]) -> None:
    """Until the node is put together."""
