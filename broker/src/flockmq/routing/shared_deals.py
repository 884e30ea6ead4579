"""To which member of each shared subscription a QoS 2 message is dealt: there it goes again when it is repeated.

The node to which the message comes first proposes a member of each group. The owner of the publisher's session commits
that with the message's origin, and answers the same to whoever asks again, on whatever node. A member takes the message
once, under its origin in that group: a node looks that up among the origins that it saw, a slot among its marks.

    deals = for each group: a hash of its filter (8) · number (u32) · bytes of the owner (u16) · owner

The owner is the incarnation of a node that has members, or `#N`, a slot; the number says which member there. Pure.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

from flockmq.routing.message_id import SOURCE_BYTES, session_source

_HASH_BYTES: Final = 8
_DEAL: Final = Struct(">8sIH")


class Deal:
    __slots__ = ("number", "owner")

    def __init__(self, owner: str, number: int) -> None:
        self.owner = owner
        self.number = number


def encoded(share_filter: bytes, owner: str, number: int) -> bytes:
    name = owner.encode()
    return _DEAL.pack(_hash(share_filter), number, len(name)) + name


def find(deals: bytes, share_filter: bytes) -> Deal | None:
    """To whom of this group; None: nobody was proposed."""
    if not deals:
        return None
    wanted = _hash(share_filter)
    at = 0
    while at + _DEAL.size <= len(deals):
        group, number, owner_bytes = _DEAL.unpack_from(deals, at)
        owner_at = at + _DEAL.size
        at = owner_at + owner_bytes
        if group == wanted:
            return Deal(deals[owner_at:at].decode(), number)
    return None


def origin_in(origin: bytes, share_filter: bytes) -> bytes:
    """The message's id in this group: numbers that grow, of a source of its own. A slot that wants the message by
    another filter, too, has a mark for each."""
    digest = blake2b(origin[:SOURCE_BYTES] + share_filter, digest_size=SOURCE_BYTES, person=b"group").digest()
    return session_source(digest) + origin[SOURCE_BYTES : 2 * SOURCE_BYTES]


def _hash(share_filter: bytes) -> bytes:
    return blake2b(share_filter, digest_size=_HASH_BYTES).digest()
