"""What nodes and owners of slots tell one another, as notes on the cluster link. A note has what one turn gathered.

A connection is named by its token, which is larger than msgpack's integers: it travels as TOKEN_BYTES, big end first.
What an owner sends to the client of a session that runs there is no note but data, in `delivery` frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

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
TOLD: Final = "home.told"
OVERFLOW: Final = "home.overflow"
AGAIN: Final = "home.again"
CONGESTED: Final = "home.crowd"
TAKERS: Final = "home.takers"
"""From cluster version 2 on."""
ORDER: Final = (
    *(ANSWER, KICK, REGISTER, REPORT, ASK, TOLD, OVERFLOW, EVICT, DETACH, ATTACH, AGAIN, CONGESTED, TAKERS),
)
"""Of the notes of one turn. Answers before kicks, so that a node knows the token it is asked to close; what a client
did before that it is gone.
"""

ADMITTED: Final = 0
SUPERSEDED: Final = 1
NOT_OWNER: Final = 2
FULL: Final = 3
ANOTHERS: Final = 4
"""Another user has the client id: a connection, or a session."""
OVER_QUOTA: Final = 5
"""Its user has all that one may have."""

LASTS: Final = 1
"""The session runs at its owner; without it, on the node of its connection."""
PRESENT: Final = 2
"""It was there before this connection."""
UNJUDGED: Final = 8
"""Other rules hold for the client than those by which its subscriptions were allowed: nothing is sent before the node
says which of them still are (`JudgedQuestion`)."""
ABSENT: Final = 4
"""There was neither a session nor a connection that had to end. An owner of an earlier release doesn't say."""


class WillRow(msgspec.Struct, frozen=True, array_like=True):
    """A will, as one PUBLISH packet of an MQTT version; `authorization` as in `protocol.connect.Will`."""

    delay_s: int
    version: int
    packet: bytes
    authorization: bytes = b""


class Opening(msgspec.Struct, frozen=True, array_like=True):
    """What a CONNECT asks of a session that lasts, or may be there already, or has a will. `window` and
    `max_packet_bytes` are the client's; `zone` names its limits; `nonce` is this CONNECT's, by which an owner knows it
    again when its answer was lost; `user`: whose client id it is from now on, as the node authenticated it (b"":
    nobody), or None where client ids aren't bound to users. `rules` stand for those that hold for the client, b"": they
    may be any, so that its subscriptions are to be judged; None: it may do everything, or was judged.
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


def is_guest(opening: Opening) -> bool:
    """Its session starts and ends with the connection, and is at its node: the owner has its will and user alone."""
    return opening.clean_start and not opening.expiry_s


class WantedSubscription(msgspec.Struct, frozen=True, array_like=True):
    """One subscription that is asked for."""

    filter: bytes
    options: int
    """As in SUBSCRIBE (section 3.8.3.1)."""
    asked: bytes = b""
    """What the client asked for, where another filter was made of it."""


class SubscribeQuestion(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Answered with a list of reason codes; `identifiers` as in `routing.subscriber`."""

    wanted: list[WantedSubscription]
    identifiers: bytes


class UnsubscribeQuestion(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Answered with a list of reason codes, the same however often it is asked; `nonce` is this UNSUBSCRIBE's."""

    filters: list[bytes]
    nonce: bytes


class ReceiveQuestion(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A QoS 2 PUBLISH came under this packet id: answered with the origin it is published under, 16 bytes, and behind
    it the deals (`routing.shared_deals`) with which it came first, or, where too many wait for their PUBREL, with none.
    """

    packet_id: int
    deals: bytes = b""


class StandingQuestion(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Answered with a page of the session's subscriptions, behind the first `after`: of each its filter, what the
    client asked for, and its QoS; and where the next page begins, 0 for none.
    """

    after: int


class JudgedQuestion(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """All of them were judged by `rules` (as in `Opening`): these end, as by UNSUBSCRIBE, and what waits by them alone
    goes nowhere. Answered with a list of reason codes.
    """

    denied: list[bytes]
    rules: bytes


Question = SubscribeQuestion | UnsubscribeQuestion | ReceiveQuestion | StandingQuestion | JudgedQuestion
Answered = Callable[[bytes], None]
"""Gets the answer to a question, in msgpack; b"": there is none."""
Page = tuple[list[tuple[bytes, bytes, int]], int]

Attach = tuple[int, bytes, Opening | None]
"""(number of the request at its node, client id, what it opens; None: a session that starts and ends with it, has no
will and is nobody's)"""
Answer = tuple[int, int, bytes, int]
"""(number of the request, ADMITTED | SUPERSEDED | NOT_OWNER | FULL | ANOTHERS | OVER_QUOTA, token, LASTS | PRESENT, or
ABSENT)"""
ClientToken = tuple[bytes, bytes]
"""(client id, token): of KICK and OVERFLOW"""
Detach = tuple[bytes, bytes, int, bool, bytes]
"""(client id, token, the expiry in seconds that its DISCONNECT said, -1 for none; whether its will is published; the
nonce of what it opened, or b"")"""
Evict = tuple[bytes, bytes, int, bytes, int, Opening | None]
"""As DETACH, of a client that its node sent to others: (client id, token, the session's expiry in seconds, the nonce of
what it opened, for how many ms its will is held back; what it opened, where its session ended with the connection)"""
Register = tuple[bytes, bytes, Opening | None, bytes]
"""(client id, token, what it opened, where its session runs at its owner or it `is_guest`, and all that it reported and
isn't settled)"""
Report = tuple[bytes, bytes]
"""(token, (kind, packet id) of 3 bytes each): what a client answered"""
Ask = tuple[int, int, bytes, bytes, Question]
"""(number at its node, that of the connection's question before it if that isn't answered, or 0; client id, token,
question)"""
Told = tuple[int, bytes]
"""(number, answer in msgpack; b"": this core can't tell, ask again)"""

Again = int
"""A slot, of which the owner missed something: register anew, and say again who left."""

Congested = tuple[int, bool]
"""(slot, whether for a session there more waits than it takes): whoever publishes to it is to pause meanwhile"""

Takers = tuple[int, bool, list[bytes]]
"""(slot, whether members of shared subscriptions there take what comes, filters of sessions that would have it wait)"""

encode: Final = msgspec.msgpack.Encoder().encode
decode_attaches: Final = msgspec.msgpack.Decoder(list[Attach]).decode
decode_answers: Final = msgspec.msgpack.Decoder(list[Answer]).decode
decode_clients: Final = msgspec.msgpack.Decoder(list[ClientToken]).decode
decode_detaches: Final = msgspec.msgpack.Decoder(list[Detach]).decode
decode_evicts: Final = msgspec.msgpack.Decoder(list[Evict]).decode
decode_registers: Final = msgspec.msgpack.Decoder(list[Register]).decode
decode_reports: Final = msgspec.msgpack.Decoder(list[Report]).decode
decode_asks: Final = msgspec.msgpack.Decoder(list[Ask]).decode
decode_tolds: Final = msgspec.msgpack.Decoder(list[Told]).decode
decode_slots: Final = msgspec.msgpack.Decoder(list[Again]).decode
decode_congested: Final = msgspec.msgpack.Decoder(list[Congested]).decode
decode_takers: Final = msgspec.msgpack.Decoder(list[Takers]).decode
decode_reasons: Final = msgspec.msgpack.Decoder(list[int]).decode
decode_page: Final[Callable[[bytes], Page]] = msgspec.msgpack.Decoder(Page).decode
decode_origin: Final = msgspec.msgpack.Decoder(bytes).decode


def user_of(opening: Opening | None) -> bytes | None:
    return None if opening is None else opening.user


def nonce_of(opening: Opening | None) -> bytes:
    return b"" if opening is None else opening.nonce


def size_of(client_id: bytes, opening: Opening | None) -> int:
    """What an attach counts for, in bytes."""
    if opening is None:
        return len(client_id)
    will_bytes = 0 if opening.will is None else len(opening.will.packet) + len(opening.will.authorization)
    return len(client_id) + len(opening.user or b"") + will_bytes


def pack_token(token: int) -> bytes:
    return token.to_bytes(TOKEN_BYTES, "big")


def unpack_token(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def batches(items: Sequence[object], limit: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Notes of at most `limit` items, and of about `max_bytes` or of one item, each: how many it has, encoded."""
    for start in range(0, len(items), limit):
        some = items[start : start + limit]
        note = encode(some)
        if len(note) <= max_bytes or len(some) == 1:
            yield len(some), note
        else:  # wills and filters are as large as clients like
            yield from batches(some, (len(some) + 1) // 2, max_bytes)


_LENGTH_BYTES: Final = 4


def delivery(token: int, chunk: bytes) -> bytes:
    """Packets for one client, as they stand in the body of a DELIVERY frame behind those for others."""
    return pack_token(token) + len(chunk).to_bytes(_LENGTH_BYTES, "big") + chunk


def deliveries(body: bytes) -> Iterator[tuple[int, bytes]]:
    """(token, packets) of each client in a DELIVERY frame. Raises ValueError for what no core of ours sends."""
    at, end = 0, len(body)
    while at < end:
        start = at + TOKEN_BYTES + _LENGTH_BYTES
        stop = start + int.from_bytes(body[start - _LENGTH_BYTES : start], "big")
        if start > end or stop > end:
            raise ValueError(f"a DELIVERY frame of {end} bytes that ends amid a client's packets")
        yield unpack_token(body[at : at + TOKEN_BYTES]), body[start:stop]
        at = stop
