"""How a node asks for client ids, and how a core grants them: the registry with its links and its timers.

`attach` answers through a callback, because the usual cases must be cheap: where this node is the home it is called
before `attach` returns; elsewhere all CONNECTs of one turn travel in one note. What always holds:
- `done` is called exactly once: with the token, or with an AttachError; within ATTACH_WAIT_S and a beat, counted anew
  when the slot moves.
- A kicked connection's node answers with a detach when it is gone, at once if it never had it; who waits for it is
  admitted then, or when its node was purged, or after KICK_WAIT_S.
- An answer that was lost costs nothing but time: the request goes again under another number, and what the home holds
  for the lost one is kicked and found to be gone.
- After a slot moved each node registers its connections of that slot at the new home.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from flockmq import bounds
from flockmq.home import wire
from flockmq.home.registry import Attached, Kick, Registry, slot_of

log: Final = logging.getLogger(__name__)

BEAT_S: Final = 0.25


class AttachError(Exception):
    """Why the client id can't be had; the text is for the log."""


class HomeUnreachable(AttachError):
    """No home answered in time: CONNACK 0x88, the client may try again."""


class Superseded(AttachError):
    """A newer connection of the same client id took its place: 0x8E."""


Done = Callable[["int | AttachError"], None]


class Cluster(Protocol):
    """What homes need of `cluster.Cluster`."""

    incarnation: str
    on_node_gone: list[Callable[[str], None]]
    on_slot: list[Callable[[int, str], None]]
    on_core_linked: list[Callable[[str], None]]

    @property
    def slots(self) -> Mapping[int, str]: ...
    def epoch(self) -> int: ...
    def on_note(self, method: str, handler: Callable[[str, bytes], None]) -> None: ...
    def tell(self, incarnation: str, method: str, body: bytes) -> bool: ...


class Clients(Protocol):
    """The connections of this node."""

    def kick(self, client_id: bytes, token: int, to: str, clean: bool) -> bool:
        """Close this connection with 0x8E, hand its session over, and `detach` it; False when there is none."""
        ...

    def tokens(self) -> Iterable[tuple[bytes, int]]:
        """(client id, token) of all that are attached."""
        ...


class _Pending:
    """An attach that a home was asked for."""

    __slots__ = ("asked", "clean", "client_id", "deadline", "done")

    def __init__(self, client_id: bytes, clean: bool, done: Done, deadline: float) -> None:
        self.client_id = client_id
        self.clean = clean
        self.done = done
        self.deadline = deadline
        self.asked = ""
        """The core that was asked; "" when it must be asked (again)."""


class _Waiting:
    """An attach at this home, until the connection it waits for is gone."""

    __slots__ = ("answer", "client_id", "deadline", "kick")

    def __init__(self, client_id: bytes, kick: Kick, answer: Callable[[int, int], None], deadline: float) -> None:
        self.client_id = client_id
        self.kick = kick
        self.answer = answer
        self.deadline = deadline


class Homes:
    """`start` it with the cluster, before clients come."""

    def __init__(self, cluster: Cluster, clients: Clients) -> None:
        self.registry = Registry()
        self._cluster = cluster
        self._me = cluster.incarnation
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        self._last_number = 0
        self._pending: dict[int, _Pending] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._out: dict[tuple[str, str], list[object]] = {}
        self._flushing = False
        self._kicked: dict[bytes, int] = {}
        self._kicked_before: dict[bytes, int] = {}
        self._moved: set[int] = set()
        self._early: list[tuple[bytes, str, int]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._registering: asyncio.Task[None] | None = None
        self.on_relay: Callable[[str, bytes, bytes], None] = _unheard
        """(the node it comes from, client id, what it says)"""

    def start(self) -> None:
        cluster = self._cluster
        for method, handler in (
            (wire.ATTACH, self._attaches_came),
            (wire.ANSWER, self._answers_came),
            (wire.KICK, self._kicks_came),
            (wire.DETACH, self._detaches_came),
            (wire.REGISTER, self._registers_came),
            (wire.RELAY, self._relays_came),
        ):
            cluster.on_note(method, handler)
        cluster.on_node_gone.append(self._node_gone)
        cluster.on_slot.append(self._slot_moved)
        cluster.on_core_linked.append(self._core_linked)
        for slot, owner in cluster.slots.items():
            self._slot_moved(slot, owner)
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._sweep())]

    async def stop(self) -> None:
        tasks = [*self._tasks, *([self._registering] if self._registering else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def rename(self, me: str) -> None:
        """This node is another incarnation: every home is told anew who is connected here."""
        self._me = me
        self._moved.update(self._cluster.slots)
        self._begin_registering()

    @property
    def attaching(self) -> int:
        """Connections of this node whose home has not answered yet."""
        return len(self._pending)

    def relay(self, to: str, client_id: bytes, said: bytes) -> bool:
        """Say something about a client's session to another node, by way of its home. False: no home can be reached."""
        if to == self._me:
            self.on_relay(self._me, client_id, said)
            return True
        owner = self._cluster.slots.get(slot_of(client_id), "")
        by = to if owner == self._me else owner
        return bool(by) and self._cluster.tell(by, wire.RELAY, wire.encode([(to, self._me, client_id, said)]))

    def _relays_came(self, incarnation: str, body: bytes) -> None:
        for to, came_from, client_id, said in wire.decode_relays(body):
            if to == self._me:
                self.on_relay(came_from, client_id, said)
            else:
                self._cluster.tell(to, wire.RELAY, wire.encode([(to, came_from, client_id, said)]))

    # --- for the node's own clients ---------------------------------------------------------------------------------

    def attach(self, client_id: bytes, clean: bool, done: Done) -> None:
        """Make this node's new connection the one that holds the client id; `done` gets its token or an AttachError.

        `clean`: it wants nothing of an older session.
        """
        if self.registry.owns(slot_of(client_id)):
            self._attach_here(client_id, clean, self._me, partial(self._answer_local, client_id, clean, done))
        elif len(self._pending) >= bounds.ATTACHES_MAX:
            done(HomeUnreachable(f"{bounds.ATTACHES_MAX} attaches wait for their homes"))
        else:
            self._ask(_Pending(client_id, clean, done, self._loop.time() + bounds.ATTACH_WAIT_S))

    def detach(self, client_id: bytes, token: int) -> None:
        """An attached connection is gone, for whatever reason."""
        slot = slot_of(client_id)
        if self.registry.owns(slot):
            self._detach_here(client_id, token)
        elif owner := self._cluster.slots.get(slot, ""):
            self._put(owner, wire.DETACH, (client_id, wire.pack_token(token)))

    def _ask(self, pending: _Pending) -> None:
        self._last_number += 1
        self._pending[self._last_number] = pending
        owner = self._cluster.slots.get(slot_of(pending.client_id), "")
        pending.asked = owner
        if owner and owner != self._me:
            self._put(owner, wire.ATTACH, (self._last_number, pending.client_id, pending.clean))
        else:
            pending.asked = ""

    def _ask_again(self, numbers: Iterable[int]) -> None:
        """Under new numbers: an answer to the old ones means nothing any more."""
        for number in numbers:
            pending = self._pending.pop(number)
            if self.registry.owns(slot_of(pending.client_id)):
                answer = partial(self._answer_local, pending.client_id, pending.clean, pending.done)
                self._attach_here(pending.client_id, pending.clean, self._me, answer)
            else:
                self._ask(pending)

    def _answer_local(self, client_id: bytes, clean: bool, done: Done, status: int, token: int) -> None:
        if status == wire.ADMITTED:
            done(token)
        elif status == wire.SUPERSEDED:
            done(Superseded(f"a newer connection has the client id {client_id!r}"))
        else:
            self.attach(client_id, clean, done)

    # --- as a home --------------------------------------------------------------------------------------------------

    def _attach_here(self, client_id: bytes, clean: bool, incarnation: str, answer: Callable[[int, int], None]) -> None:
        attached: Attached = self.registry.attach(client_id, incarnation, self._cluster.epoch(), clean)
        if attached.admitted:
            answer(wire.ADMITTED, attached.token)
            return
        assert attached.kick is not None
        self._waiting[attached.token] = _Waiting(
            client_id, attached.kick, answer, self._loop.time() + bounds.KICK_WAIT_S
        )
        if attached.superseded is not None:
            self._answer(attached.superseded[1], wire.SUPERSEDED)
        else:
            self._kick(attached.kick)

    def _detach_here(self, client_id: bytes, token: int) -> None:
        self._waiting.pop(token, None)
        admitted = self.registry.detach(client_id, token)
        if admitted is not None:
            self._answer(admitted[1], wire.ADMITTED)

    def _answer(self, token: int, status: int) -> None:
        if (waiting := self._waiting.pop(token, None)) is not None:
            waiting.answer(status, token)

    def _answer_remote(self, incarnation: str, number: int, status: int, token: int) -> None:
        self._put(incarnation, wire.ANSWER, (number, status, wire.pack_token(token)))

    def _kick(self, kick: Kick) -> None:
        if kick.incarnation != self._me:
            self._put(kick.incarnation, wire.KICK, (kick.client_id, wire.pack_token(kick.token), kick.to, kick.clean))
        elif not self._clients.kick(kick.client_id, kick.token, kick.to, kick.clean):
            self._detach_here(kick.client_id, kick.token)

    # --- notes ------------------------------------------------------------------------------------------------------

    def _attaches_came(self, incarnation: str, body: bytes) -> None:
        for number, client_id, clean in wire.decode_attaches(body):
            answer = partial(self._answer_remote, incarnation, number)
            if self.registry.owns(slot_of(client_id)):
                self._attach_here(client_id, clean, incarnation, answer)
            else:
                answer(wire.NOT_HOME, 0)

    def _answers_came(self, incarnation: str, body: bytes) -> None:
        for number, status, raw_token in wire.decode_answers(body):
            pending = self._pending.get(number)
            if pending is None:
                continue
            if status == wire.NOT_HOME:
                pending.asked = ""
                continue
            del self._pending[number]
            token = wire.unpack_token(raw_token)
            kicked = max(self._kicked.get(pending.client_id, 0), self._kicked_before.get(pending.client_id, 0))
            overtaken = status == wire.ADMITTED and token <= kicked
            came = wire.SUPERSEDED if overtaken else status
            self._answer_local(pending.client_id, pending.clean, pending.done, came, token)

    def _kicks_came(self, incarnation: str, body: bytes) -> None:
        for client_id, raw_token, to, clean in wire.decode_kicks(body):
            token = wire.unpack_token(raw_token)
            if not self._clients.kick(client_id, token, to, clean):
                if len(self._kicked) < bounds.ATTACHES_MAX:
                    self._kicked[client_id] = max(token, self._kicked.get(client_id, 0))
                self._put(incarnation, wire.DETACH, (client_id, raw_token))

    def _detaches_came(self, incarnation: str, body: bytes) -> None:
        for client_id, raw_token in wire.decode_clients(body):
            self._detach_here(client_id, wire.unpack_token(raw_token))

    def _registers_came(self, incarnation: str, body: bytes) -> None:
        for client_id, raw_token in wire.decode_clients(body):
            self._register_here(client_id, incarnation, wire.unpack_token(raw_token))

    def _register_here(self, client_id: bytes, incarnation: str, token: int) -> None:
        if self.registry.owns(slot_of(client_id)):
            if (kick := self.registry.register(client_id, incarnation, token)) is not None:
                self._kick(kick)
        elif len(self._early) < bounds.REGISTERS_EARLY_MAX:
            self._early.append((client_id, incarnation, token))  # its node saw the slot's new row before this one

    # --- changes ----------------------------------------------------------------------------------------------------

    def _slot_moved(self, slot: int, owner: str) -> None:
        if owner == self._me:
            self.registry.own(slot)
        elif self.registry.owns(slot):
            for _, (_, token) in self.registry.disown(slot):
                self._loop.call_soon(self._answer, token, wire.NOT_HOME)
        if owner:
            self._moved.add(slot)
            self._begin_registering()

    def _begin_registering(self) -> None:
        if self._registering is None or self._registering.done():
            self._registering = asyncio.create_task(self._register())

    async def _register(self) -> None:
        """Tell new homes what this node has, in slices, until no slot is left."""
        while self._moved:
            await asyncio.sleep(0)
            moved, self._moved = self._moved, set()
            self._ask_again([n for n, pending in self._pending.items() if slot_of(pending.client_id) in moved])
            early, self._early = self._early, []
            for client_id, incarnation, token in early:
                self._register_here(client_id, incarnation, token)
            for count, (client_id, token) in enumerate(list(self._clients.tokens())):
                slot = slot_of(client_id)
                if slot in moved:
                    self._register_at(self._cluster.slots.get(slot, ""), client_id, token)
                if count % bounds.HOME_BATCH_MAX == 0:
                    await asyncio.sleep(0)

    def _register_at(self, owner: str, client_id: bytes, token: int) -> None:
        if owner == self._me:
            self._register_here(client_id, self._me, token)
        elif owner:
            self._put(owner, wire.REGISTER, (client_id, wire.pack_token(token)))

    def _node_gone(self, incarnation: str) -> None:
        for _, (_, token) in self.registry.node_gone(incarnation):
            self._answer(token, wire.ADMITTED)
        for key in [key for key in self._out if key[0] == incarnation]:
            del self._out[key]

    def _core_linked(self, incarnation: str) -> None:
        """What was asked before the link was lost may never have come."""
        self._ask_again([number for number, pending in self._pending.items() if pending.asked == incarnation])
        self._schedule()

    # --- sending ----------------------------------------------------------------------------------------------------

    def _put(self, incarnation: str, method: str, item: object) -> None:
        items = self._out.setdefault((incarnation, method), [])
        if len(items) < bounds.HOME_OUT_MAX:
            items.append(item)
        self._schedule()

    def _schedule(self) -> None:
        if self._out and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """One note a node and kind; what can't be told waits for a link, but attaches: those are asked again."""
        self._flushing = False
        for incarnation, method in sorted(self._out, key=lambda key: wire.ORDER.index(key[1])):
            notes = wire.batches(self._out[incarnation, method], bounds.HOME_BATCH_MAX)
            told = all(self._cluster.tell(incarnation, method, note) for note in notes)
            if told or method == wire.ATTACH:
                del self._out[incarnation, method]
            if not told and method == wire.ATTACH:
                for pending in self._pending.values():
                    if pending.asked == incarnation:
                        pending.asked = ""

    # --- time -------------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        rotated_at = self._loop.time()
        while True:
            await asyncio.sleep(BEAT_S)
            now = self._loop.time()
            if now - rotated_at > bounds.ATTACH_WAIT_S:
                rotated_at = now
                self._kicked_before, self._kicked = self._kicked, {}
            try:
                self._beat_once(now)
            except Exception:
                log.exception("a beat of the homes failed")

    def _beat_once(self, now: float) -> None:
        """Ask again what has no home yet, and end what waited too long."""
        self._schedule()
        self._ask_again([number for number, pending in self._pending.items() if not pending.asked])
        for number in [number for number, pending in self._pending.items() if pending.deadline <= now]:
            pending = self._pending.pop(number)
            pending.done(HomeUnreachable(f"the home of {pending.client_id!r} did not answer in time"))
        for waiting in [waiting for waiting in self._waiting.values() if waiting.deadline <= now]:
            log.warning("%s did not close %r in time", waiting.kick.incarnation, waiting.client_id)
            self._detach_here(waiting.client_id, waiting.kick.token)

    async def _sweep(self) -> None:
        """Free what purged nodes held, a little at a time."""
        while True:
            await asyncio.sleep(1.0)
            for _ in self.registry.sweep():
                await asyncio.sleep(0)


def _unheard(incarnation: str, client_id: bytes, said: bytes) -> None:
    log.error("%s said something about %r before anybody listened", incarnation, client_id)
