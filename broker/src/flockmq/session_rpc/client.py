"""A node and the homes of its clients: client ids are asked for, questions put, answers reported, until they came.

What always holds:
- `done` of an attach is called exactly once: with an Admission, or with an AttachError; within ATTACH_WAIT_S and a
  beat, counted anew when the slot moves.
- An answer that was lost costs nothing but time: the request goes again under another number, and what the home holds
  for the lost one is kicked and found to be gone. A question goes again until its connection is gone.
- A home hears what a connection asks in its order: each question says which one it stands behind. Numbers of QoS 2
  messages grow with them, so that none passes for a repeat. SUBSCRIBEs and UNSUBSCRIBEs are answered in their order,
  so what is put again are the last of them, and what they come to is what the client asked last.
- After a slot moved, or a link to a core was lost, each node registers its connections at their home and reports again
  what its clients answered and the home hasn't settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.outbox import NOTE_BYTES

log: Final = logging.getLogger(__name__)

DETACHED_AGAIN_S: Final = 10.0
"""A detach that may have been lost with its home, or the link, is said again within so long."""
DETACHED_KEPT_S: Final = 60.0
"""One that found no home yet, or no link, is kept so long: Redis may be away for half a minute."""


_FULL: Final = "too much waits for Redis there, or the session that Redis has can't be read (then an alarm says so)"


class AttachError(Exception):
    """Why the client id can't be had; the text is for the log."""


class HomeUnreachable(AttachError):
    """No home answered in time: CONNACK 0x88, the client may try again."""


class HomeFull(AttachError):
    """So much waits at its home to be durable that no more is taken, or it has a session that can't be read: CONNACK
    0x88, the client may try again."""


class Anothers(AttachError):
    """Another user has a connection or a session of that client id: CONNACK 0x85 [MQTT-3.1.4-2]."""


class OverQuota(AttachError):
    """Its user has as many sessions, or as much waits for them, as one may have: CONNACK 0x97."""


class Superseded(AttachError):
    """A newer connection of the same client id took its place: 0x8E."""


class Admission(NamedTuple):
    """The connection holds the client id. `lasts`: its session runs at its home; `present`: it was there before;
    `absent`: there was nothing that had to end; `unjudged`: nothing is sent before its subscriptions are judged."""

    token: int
    lasts: bool
    present: bool
    absent: bool = False
    unjudged: bool = False

    @property
    def begins(self) -> bool:
        """Its session lasts, and begins with it: it ends again where the client never hears of it."""
        return self.lasts and not self.present


Done = Callable[["Admission | AttachError"], None]
Answered = Callable[[bytes], None]


class Registration(NamedTuple):
    """One that holds a token; `opening` where its session runs at its home, or its will is kept there, or it has a
    user."""

    client_id: bytes
    token: int
    opening: messages.Opening | None


class ClientConnections(Protocol):
    """The connections of this node."""

    def kick(self, client_id: bytes, token: int) -> bool:
        """Close this connection with 0x8E, and `detach` it; False when there is none."""
        ...

    def overflow(self, client_id: bytes, token: int) -> None:
        """Close it with 0x97: its session found no room for a message."""
        ...

    def connections(self) -> Iterable[Registration]: ...
    def holds(self, client_id: bytes, token: int) -> bool:
        """This connection is there still."""
        ...

    def delivered(self, home: str, token: int, packets: bytes) -> None:
        """A home sends this to the client; one that isn't its session's any more isn't heard."""
        ...

    def unsettled(self, token: int) -> bytes:
        """All that the client answered and the home hasn't settled, in its order."""
        ...


class OwnerPort(Protocol):
    """This node as a home, and the way to the others."""

    def owner(self, slot: int) -> str:
        """The incarnation of a slot's home, "" for none."""
        ...

    def waits(self, owner: str) -> bool:
        """What was said to it isn't all gone yet: no more should be, but for what can't wait."""
        ...

    def is_linked(self, incarnation: str) -> bool: ...
    def say(self, to: str, method: str, item: object) -> None:
        """To another node, or to this one itself."""
        ...


class _Pending:
    """An attach that a home was asked for."""

    __slots__ = ("asked", "client_id", "deadline", "done", "opening", "size_bytes")

    def __init__(self, client_id: bytes, opening: messages.Opening | None, done: Done, deadline: float) -> None:
        self.client_id = client_id
        self.opening = opening
        self.done = done
        self.deadline = deadline
        self.asked = ""
        """The core that was asked; "" when it must be asked (again)."""
        self.size_bytes: Final = messages.size_of(client_id, opening)
        """What it counts for."""


class _Question:
    """`answer` waits for those of the questions before it; b"": there is none yet."""

    __slots__ = ("answer", "answered", "asked", "client_id", "question", "token")

    def __init__(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None:
        self.client_id = client_id
        self.token = token
        self.question = question
        self.answered = answered
        self.asked = ""
        self.answer = b""


class _Detached:
    """A connection that is gone since `at`. `said_at`: when its home was told by a link that was up, or 0.0."""

    __slots__ = ("at", "item", "said_at")

    def __init__(self, at: float, item: messages.Detach) -> None:
        self.at = at
        self.item = item
        self.said_at = 0.0


class SessionRpcClient:
    """One per node."""

    def __init__(self, home: OwnerPort, clients: ClientConnections) -> None:
        self._home = home
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        self._last_number = 0
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._given_up: dict[int, tuple[bytes, bytes]] = {}
        """Numbers of requests that nobody waits for any more, their client ids and nonces: what is granted yet is let
        go, and what began with it ends."""
        self._questions: dict[int, _Question] = {}
        self._asked_by: dict[int, set[int]] = {}
        """Token -> the numbers of its questions."""
        self._unasked: set[int] = set()
        """Tokens of connections whose questions wait to be asked again: later ones wait behind them."""
        self._kicked: dict[bytes, int] = {}
        self._kicked_before: dict[bytes, int] = {}
        self._rotated_at = self._loop.time()
        self._detached: deque[_Detached] = deque(maxlen=bounds.HOME_OUT_MAX)
        self._moved: set[int] = set()
        self._registering: asyncio.Task[None] | None = None
        self._register_also: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        for task in (self._registering, self._register_also):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    def __len__(self) -> int:
        """Connections whose home has not answered yet."""
        return len(self._pending)

    # What this node's clients want.

    def attach(self, client_id: bytes, opening: messages.Opening | None, done: Done) -> None:
        if len(self._pending) >= bounds.ATTACHES_MAX or self._pending_bytes >= bounds.ATTACHES_MAX_BYTES:
            done(HomeUnreachable(f"{len(self._pending)} attaches wait for their homes"))
        else:
            self._ask(_Pending(client_id, opening, done, self._loop.time() + bounds.ATTACH_WAIT_S))

    def detach(self, client_id: bytes, token: int, expiry_s: int, with_will: bool, nonce: bytes) -> None:
        item: messages.Detach = (client_id, messages.pack_token(token), expiry_s, with_will, nonce)
        for number in sorted(self._asked_by.get(token, ())):
            self._end_question(number).answered(b"")
        self._unasked.discard(token)
        detached = _Detached(self._loop.time(), item)
        self._detached.append(detached)
        self._say_detached(detached)

    def ask(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None:
        """`answered` gets the answer once; b"" when the connection is gone before."""
        self._put_question(_Question(client_id, token, question, answered))

    def report(self, client_id: bytes, token: int, pairs: bytes) -> None:
        """What the client answered: to be settled. While there is no home it is said when there is one."""
        if owner := self._home.owner(slot_of(client_id)):
            self._home.say(owner, messages.REPORT, (messages.pack_token(token), pairs))

    def _ask(self, pending: _Pending) -> None:
        self._last_number += 1
        number = self._last_number
        self._pending[number] = pending
        self._pending_bytes += pending.size_bytes
        pending.asked = self._home.owner(slot_of(pending.client_id))
        if pending.asked:
            self._home.say(pending.asked, messages.ATTACH, (number, pending.client_id, pending.opening))

    def _put_question(self, question: _Question) -> None:
        if not self._clients.holds(question.client_id, question.token):
            question.answered(b"")  # it went before its question could be put: nobody would end that
            return
        self._last_number += 1
        number = self._last_number
        self._questions[number] = question
        question.answer = b""
        unanswered = self._asked_by.setdefault(question.token, set())
        behind = max(unanswered, default=0)
        unanswered.add(number)
        question.asked = "" if question.token in self._unasked else self._home.owner(slot_of(question.client_id))
        if not question.asked:
            self._unasked.add(question.token)
        else:
            item = (number, behind, question.client_id, messages.pack_token(question.token), question.question)
            self._home.say(question.asked, messages.ASK, item)

    # What homes say.

    def answered(self, number: int, status: int, token: int, flags: int) -> None:
        pending = self._pending.get(number)
        if pending is None:
            given_up = self._given_up.pop(number, None)
            if given_up is not None and status == messages.ADMITTED:
                client_id, nonce = given_up
                self.detach(client_id, token, 0 if _admission(token, flags).begins else -1, False, nonce)
            return
        if status == messages.NOT_HOME:
            pending.asked = ""
            return
        self._take_pending(number)
        kicked = max(self._kicked.get(pending.client_id, 0), self._kicked_before.get(pending.client_id, 0))
        if status == messages.FULL:
            pending.done(HomeFull(f"the home of {pending.client_id!r} does not admit it now: {_FULL}"))
        elif status == messages.ANOTHERS:
            pending.done(Anothers(f"the client id {pending.client_id!r} is another user's"))
        elif status == messages.OVER_QUOTA:
            pending.done(OverQuota(f"the user of {pending.client_id!r} has all that one may have"))
        elif status == messages.SUPERSEDED or token <= kicked:
            pending.done(Superseded(f"a newer connection has the client id {pending.client_id!r}"))
        else:
            pending.done(_admission(token, flags))

    def told(self, number: int, answer: bytes) -> None:
        question = self._questions.get(number)
        if question is None:
            return
        if not answer:
            self._doubt(question)
            return
        if isinstance(question.question, messages.ReceiveQuestion):
            self._end_question(number)
            question.answered(answer)
            return
        question.answer = answer
        for first in sorted(self._asked_by[question.token]):
            waiting = self._questions.get(first)
            if waiting is None or isinstance(waiting.question, messages.ReceiveQuestion):
                continue
            if not waiting.answer:
                return
            self._end_question(first)
            waiting.answered(waiting.answer)

    def kicked(self, home: str, client_id: bytes, token: int) -> None:
        if not self._clients.kick(client_id, token):
            if len(self._kicked) < bounds.ATTACHES_MAX:
                self._kicked[client_id] = max(token, self._kicked.get(client_id, 0))
            self._home.say(home, messages.DETACH, (client_id, messages.pack_token(token), -1, False, b""))

    # Changes.

    def untold(self, incarnation: str, method: str) -> None:
        """There was no link for notes of this kind."""
        if method == messages.ATTACH:
            for pending in self._pending.values():
                if pending.asked == incarnation:
                    pending.asked = ""
        elif method == messages.ASK:
            for question in self._questions.values():
                if question.asked == incarnation:
                    self._doubt(question)

    def core_linked(self, incarnation: str, slots: Collection[int]) -> None:
        """What was said before its link was lost may never have come; it is the home of these slots."""
        self._ask_again([number for number, pending in self._pending.items() if pending.asked == incarnation])
        self.slots_moved(slots)

    def slots_moved(self, slots: Collection[int]) -> None:
        """These slots have another home, or one that may have missed something."""
        self._moved.update(slots)
        if self._moved and (self._registering is None or self._registering.done()):
            self._registering = asyncio.create_task(self._register())

    async def _register(self) -> None:
        """Tell homes what this node has, in slices, until no slot is left; then ask again what they were asked."""
        while self._moved:
            await asyncio.sleep(0)
            moved, self._moved = self._moved, set()
            await self._register_those(partial(_is_in, moved))
            now = self._loop.time()
            self._forget_detached(now)
            for detached in list(self._detached):
                may_be_lost = not detached.said_at or detached.said_at > now - DETACHED_AGAIN_S
                if may_be_lost and slot_of(detached.item[0]) in moved:
                    self._say_detached(detached)
            again = [n for n, pending in self._pending.items() if slot_of(pending.client_id) in moved]
            for number in again:
                self._pending[number].deadline = now + bounds.ATTACH_WAIT_S
            self._ask_again(again)
            self._put_again([n for n, asked in self._questions.items() if slot_of(asked.client_id) in moved])

    def register_wills(self) -> None:
        """Homes keep wills from now on."""
        self._register_also = asyncio.create_task(self._register_those(_is_guest))

    async def _register_those(self, wanted: Callable[[Registration], bool]) -> None:
        said_bytes = 0
        for count, connection in enumerate(list(self._clients.connections()), start=1):
            if wanted(connection):
                try:
                    said_bytes += self._register_one(connection)
                except Exception:  # the others have no part in it
                    log.exception("the connection of %r could not be registered", connection.client_id)
            if count % bounds.HOME_BATCH_MAX == 0 or said_bytes >= NOTE_BYTES:
                said_bytes = 0
                await self._homes_take_more()

    async def _homes_take_more(self) -> None:
        """Wills are as large as clients like, and all have to go over few links."""
        while True:
            await asyncio.sleep(0)
            owners = {self._home.owner(slot) for slot in range(bounds.SLOTS)} - {""}
            if not any(self._home.waits(owner) for owner in owners):
                return
            await asyncio.sleep(bounds.HOME_PACE_S)

    def _register_one(self, connection: Registration) -> int:
        """Of how many bytes that was; none, where its home or the connection itself is gone meanwhile."""
        client_id, token, opening = connection
        owner = self._home.owner(slot_of(client_id))
        if not owner or not self._clients.holds(client_id, token):
            return 0
        pairs = b"" if opening is None or messages.is_guest(opening) else self._clients.unsettled(token)
        self._home.say(owner, messages.REGISTER, (client_id, messages.pack_token(token), opening, pairs))
        return messages.size_of(client_id, opening) + len(pairs)

    def _say_detached(self, detached: _Detached) -> None:
        owner = self._home.owner(slot_of(detached.item[0]))
        if owner:
            self._home.say(owner, messages.DETACH, detached.item)
            if not detached.said_at and self._home.is_linked(owner):
                detached.said_at = self._loop.time()

    def _forget_detached(self, now: float) -> None:
        while self._detached and self._detached[0].at <= now - DETACHED_KEPT_S:
            self._detached.popleft()

    def _end_question(self, number: int) -> _Question:
        """It has no number any more."""
        question = self._questions.pop(number)
        numbers = self._asked_by[question.token]
        numbers.discard(number)
        if not numbers:
            del self._asked_by[question.token]
        return question

    def _doubt(self, question: _Question) -> None:
        question.asked = ""
        self._unasked.add(question.token)

    def _put_again(self, numbers: Iterable[int]) -> None:
        """In their order, which the numbers have."""
        again = [self._end_question(number) for number in sorted(numbers)]
        self._unasked.difference_update(question.token for question in again)
        for question in again:
            self._put_question(question)

    def _ask_again(self, numbers: Iterable[int]) -> None:
        """Under new numbers: an answer to the old ones means nothing any more."""
        for number in numbers:
            if number in self._pending:  # to ask for one may have superseded another
                self._ask(self._take_pending(number))

    def _take_pending(self, number: int) -> _Pending:
        pending = self._pending.pop(number)
        self._pending_bytes -= pending.size_bytes
        return pending

    def beat(self, now: float) -> None:
        """Ask again what has no home yet, and end what waited too long."""
        if now - self._rotated_at > bounds.ATTACH_WAIT_S:
            self._rotated_at = now
            self._kicked_before, self._kicked = self._kicked, {}
        self._forget_detached(now)
        self._ask_again([number for number, pending in self._pending.items() if not pending.asked])
        self._put_again([n for n, question in self._questions.items() if question.token in self._unasked])
        for number in [number for number, pending in self._pending.items() if pending.deadline <= now]:
            pending = self._take_pending(number)
            if len(self._given_up) >= bounds.ATTACHES_MAX:
                del self._given_up[next(iter(self._given_up))]
            self._given_up[number] = pending.client_id, messages.nonce_of(pending.opening)
            pending.done(HomeUnreachable(f"the home of {pending.client_id!r} did not answer in time"))


def _admission(token: int, flags: int) -> Admission:
    lasts, present = bool(flags & messages.LASTS), bool(flags & messages.PRESENT)
    absent, unjudged = bool(flags & messages.ABSENT), bool(flags & messages.UNJUDGED)
    return Admission(token, lasts, present, absent, unjudged)


def _is_in(slots: set[int], connection: Registration) -> bool:
    return slot_of(connection.client_id) in slots


def _is_guest(connection: Registration) -> bool:
    return connection.opening is not None and messages.is_guest(connection.opening)
