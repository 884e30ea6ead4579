"""What nodes and homes tell one another, as notes on the cluster link: one note carries what one turn gathered.

Tokens are larger than msgpack's integers: they travel as TOKEN_BYTES, big end first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from flockmq.home.registry import TOKEN_BYTES

ATTACH: Final = "home.attach"
ANSWER: Final = "home.answer"
KICK: Final = "home.kick"
DETACH: Final = "home.detach"
REGISTER: Final = "home.register"
RELAY: Final = "home.relay"
ORDER: Final = (RELAY, ANSWER, KICK, DETACH, ATTACH, REGISTER)
"""Of the notes of one turn. Relayed pieces of a session before the detach or the answer that says they are all there;
answers before kicks, so that a node knows the token it is asked to close.
"""

ADMITTED: Final = 0
SUPERSEDED: Final = 1
NOT_HOME: Final = 2

Attach = tuple[int, bytes, bool]
"""(number of the request at its node, client id, whether it starts clean)"""
Answer = tuple[int, int, bytes]
"""(number of the request, ADMITTED | SUPERSEDED | NOT_HOME, token)"""
ClientToken = tuple[bytes, bytes]
"""(client id, token): of DETACH and REGISTER"""
KickOf = tuple[bytes, bytes, str, bool]
"""(client id, token, the newcomer's node, whether it starts clean)"""
Relay = tuple[str, str, bytes, bytes]
"""(incarnation it goes to, incarnation it comes from, client id, what it says): passed on by a home, unread"""

encode: Final = msgspec.msgpack.Encoder().encode
decode_attaches: Final = msgspec.msgpack.Decoder(list[Attach]).decode
decode_answers: Final = msgspec.msgpack.Decoder(list[Answer]).decode
decode_kicks: Final = msgspec.msgpack.Decoder(list[KickOf]).decode
decode_relays: Final = msgspec.msgpack.Decoder(list[Relay]).decode
decode_clients: Final = msgspec.msgpack.Decoder(list[ClientToken]).decode


def pack_token(token: int) -> bytes:
    return token.to_bytes(TOKEN_BYTES, "big")


def unpack_token(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def batches(items: Sequence[object], limit: int) -> list[bytes]:
    """Encoded notes of at most `limit` items each."""
    return [encode(items[start : start + limit]) for start in range(0, len(items), limit)]
