"""The messages between nodes and slot owners: notes on the cluster link. One note has all items of one kind that a node
gathered in one event-loop iteration.

A connection is named by its token. Tokens are larger than msgpack's integers, so they are sent as TOKEN_BYTES bytes,
big-endian. Packets of a durable session to its client aren't sent as notes, but as data in DELIVERY frames.

At the end: what an answer to an attach means, an Admission or an AttachError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from flockmq.session_rpc.client_registry import TOKEN_BYTES

ATTACH: Final = "home.attach"
ANSWER: Final = "home.answer"
KICK: Final = "home.kick"
DETACH: Final = "home.detach"
EVICT: Final = "home.evict"
"""From cluster version 2 on."""
REGISTER: Final = "home.register"
REPORT: Final = "home.report"
ASK: Final = "home.ask"
REPLY: Final = "home.told"
OVERFLOW: Final = "home.overflow"
AGAIN: Final = "home.again"
CONGESTED: Final = "home.crowd"
MEMORY_REPORT: Final = "home.takers"
"""From cluster version 2 on."""
ORDER: Final = (
    *(ANSWER, KICK, REGISTER, REPORT, ASK, REPLY, OVERFLOW, EVICT, DETACH, ATTACH, AGAIN, CONGESTED, MEMORY_REPORT),
)
"""The order in which the notes of one iteration are sent. ANSWER is before KICK, so that a node knows the token that it
must close. What a client did is sent before the DETACH of its connection.
"""

ADMITTED: Final = 0
SUPERSEDED: Final = 1
NOT_OWNER: Final = 2
FULL: Final = 3
OTHER_USER: Final = 4
"""Another user has a connection or a session with this client id."""
OVER_QUOTA: Final = 5
"""The user has reached the quota."""

DURABLE: Final = 1
"""The session is durable and runs at its owner. Without this flag it runs at the node of the connection."""
PRESENT: Final = 2
"""The session existed before this connection."""
UNAUTHORIZED: Final = 8
"""The client's rules differ from those under which its subscriptions were authorized. The owner sends nothing before
the node has authorized them again (`ReauthorizedQuestion`).
"""
ABSENT: Final = 4
"""There was neither a session nor a connection that had to end. Owners of an earlier release don't send this flag."""


class WillRow(msgspec.Struct, frozen=True, array_like=True):
    """A will: one PUBLISH packet of an MQTT version. `authorization` as in `mqtt.message.Will`."""

    delay_s: int
    version: int
    packet: bytes
    authorization: bytes = b""


class SessionRequest(msgspec.Struct, frozen=True, array_like=True):
    """What a CONNECT asks the owner for: a durable session, to end an existing one, or to keep its will.

    - `version`, `clean_start`, `expiry_s`, `window` (receive maximum), `max_packet_bytes`: from CONNECT.
    - `zone`: names the limits.
    - `nonce`: identifies this CONNECT, so that the owner recognizes it if the node repeats it.
    - `user`: the authenticated user, who owns the client id from now on; b"": no user; None: client ids aren't bound to
      users.
    - `rules`: hash of the rules that apply to the client. b"": unknown, so its subscriptions must be authorized again.
      None: the client may do everything, or its subscriptions were authorized.
    """

    version: int
    clean_start: bool
    expiry_s: int
    window: int
    max_packet_bytes: int
    zone: str
    nonce: bytes
    will: WillRow | None = None
    user: bytes | None = None
    rules: bytes | None = None


def is_clean_session(request: SessionRequest) -> bool:
    """True for a clean session. It runs at the node of the connection; the owner has only its will and user."""
    return request.clean_start and not request.expiry_s


NONCE_BYTES: Final = 8
"""Of a SUBSCRIBE or an UNSUBSCRIBE."""


class WantedSubscription(msgspec.Struct, frozen=True, array_like=True):
    """One subscription that a client asks for."""

    filter: bytes
    options: int
    """As in SUBSCRIBE (section 3.8.3.1)."""
    asked: bytes = b""
    """The filter that the client asked for, if a rewrite rule changed it."""


class SubscribeQuestion(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Answered with a list of reason codes. `identifiers` as in `routing.subscriber`. `nonce` identifies this
    SUBSCRIBE, so that a repeat doesn't entitle to the same retained messages again; b"": the node is of an earlier
    release.
    """

    wanted: list[WantedSubscription]
    identifiers: bytes
    nonce: bytes = b""


class UnsubscribeQuestion(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Answered with a list of reason codes; a repeat gets the same answer. `nonce` identifies this UNSUBSCRIBE."""

    filters: list[bytes]
    nonce: bytes


class ReceiveQuestion(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A QoS 2 PUBLISH arrived with this packet id. Answered with its message id (16 bytes), followed by the members
    chosen for it when it first arrived (`routing.shared_frames`); or with b"" if too many messages wait for PUBREL.
    """

    packet_id: int
    deals: bytes = b""


class SubscriptionsQuestion(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Asks for the session's subscriptions after the first `after`. Answered with one page: filter, filter that the
    client asked for, and QoS of each; and where the next page begins, 0 if there is none.
    """

    after: int


class ReauthorizedQuestion(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """All subscriptions were authorized under `rules` (as in `SessionRequest`). The owner ends the `denied` ones, and
    drops queued messages that matched no other. Answered with a list of reason codes.
    """

    denied: list[bytes]
    rules: bytes


Question = SubscribeQuestion | UnsubscribeQuestion | ReceiveQuestion | SubscriptionsQuestion | ReauthorizedQuestion
Answered = Callable[[bytes], None]
"""Gets the answer to a request, in msgpack; b"": there is none."""
Page = tuple[list[tuple[bytes, bytes, int]], int]

Attach = tuple[int, bytes, SessionRequest | None]
"""(number of the attach at its node, client id, what it asks for). None: a clean session without a will and user."""
Answer = tuple[int, int, bytes, int]
"""(number of the request, ADMITTED | SUPERSEDED | NOT_OWNER | FULL | OTHER_USER | OVER_QUOTA, token, DURABLE | PRESENT,
or ABSENT)
"""
ClientToken = tuple[bytes, bytes]
"""(client id, token), for KICK and OVERFLOW"""
Detach = tuple[bytes, bytes, int, bool, bytes]
"""(client id, token, session expiry in seconds from DISCONNECT or -1, whether to publish the will, nonce of the CONNECT
or b"")
"""
Evict = tuple[bytes, bytes, int, bytes, int, SessionRequest | None]
"""As DETACH, for a client that its node told to reconnect to another node: (client id, token, session expiry in
seconds, nonce of the CONNECT, how many ms to hold back its will, `SessionRequest` of a clean session)
"""
Register = tuple[bytes, bytes, SessionRequest | None, bytes]
"""(client id, token, `SessionRequest` if the session is durable or `is_clean_session`, all acknowledgements that aren't
settled)
"""
Report = tuple[bytes, bytes]
"""(token, acknowledgements of the client: kind and packet id in 3 bytes each)"""
Ask = tuple[int, int, bytes, bytes, Question]
"""(number at its node, number of the connection's request before it if that isn't answered, else 0; client id, token,
request)
"""
Reply = tuple[int, bytes]
"""(number, answer in msgpack; b"": this core can't answer, ask again)"""

Again = int
"""A slot whose owner missed something: register the connections again, and repeat recent DETACHes."""

Congested = tuple[int, bool]
"""(slot, whether a session there is congested): nodes pause publishers to a congested slot"""

MemoryReport = tuple[int, bool, list[bytes]]
"""(slot, whether members of its shared subscriptions accept messages at once, filters of sessions that don't)"""

encode: Final = msgspec.msgpack.Encoder().encode
decode_attaches: Final = msgspec.msgpack.Decoder(list[Attach]).decode
decode_answers: Final = msgspec.msgpack.Decoder(list[Answer]).decode
decode_clients: Final = msgspec.msgpack.Decoder(list[ClientToken]).decode
decode_detaches: Final = msgspec.msgpack.Decoder(list[Detach]).decode
decode_evicts: Final = msgspec.msgpack.Decoder(list[Evict]).decode
decode_registers: Final = msgspec.msgpack.Decoder(list[Register]).decode
decode_reports: Final = msgspec.msgpack.Decoder(list[Report]).decode
decode_asks: Final = msgspec.msgpack.Decoder(list[Ask]).decode
decode_replies: Final = msgspec.msgpack.Decoder(list[Reply]).decode
decode_slots: Final = msgspec.msgpack.Decoder(list[Again]).decode
decode_congested: Final = msgspec.msgpack.Decoder(list[Congested]).decode
decode_memory_reports: Final = msgspec.msgpack.Decoder(list[MemoryReport]).decode
decode_reasons: Final = msgspec.msgpack.Decoder(list[int]).decode
decode_page: Final[Callable[[bytes], Page]] = msgspec.msgpack.Decoder(Page).decode
decode_origin: Final = msgspec.msgpack.Decoder(bytes).decode


def user_of(request: SessionRequest | None) -> bytes | None:
    return None if request is None else request.user


def nonce_of(request: SessionRequest | None) -> bytes:
    return b"" if request is None else request.nonce


def size_of(client_id: bytes, request: SessionRequest | None) -> int:
    """Size of an attach in bytes, for limits."""
    if request is None:
        return len(client_id)
    will_bytes = 0 if request.will is None else len(request.will.packet) + len(request.will.authorization)
    return len(client_id) + len(request.user or b"") + will_bytes


def pack_token(token: int) -> bytes:
    return token.to_bytes(TOKEN_BYTES, "big")


def unpack_token(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def batches(items: Sequence[object], limit: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Split `items` into notes of at most `limit` items and about `max_bytes` (a single item may be larger). Yields the
    number of items and the encoded note.
    """
    for start in range(0, len(items), limit):
        some = items[start : start + limit]
        note = encode(some)
        if len(note) <= max_bytes or len(some) == 1:
            yield len(some), note
        else:  # Wills and filters have no fixed size.
            yield from batches(some, (len(some) + 1) // 2, max_bytes)


_LENGTH_BYTES: Final = 4


def delivery(token: int, chunk: bytes) -> bytes:
    """Packets for one client as a part of a DELIVERY frame."""
    return pack_token(token) + len(chunk).to_bytes(_LENGTH_BYTES, "big") + chunk


def deliveries(body: bytes) -> Iterator[tuple[int, bytes]]:
    """(token, packets) of each client in a DELIVERY frame. Raises ValueError if it is malformed."""
    at, end = 0, len(body)
    while at < end:
        start = at + TOKEN_BYTES + _LENGTH_BYTES
        stop = start + int.from_bytes(body[start - _LENGTH_BYTES : start], "big")
        if start > end or stop > end:
            raise ValueError(f"a DELIVERY frame of {end} bytes that ends within a client's packets")
        yield unpack_token(body[at : at + TOKEN_BYTES]), body[start:stop]
        at = stop


class AttachError(Exception):
    """The client can't have the client id; the text is for the log."""


class OwnerUnreachable(AttachError):
    """No owner answered in time. CONNACK 0x88: the client may try again."""


class OwnerFull(AttachError):
    """Too much waits for Redis at the owner, or the session in Redis can't be read. CONNACK 0x88: the client may try
    again.
    """


class OtherUser(AttachError):
    """Another user has a connection or a session with this client id. CONNACK 0x85 [MQTT-3.1.4-2]."""


class OverQuota(AttachError):
    """The user has reached the quota of sessions or of queued  CONNACK 0x97."""


class Superseded(AttachError):
    """A newer connection with the same client id replaced this one: 0x8E."""


class Admission(NamedTuple):
    """The connection has the client id. `is_durable`: its session is durable and runs at its owner. `present`: the
    session existed before. `absent`: neither a session nor a connection had to end. `must_reauthorize`: the owner
    sends nothing before the subscriptions are authorized again.
    """

    token: int
    is_durable: bool
    present: bool
    absent: bool = False
    must_reauthorize: bool = False

    @property
    def begins(self) -> bool:
        """True if the connection created a durable session. It ends again if the client never gets its CONNACK."""
        return self.is_durable and not self.present


Done = Callable[[Admission | AttachError], None]


def answer_of(client_id: bytes, status: int, token: int, flags: int) -> Admission | AttachError:
    """What the owner's answer means."""
    if status == ADMITTED:
        is_durable, present = bool(flags & DURABLE), bool(flags & PRESENT)
        absent, must_reauthorize = bool(flags & ABSENT), bool(flags & UNAUTHORIZED)
        return Admission(token, is_durable, present, absent, must_reauthorize)
    if status == FULL:
        why = "too much waits for Redis there, or the session that Redis has can't be read (then an alarm says so)"
        return OwnerFull(f"the owner of {client_id!r} does not admit it now: {why}")
    if status == OTHER_USER:
        return OtherUser(f"the client id {client_id!r} is another user's")
    if status == OVER_QUOTA:
        return OverQuota(f"the user of {client_id!r} has reached its quota")
    return Superseded(f"a newer connection has the client id {client_id!r}")
