"""The owner's side of session_rpc: a core grants client ids of its slots to connections of all nodes.

 node of the connection                      owner of the client id's slot
 attach (what CONNECT asks for) ────────▶   registry: one connection per client id; kicks an older one
                                            a durable session is opened and committed
 ◀──────────────────────── answer (token)
 ◀──────────────────────────── deliveries   packets of the session
 report, ask ───────────────────────────▶   acknowledgements, SUBSCRIBE, …
 ◀─────────────── reply; settled (a delivery), after the commit
 detach, evict ─────────────────────────▶

If this core is also the node of the connection, these are function calls instead of notes. Invariants:
- The node of a kicked connection answers with DETACH when it is closed, at once if it doesn't exist. The waiting
  connection is admitted then, or when that node was purged, or after KICK_WAIT_S, or after KICK_UNLINKED_S without a
  link to that node. If such a node comes back, it registers the older connection, and the owner kicks it, also if the
  newer one has ended.
- A node may follow the log earlier than this core. So if a slot went away and is back, what nodes registered before may
  be of now, or older than what the owner in between settled: it is forgotten, and every node is asked again.
- A new owner of a slot admits nobody before the slot's sessions are loaded. A core that may have been purged admits
  nobody, because its slots may belong to another core.
- An owner admits connections of members only. A node that isn't a member asks again, and its REGISTER waits.
- The owner keeps the wills of clean sessions (clean_session_wills.py), and publishes them when the node was purged.
- If a node told a client to reconnect to another node, the owner holds back its will until it does
  (durable/due_wills.py).
- A client id belongs to its user while there is a connection or a session: another user's attach is refused without any
  effect.
- An attach that needs more memory is refused at once if the store is full, or if too many already wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.membership.cluster import Cluster
from flockmq.membership.slot_table import SlotMove
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import CleanSessionWills, PendingWill, left_by, will_origin
from flockmq.session_rpc.client_registry import ClientRegistry, Kick
from flockmq.session_rpc.early_notes import EarlyNotes
from flockmq.session_rpc.notes import Notes
from flockmq.session_rpc.pending_attaches import PendingAttach, PendingAttaches
from flockmq.session_rpc.ports import Attach, NoSessions, SessionServicePort
from flockmq.session_rpc.purged_wills import PurgedWills

log: Final = logging.getLogger(__name__)


class SessionRpcServer:
    """One per node; at a node that isn't a core it owns no slots. A core sets `sessions` before `start`. It is the
    `ProxyPort` of the sessions on this core.
    """

    def __init__(self, notes: Notes, cluster: Cluster) -> None:
        self.registry = ClientRegistry()
        self.sessions: SessionServicePort = NoSessions()
        self.wills = CleanSessionWills()
        self.purged_wills = PurgedWills()
        self.on_will: Callable[[PendingWill], None] = ignore
        """Publishes the will of a session whose node is gone."""
        self.is_linked: Callable[[str], bool] = notes.is_linked
        self.deliver: Callable[[str, int, bytes], None] = notes.deliver
        """Sends packets of a session on this core to its client: incarnation of its node, token, packets."""
        # Tests shorten these; in compiled code constants couldn't be changed.
        self.kick_wait_s: float = bounds.KICK_WAIT_S
        self.kick_unlinked_s: float = bounds.KICK_UNLINKED_S
        self._notes = notes
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, PendingAttach] = {}
        self._unloaded = PendingAttaches()
        self._let_go_at: dict[int, float] = {}
        """Slots that went to another core, and when."""
        self._early = EarlyNotes(self._loop.time)
        notes.on_deliveries_failed = self._packets_lost

    def start(self) -> None:
        notes = self._notes
        notes.on_note(messages.ATTACH, messages.decode_attaches, self._take_attach)
        notes.on_note(messages.DETACH, messages.decode_detaches, self._take_detach)
        notes.on_note(messages.EVICT, messages.decode_evicts, self._take_evict)
        notes.on_note(messages.REGISTER, messages.decode_registers, self._take_register)
        notes.on_note(messages.REPORT, messages.decode_reports, self._take_report)
        notes.on_note(messages.ASK, messages.decode_asks, self._take_question)

    @property
    def dropped(self) -> int:
        """Number of notes that found no room while their slots weren't loaded. Their nodes are asked to repeat them."""
        return self._early.dropped

    # --- calls from the sessions on this core -------------------------------------------------------------------------

    def overflow(self, incarnation: str, client_id: bytes, token: int) -> None:
        """The session's queue is full: its connection must be closed, because the client misses messages."""
        self._notes.send(incarnation, messages.OVERFLOW, (client_id, messages.pack_token(token)))

    def congested(self, slot: int, is_congested: bool) -> None:
        """Tell all nodes that a session of the slot is, or no session of it is any more, congested."""
        self._notes.send_to_all(messages.CONGESTED, (slot, is_congested))

    def report_memory(self, slot: int, members_accept: bool, filters: list[bytes]) -> None:
        """Tell all nodes which sessions of the slot would have messages wait, while Redis is short of memory."""
        self._notes.send_to_all(messages.MEMORY_REPORT, (slot, members_accept, filters))

    def loaded(self, slot: int) -> None:
        """The slot's sessions are loaded: handle the notes and attaches that waited for that."""
        self._handle_early_notes(slot)
        for waiting in self._unloaded.take(slot):
            self._admit(waiting)
        self._ask_again(slot)

    def retaken(self, slot: int) -> None:
        """The slot was lost and came back, and had another owner meanwhile, whose tokens new ones must be above: forget
        its connections. Once its sessions are loaded, ask all nodes to register them.
        """
        self._forget(slot)
        self.registry.own(slot)
        self._ask_all(slot)

    def _ask_all(self, slot: int) -> None:
        for incarnation in dict.fromkeys((self._notes.me, *self._cluster.nodes_table)):
            if self.is_linked(incarnation):
                self._early.miss(slot, incarnation)

    def is_connected(self, client_id: bytes) -> bool:
        return self.registry.holder(client_id) is not None

    def floor(self, slot: int) -> int:
        """A value above the tokens of all connections from before this core owned the slot, and below all others."""
        return self.registry.floor(slot, self._cluster.slots.epoch)

    def _handle_early_notes(self, slot: int) -> None:
        for note in self._early.take(slot):
            if self._accepts_notes(slot, note.incarnation):
                self._notes.take(note.incarnation, note.method, note.item)
            else:
                self._early.put_back(slot, note)

    def _ask_again(self, slot: int) -> None:
        for incarnation in self._early.missed(slot, self._accepts_notes):
            self._notes.send(incarnation, messages.AGAIN, slot)

    # --- holders of client ids ----------------------------------------------------------------------------------------

    def _take_attach(self, incarnation: str, item: messages.Attach) -> None:
        number, client_id, request = item
        if not self.registry.owns(slot_of(client_id)) or not self._may_attach(incarnation):
            self._send_refusal(incarnation, number, messages.NOT_OWNER)
            return
        epoch, user = self._cluster.slots.epoch, messages.user_of(request)
        attached = self.registry.attach(client_id, incarnation, epoch, user)
        if attached is None:
            self._send_refusal(incarnation, number, messages.OTHER_USER)
            return
        waiting = PendingAttach(client_id, incarnation, number, request, attached.token)
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
            waiting.deadline = self._waiting[superseded].deadline  # It waits for the same KICK.
        self._refuse(superseded, messages.SUPERSEDED)

    def _may_attach(self, incarnation: str) -> bool:
        """True if both this core and the node are members. A purged node may still have a link, and may not know."""
        return self._cluster.fencing.is_confirmed_member and self._is_member(incarnation)

    def _admit(self, waiting: PendingAttach) -> None:
        """Admit a connection that has waited. Meanwhile its node, or this core, may have been purged, or the node of
        another user's older connection has registered it."""
        if not self._may_attach(waiting.incarnation):
            self._turn_away(waiting, messages.NOT_OWNER)
        elif self.registry.holds(waiting.client_id, waiting.incarnation, waiting.token):
            self._admit_member(waiting)
        else:
            self._answer(waiting, messages.OTHER_USER)

    def _admit_member(self, waiting: PendingAttach) -> None:
        if self.sessions.has_loaded(waiting.slot):
            self._open(waiting)
        elif not self._unloaded.put(waiting):
            self._turn_away(waiting, messages.FULL)

    def _turn_away(self, waiting: PendingAttach, status: int) -> None:
        self._answer(waiting, status)
        self._free(waiting.client_id, waiting.token)

    def _open(self, waiting: PendingAttach) -> None:
        answer = partial(self._admitted, waiting)
        request = None if waiting.request is None or messages.is_clean_session(waiting.request) else waiting.request
        user, nonce = messages.user_of(waiting.request), messages.nonce_of(waiting.request)
        again = partial(self._open_again, waiting)
        attach = Attach(waiting.client_id, waiting.incarnation, waiting.token, request, answer, user, again, nonce)
        try:
            status = self.sessions.open(attach)
            if status != messages.ADMITTED:
                self._turn_away(waiting, status)
        except Exception:  # One failing attach must not stop others that are admitted with it.
            log.exception("the session of %r could not be opened", waiting.client_id)

    def _open_again(self, waiting: PendingAttach) -> None:
        """The attach waited for the quota; its slot may have moved meanwhile."""
        if self.registry.holds(waiting.client_id, waiting.incarnation, waiting.token):
            self._admit(waiting)

    def _admitted(self, waiting: PendingAttach, flags: int | None) -> None:
        client_id, incarnation = waiting.client_id, waiting.incarnation
        if flags is None:
            self._answer(waiting, messages.SUPERSEDED)
            return
        if (
            waiting.request is not None
            and not flags & messages.DURABLE
            and self.registry.holds(client_id, incarnation, waiting.token)
        ):
            self.wills.keep(client_id, incarnation, waiting.token, waiting.request)
        if waiting.kick is not None:
            flags &= ~messages.ABSENT
        token = messages.pack_token(waiting.token)
        self._notes.send(waiting.incarnation, messages.ANSWER, (waiting.number, messages.ADMITTED, token, flags))

    def _refuse(self, token: int, status: int) -> None:
        if (waiting := self._waiting.pop(token, None)) is not None:
            self._answer(waiting, status)

    def _answer(self, waiting: PendingAttach, status: int) -> None:
        """Answer that the connection isn't admitted."""
        self._send_refusal(waiting.incarnation, waiting.number, status)

    def _send_refusal(self, incarnation: str, number: int, status: int) -> None:
        self._notes.send(incarnation, messages.ANSWER, (number, status, b"", 0))

    def _take_detach(self, incarnation: str, item: messages.Detach) -> None:
        client_id, token, expiry_s, with_will, nonce = item
        slot = slot_of(client_id)
        if not self._can_handle(slot, incarnation):
            self._early.put(slot, incarnation, messages.DETACH, item)
        self._detach(client_id, messages.unpack_token(token), expiry_s, with_will, nonce)

    def _take_evict(self, incarnation: str, item: messages.Evict) -> None:
        client_id, raw, expiry_s, nonce, hold_ms, clean_request = item
        slot, token, hold_s = slot_of(client_id), messages.unpack_token(raw), hold_ms / 1000
        if not self._can_handle(slot, incarnation):
            self._early.put(slot, incarnation, messages.EVICT, item)
        elif clean_request is not None and clean_request.will is not None:
            if self.registry.is_back(client_id, token):
                self.sessions.cancel(client_id, will_origin(nonce))
            else:
                self.sessions.hold(left_by(client_id, token, nonce, clean_request.will, clean_request.user), hold_s)
        if clean_request is not None:
            expiry_s = 0  # Its node names none, as if the CONNECT had been refused.
        self._detach(client_id, token, expiry_s, clean_request is None, nonce, hold_s)

    def _detach(
        self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes, hold_s: float = 0.0
    ) -> None:
        """`hold_s`: how long to hold back its will."""
        slot = slot_of(client_id)
        waiting = self._waiting.pop(token, None)
        # A newer connection had it kicked; its node doesn't know its token yet.
        if (unloaded := self._unloaded.end(slot, token)) is not None:
            self._answer(unloaded, messages.SUPERSEDED)
        self.wills.drop(slot, token)
        if waiting is None:
            self.sessions.leave(client_id, token, expiry_s, with_will, nonce, hold_s)
        self._free(client_id, token)

    def _free(self, client_id: bytes, token: int) -> None:
        """The token holds the client id no longer: admit the connection that waits for it."""
        admitted = self.registry.detach(client_id, token)
        if admitted is not None and (next_one := self._waiting.pop(admitted[1], None)) is not None:
            self._admit(next_one)

    def _kick(self, kick: Kick) -> None:
        self._notes.send(kick.incarnation, messages.KICK, (kick.client_id, messages.pack_token(kick.token)))

    def _take_register(self, incarnation: str, item: messages.Register) -> None:
        client_id, raw, request, pairs = item
        slot, token, user = slot_of(client_id), messages.unpack_token(raw), messages.user_of(request)
        if not self._can_handle(slot, incarnation):
            if self.registry.has_newer(client_id, token, user):  # It must be closed in any case.
                self._kick(Kick(incarnation, client_id, token))
            else:
                self._early.put(slot, incarnation, messages.REGISTER, item)
            return
        if self.sessions.is_other_users(client_id, user):
            self._kick(Kick(incarnation, client_id, token))
            return
        kick = self.registry.register(client_id, incarnation, token, user)
        if kick is not None:
            self._kick(kick)
        if (outsider := self.registry.others_waiting(client_id, user)) is not None:
            self._refuse(outsider[1], messages.OTHER_USER)
        if request is None or (kick is not None and kick.token == token):
            return
        if messages.is_clean_session(request):
            self.wills.keep(client_id, incarnation, token, request)
            return
        if not self.sessions.resume(client_id, incarnation, token, request, pairs):
            self._kick(Kick(incarnation, client_id, token))

    def _can_handle(self, slot: int, incarnation: str) -> bool:
        """True if a note of this node about the slot can be handled now. Handles earlier notes that waited, first."""
        if not self.sessions.has_loaded(slot) or not self._accepts_notes(slot, incarnation):
            return False
        if self._early.has(slot):
            self._handle_early_notes(slot)
        return True

    def _accepts_notes(self, slot: int, incarnation: str) -> bool:
        """True if the sender is a member and this core owns the slot."""
        return self._is_member(incarnation) and self.registry.owns(slot)

    def _is_member(self, incarnation: str) -> bool:
        return incarnation == self._notes.me or incarnation in self._cluster.nodes_table

    # --- reports and requests of clients to their sessions ------------------------------------------------------------

    def _take_report(self, incarnation: str, item: messages.Report) -> None:
        token, pairs = item
        self.sessions.report(incarnation, messages.unpack_token(token), pairs)

    def _take_question(self, incarnation: str, item: messages.Ask) -> None:
        number, behind, client_id, token, question = item
        answer = partial(self._tell, incarnation, number)
        self.sessions.ask(client_id, messages.unpack_token(token), (number, behind), question, answer)

    def _tell(self, incarnation: str, number: int, answer: bytes) -> None:
        self._notes.send(incarnation, messages.REPLY, (number, answer))

    # --- changes ------------------------------------------------------------------------------------------------------

    def let_go(self, moves: list[SlotMove]) -> None:
        for slot, _, owner in moves:
            if owner != self._notes.me and self.registry.owns(slot):
                self._let_go_at[slot] = self._loop.time()
                self._alone(self._let_go, slot)

    def own(self, moves: list[SlotMove]) -> None:
        for slot, _, owner in moves:
            if owner == self._notes.me:
                self.registry.own(slot)
                if self._let_go_at.pop(slot, -inf) > self._loop.time() - bounds.EARLY_KEPT_S:
                    self._ask_all(slot)

    def take(self, moves: list[SlotMove]) -> None:
        for slot, _, owner in moves:
            if owner == self._notes.me:
                self._alone(self.sessions.own, slot)

    def let_go_of_all(self) -> None:
        """This node has a new incarnation, so it owns no slots."""
        for slot in self.registry.slots():
            self._alone(self._let_go, slot)

    def _alone(self, follow: Callable[[int], None], slot: int) -> None:
        """If one slot can't follow its move, the others still do."""
        try:
            follow(slot)
        except Exception:
            log.exception("slot %d moved, and this node can't follow", slot)

    def _let_go(self, slot: int) -> None:
        self._forget(slot)
        self.sessions.disown(slot)

    def _forget(self, slot: int) -> None:
        """Forget the slot's connections, and those that nodes registered too early. Those that wait are asked for
        again."""
        self._early.forget_registers(slot)
        tokens = [token for _, (_, token, _) in self.registry.disown(slot)]
        self.wills.let_go(slot)
        for waiting in self._unloaded.take(slot):
            self._waiting[waiting.token] = waiting
            tokens.append(waiting.token)
        for token in tokens:
            self._loop.call_soon(self._refuse, token, messages.NOT_OWNER)

    def node_gone(self, incarnation: str) -> None:
        self._early.node_gone(incarnation)
        self.sessions.node_gone(incarnation)
        self.purged_wills.add(self.wills.node_gone(incarnation))
        self._unloaded.node_gone(incarnation)
        for token in [token for token, waiting in self._waiting.items() if waiting.incarnation == incarnation]:
            del self._waiting[token]
        for _, (_, token, _) in self.registry.node_gone(incarnation):
            if (waiting := self._waiting.pop(token, None)) is not None:
                self._admit(waiting)

    def link_lost(self, incarnation: str) -> None:
        self._early.link_lost(incarnation)
        self._packets_lost(incarnation)

    def _packets_lost(self, incarnation: str) -> None:
        self._notes.link_lost(incarnation)
        self.sessions.cut(incarnation)

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        self.sessions.report_load()
        for slot in self._early.slots():
            if self.sessions.has_loaded(slot):
                self._handle_early_notes(slot)
        for slot in self._early.missed_slots():
            if self.sessions.has_loaded(slot):
                self._ask_again(slot)
        for waiting in self._waiting.values():
            if waiting.kick and not self.is_linked(waiting.kick.incarnation):
                waiting.deadline = min(waiting.deadline, now + self.kick_unlinked_s)
        for waiting in [waiting for waiting in self._waiting.values() if waiting.kick and waiting.deadline <= now]:
            assert waiting.kick is not None
            self._kick_timed_out(waiting, waiting.kick)

    def _kick_timed_out(self, waiting: PendingAttach, kick: Kick) -> None:
        """The node of the older connection didn't confirm in time that it closed it. The owner now treats that
        connection as closed and publishes its will. Exception: if both connections are the same CONNECT, sent twice
        because the first answer was lost, there was no older connection, and no will is published.
        """
        log.warning("%s did not close %r in time", kick.incarnation, waiting.client_id)
        will = self.wills.take(waiting.slot, kick.token, but_of=messages.nonce_of(waiting.request))
        if will is not None:  # Before the client's new messages.
            self.on_will(will)
        with_will = not self.sessions.was_asked_by(waiting.client_id, waiting.request)
        self._detach(waiting.client_id, kick.token, -1, with_will, b"")
        self.registry.not_confirmed(waiting.client_id, kick.token)

    async def publish_purged_wills(self) -> None:
        await self.purged_wills.publish(lambda will: self.on_will(will))  # noqa: PLW0108 - it may be set later

    async def sweep(self) -> None:
        """Free the memory of purged nodes in small steps, and drop notes about slots that never came here."""
        self._early.sweep(self._accepts_notes, self.is_linked)
        for _ in self.registry.sweep():
            await asyncio.sleep(0)
