"""The node's side of session_rpc: requests client ids from their owners, and reports and registers connections there.

Invariants:
- `done` of an attach is called exactly once, with an Admission or an AttachError, within ATTACH_WAIT_S and a tick; the
  time restarts when the slot moves.
- A lost answer costs only time: the request is repeated under a new number. If the owner granted the lost request too,
  it kicks that one, and the node answers that there is no such connection.
- After a slot moved or a link to a core was lost, the node registers its connections at their owner, and reports again
  all acknowledgements that the owner hasn't settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, cast

import msgspec

from flockmq import bounds, tasks
from flockmq.default_callbacks import ignore
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Admission, Done, OwnerUnreachable, answer_of
from flockmq.session_rpc.notes import NOTE_BYTES, Notes
from flockmq.session_rpc.ports import ClientConnections, Registration, SessionProxies
from flockmq.session_rpc.questions import Questions

log: Final = logging.getLogger(__name__)

EVICTED_AGAIN_S: Final = 10.0
"""An EVICT that was sent less than this long ago may be lost with its owner or its link, so it is sent again. Later its
will may have been published."""
DETACHED_KEPT_S: Final = 60.0
"""A DETACH is kept, and sent again, this long: Redis may be away for half a minute, and what the slot's owner was told
meanwhile is lost with it."""


class _Pending:
    """An attach that waits for its owner's answer."""

    __slots__ = ("asked", "client_id", "deadline", "done", "request", "size_bytes")

    def __init__(self, client_id: bytes, request: messages.SessionRequest | None, done: Done, deadline: float) -> None:
        self.client_id = client_id
        self.request = request
        self.done = done
        self.deadline = deadline
        self.asked = ""
        """The core that was asked; "": it must be sent (again)."""
        self.size_bytes: Final = messages.size_of(client_id, request)
        """Counts towards ATTACHES_MAX_BYTES."""


class _Detached(msgspec.Struct, gc=False):
    """A connection that ended at `at`. `sent_at`: when its owner was told over an existing link; 0.0: not yet. The
    garbage collector doesn't track it: there may be 100,000."""

    at: float
    method: str
    item: messages.Detach | messages.Evict
    sent_at: float = 0.0

    def may_be_lost(self, now: float) -> bool:
        return self.method == messages.DETACH or not self.sent_at or self.sent_at > now - EVICTED_AGAIN_S

    def as_of(self, now: float) -> messages.Detach | messages.Evict:
        """The item to send at `now`: the remaining time for which the will is held back is shorter."""
        if self.method != messages.EVICT:
            return self.item
        client_id, token, expiry_s, nonce, hold_ms, clean_request = cast(messages.Evict, self.item)
        return client_id, token, expiry_s, nonce, max(0, hold_ms - round((now - self.at) * 1000)), clean_request


class SessionRpcClient:
    """One per node. `start` it before clients connect."""

    def __init__(self, notes: Notes, clients: ClientConnections, proxies: SessionProxies) -> None:
        self.on_congestion: Callable[[int, bool], None] = ignore
        """Called when an owner reports that a slot is, or is no longer, congested; repeated while it is."""
        self.on_memory_report: Callable[[int, bool, list[bytes]], None] = ignore
        """Called with memory reports of owners (`ProxyPort.report_memory`)."""
        self._notes = notes
        self._clients = clients
        self._proxies = proxies
        self._loop = asyncio.get_running_loop()
        self._questions = Questions(notes, clients.holds)
        self.owner = notes.owner
        self.ask = self._questions.ask
        self._last_number = 0
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._given_up: dict[int, tuple[bytes, bytes]] = {}
        """Requests that timed out: number → (client id, nonce). If the owner grants one later, the connection is
        detached, and a session that it created ends.
        """
        self._kicked: dict[bytes, int] = {}
        self._kicked_before: dict[bytes, int] = {}
        self._rotated_at = self._loop.time()
        self._detached: deque[_Detached] = deque()
        self._detached_of: dict[int, _Detached] = {}
        """The same by token."""
        self._moved: set[int] = set()
        self._registering: asyncio.Task[None] | None = None
        self._register_also: asyncio.Task[None] | None = None
        notes.on_unsent = self._unsent
        notes.delivered_here = proxies.delivered

    def start(self) -> None:
        notes = self._notes
        notes.on_note(messages.ANSWER, messages.decode_answers, self._take_answer)
        notes.on_note(messages.KICK, messages.decode_clients, self._take_kick)
        notes.on_note(messages.OVERFLOW, messages.decode_clients, self._take_overflow)
        notes.on_note(messages.REPLY, messages.decode_replies, self._questions.replied)
        notes.on_note(messages.AGAIN, messages.decode_slots, self._take_again)
        notes.on_note(messages.CONGESTED, messages.decode_congested, self._take_congested)
        notes.on_note(messages.MEMORY_REPORT, messages.decode_memory_reports, self._take_memory_report)

    async def stop(self) -> None:
        await tasks.end(self._registering, self._register_also)

    def __len__(self) -> int:
        """Number of attaches that wait for an owner's answer."""
        return len(self._pending)

    # --- requests of this node's connections
    # -----------------------------------------------------------------------------

    def attach(self, client_id: bytes, request: messages.SessionRequest | None, done: Done) -> None:
        """Make the new connection the holder of the client id. `request`: what it asks for; None: a clean session
        without a will and user, so any existing session ends.
        """
        if len(self._pending) >= bounds.ATTACHES_MAX or self._pending_bytes >= bounds.ATTACHES_MAX_BYTES:
            done(OwnerUnreachable(f"{len(self._pending)} attaches wait for their owners"))
        else:
            self._ask(_Pending(client_id, request, done, self._loop.time() + bounds.ATTACH_WAIT_S))

    def detach(
        self, client_id: bytes, token: int, expiry_s: int = -1, *, with_will: bool = False, nonce: bytes = b""
    ) -> None:
        """A connection that has a token ended. `expiry_s`: from its DISCONNECT. `nonce`: of its CONNECT."""
        item: messages.Detach = (client_id, messages.pack_token(token), expiry_s, with_will, nonce)
        self._gone(token, messages.DETACH, item)

    def evict(
        self,
        client_id: bytes,
        token: int,
        expiry_s: int,
        nonce: bytes,
        hold_s: float,
        clean_request: messages.SessionRequest | None,
    ) -> None:
        """As `detach`, for a client that this node told to reconnect to another node: the owner holds its will back for
        `hold_s`. `clean_request`: the `SessionRequest` of a clean session; else None.
        """
        item: messages.Evict = (
            client_id,
            messages.pack_token(token),
            expiry_s,
            nonce,
            round(hold_s * 1000),
            clean_request,
        )
        self._gone(token, messages.EVICT, item)

    def has_sent_evictions(self) -> bool:
        """True if every owner was told which wills it must hold back."""
        return all(detached.sent_at for detached in self._detached if detached.method == messages.EVICT)

    def _gone(self, token: int, method: str, item: messages.Detach | messages.Evict) -> None:
        self._questions.end_all(token)
        detached = _Detached(self._loop.time(), method, item)
        if len(self._detached) >= bounds.NOTES_WAITING_MAX:
            self._forget_first_detached()
        self._detached.append(detached)
        self._detached_of[token] = detached
        self._send_detached(detached)

    def report(self, client_id: bytes, token: int, pairs: bytes) -> None:
        """Report acknowledgements of the client; none confirm that the connection which created a durable session was
        admitted. If the slot has no owner, they are reported when it has one."""
        if owner := self._notes.owner(slot_of(client_id)):
            self._notes.send(owner, messages.REPORT, (messages.pack_token(token), pairs))

    def _ask(self, pending: _Pending) -> None:
        self._last_number += 1
        number = self._last_number
        self._pending[number] = pending
        self._pending_bytes += pending.size_bytes
        pending.asked = self._notes.owner(slot_of(pending.client_id))
        if pending.asked:
            self._notes.send(pending.asked, messages.ATTACH, (number, pending.client_id, pending.request))

    # --- notes from owners
    # -----------------------------------------------------------------------------------------------

    def hear_deliveries(self, incarnation: str, body: bytes) -> None:
        for token, packets in messages.deliveries(body):
            self._proxies.delivered(incarnation, token, packets)

    def _take_answer(self, incarnation: str, item: messages.Answer) -> None:
        number, status, raw, flags = item
        token = messages.unpack_token(raw)
        pending = self._pending.get(number)
        if pending is None:
            client_id, nonce = self._given_up.pop(number, (b"", b""))
            late = answer_of(client_id, status, token, flags)
            if client_id and isinstance(late, Admission):
                self.detach(client_id, token, 0 if late.begins else -1, nonce=nonce)
            return
        if status == messages.NOT_OWNER or self._notes.owner(slot_of(pending.client_id)) != incarnation:
            pending.asked = ""  # The former owner admits nobody: this connection would be registered at no other one.
            return
        self._take_pending(number)
        kicked = max(self._kicked.get(pending.client_id, 0), self._kicked_before.get(pending.client_id, 0))
        if status == messages.ADMITTED and token <= kicked:
            status = messages.SUPERSEDED
        pending.done(answer_of(pending.client_id, status, token, flags))

    def _take_kick(self, incarnation: str, item: messages.ClientToken) -> None:
        client_id, raw = item
        token = messages.unpack_token(raw)
        if not self._clients.kick(client_id, token):
            if len(self._kicked) < bounds.ATTACHES_MAX:
                self._kicked[client_id] = max(token, self._kicked.get(client_id, 0))
            if ended := self._detached_of.get(token):  # It may be lost, and with it that a will is due, or held back.
                self._notes.send(incarnation, ended.method, ended.as_of(self._loop.time()))
            else:
                self._notes.send(incarnation, messages.DETACH, (client_id, raw, -1, False, b""))

    def _take_overflow(self, _: str, item: messages.ClientToken) -> None:
        client_id, token = item
        self._clients.overflow(client_id, messages.unpack_token(token))

    def _take_again(self, _: str, slot: messages.Again) -> None:
        self.slots_moved([slot])

    def _take_congested(self, incarnation: str, item: messages.Congested) -> None:
        slot, is_congested = item
        if self._notes.owner(slot) == incarnation:
            self.on_congestion(slot, is_congested)

    def _take_memory_report(self, incarnation: str, item: messages.MemoryReport) -> None:
        slot, members_accept, filters = item
        if self._notes.owner(slot) == incarnation:
            self.on_memory_report(slot, members_accept, filters)

    # --- changes ------------------------------------------------------------------------------------------------------

    def _unsent(self, incarnation: str, method: str) -> None:
        """Notes of this kind found no link to the node."""
        if method == messages.ATTACH:
            for pending in self._pending.values():
                if pending.asked == incarnation:
                    pending.asked = ""
        elif method == messages.ASK:
            self._questions.unsent(incarnation)

    def core_linked(self, incarnation: str, slots: Collection[int]) -> None:
        """A link to the core is up again. Notes on its former link may be lost. `slots`: the slots that it owns."""
        self._ask_again([number for number, pending in self._pending.items() if pending.asked == incarnation])
        self.slots_moved(slots)

    def slots_moved(self, slots: Collection[int]) -> None:
        """These slots have new owners, or their owners may have missed notes."""
        self._moved.update(slots)
        if self._moved and (self._registering is None or self._registering.done()):
            self._registering = asyncio.create_task(self._register())

    async def _register(self) -> None:
        """Register connections at the owners of moved slots, in slices; then repeat DETACHes and
        unanswered requests.
        """
        while self._moved:
            await asyncio.sleep(0)
            moved, self._moved = self._moved, set()
            await self._register_those(partial(_is_in, moved))
            now = self._loop.time()
            self._forget_detached(now)
            lost = [each for each in self._detached if each.may_be_lost(now) and slot_of(each.item[0]) in moved]
            for count, detached in enumerate(lost, start=1):
                self._send_detached(detached)
                if count % bounds.NOTES_BATCH_MAX == 0:
                    await self._owners_take_more()
            again = [n for n, pending in self._pending.items() if slot_of(pending.client_id) in moved]
            for number in again:
                self._pending[number].deadline = now + bounds.ATTACH_WAIT_S
            self._ask_again(again)
            self._questions.slots_moved(moved)

    def register_wills(self) -> None:
        """All owners now understand that they keep wills of clean sessions: register those connections."""
        self._register_also = asyncio.create_task(self._register_those(_has_clean_session))

    async def _register_those(self, wanted: Callable[[Registration], bool]) -> None:
        said_bytes = 0
        for count, connection in enumerate(list(self._clients.connections()), start=1):
            if wanted(connection):
                try:
                    said_bytes += self._register_one(connection)
                except Exception:  # One bad connection must not stop the others.
                    log.exception("the connection of %r could not be registered", connection.client_id)
            if count % bounds.NOTES_BATCH_MAX == 0 or said_bytes >= NOTE_BYTES:
                said_bytes = 0
                await self._owners_take_more()

    async def _owners_take_more(self) -> None:
        """Wait until the links accept more. Wills may be large, and all of them go over a few links."""
        while True:
            await asyncio.sleep(0)
            owners = {self._notes.owner(slot) for slot in range(bounds.SLOTS)} - {""}
            if not any(self._notes.waits(owner) for owner in owners):
                return
            await asyncio.sleep(bounds.NOTES_RETRY_S)

    def _register_one(self, connection: Registration) -> int:
        """Returns its size in bytes; 0 if there is no owner or the connection has ended."""
        client_id, token, request = connection
        owner = self._notes.owner(slot_of(client_id))
        if not owner or not self._clients.holds(client_id, token):
            return 0
        pairs = b"" if request is None or messages.is_clean_session(request) else self._proxies.unsettled(token)
        self._notes.send(owner, messages.REGISTER, (client_id, messages.pack_token(token), request, pairs))
        return messages.size_of(client_id, request) + len(pairs)

    def _send_detached(self, detached: _Detached) -> None:
        owner = self._notes.owner(slot_of(detached.item[0]))
        if owner:
            self._notes.send(owner, detached.method, detached.as_of(self._loop.time()))
            if not detached.sent_at and self._notes.is_linked(owner):
                detached.sent_at = self._loop.time()

    def _forget_detached(self, now: float) -> None:
        while self._detached and self._detached[0].at <= now - DETACHED_KEPT_S:
            self._forget_first_detached()

    def _forget_first_detached(self) -> None:
        del self._detached_of[messages.unpack_token(self._detached.popleft().item[1])]

    def _ask_again(self, numbers: Iterable[int]) -> None:
        """Repeat the attaches under new numbers; answers to the old numbers are ignored."""
        for number in numbers:
            if number in self._pending:  # Repeating one may have superseded another.
                self._ask(self._take_pending(number))

    def _take_pending(self, number: int) -> _Pending:
        pending = self._pending.pop(number)
        self._pending_bytes -= pending.size_bytes
        return pending

    def tick(self, now: float) -> None:
        """Send requests that have no owner yet again, and end those that timed out."""
        if now - self._rotated_at > bounds.ATTACH_WAIT_S:
            self._rotated_at = now
            self._kicked_before, self._kicked = self._kicked, {}
        self._forget_detached(now)
        self._ask_again([number for number, pending in self._pending.items() if not pending.asked])
        self._questions.ask_again()
        for number in [number for number, pending in self._pending.items() if pending.deadline <= now]:
            pending = self._take_pending(number)
            if len(self._given_up) >= bounds.ATTACHES_MAX:
                del self._given_up[next(iter(self._given_up))]
            self._given_up[number] = pending.client_id, messages.nonce_of(pending.request)
            pending.done(OwnerUnreachable(f"the owner of {pending.client_id!r} did not answer in time"))


def _is_in(slots: set[int], connection: Registration) -> bool:
    return slot_of(connection.client_id) in slots


def _has_clean_session(connection: Registration) -> bool:
    return connection.request is not None and messages.is_clean_session(connection.request)
