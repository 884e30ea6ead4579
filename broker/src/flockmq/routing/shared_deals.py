"""Which member of each shared subscription a QoS 2 message was assigned to, so that a resend goes to the same member.

The first node that receives the message proposes a member of each group. The owner of the publisher's session commits
that with the message id, and returns the same to any node that asks again. A member takes the message once, by its id
in that group: a node checks the ids that it has seen, a slot the last number of each source.

 deals = for each group: a hash of its filter (8) · number (u32) · bytes of the owner (u16) · owner

The owner is the incarnation of a node with members, or `#N`, a slot. The number identifies the member there. No I/O.
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
    """The member for this group; None: none was proposed."""
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
    """The message's id in this group, with a source of its own and the same number. So, if a slot also gets the message
    through another filter, it keeps a last number for each.
    """
    digest = blake2b(origin[:SOURCE_BYTES] + share_filter, digest_size=SOURCE_BYTES, person=b"group").digest()
    return session_source(digest) + origin[SOURCE_BYTES : 2 * SOURCE_BYTES]


def anew(origin: bytes) -> bytes:
    """The id of a message that had this one in its group, where it is dealt out anew, because whoever had it is gone.
    Several nodes may do so, and the members of one node take it from one of them."""
    return origin_in(origin, b"anew")


def _hash(share_filter: bytes) -> bytes:
    return blake2b(share_filter, digest_size=_HASH_BYTES).digest()
