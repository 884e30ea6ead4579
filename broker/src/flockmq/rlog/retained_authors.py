"""Who wrote a retained message: what a client left at one node doesn't overwrite what it wrote at another since.

A client may come back at another node while what it published waits at the first one, for Redis or for a path to it.
The two nodes write independently of one another, so the older message may come to the log last. What always holds: no
message replaces one that a later connection of the same client, or the will of the same connection, wrote to its topic.
All nodes find that alike, by what stands in the log. Pure.

An author is the hash of a client id (8 bytes), the token of a connection (16; a client's tokens only grow, whatever
nodes it is at, see session_rpc/client_registry.py), and whether it is its will (1).
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_digest

_CLIENT_BYTES: Final = 8
_TOKEN_BYTES: Final = 16
AUTHOR_BYTES: Final = _CLIENT_BYTES + _TOKEN_BYTES + 1


def author_of(client_id: bytes, token: int, *, is_will: bool) -> bytes:
    """The author of what a connection publishes, or of its will, which comes behind all that it published."""
    return xxh3_64_digest(client_id) + token.to_bytes(_TOKEN_BYTES, "big") + (b"\1" if is_will else b"\0")


def is_overtaken(author: bytes, by: bytes) -> bool:
    """Whether the same client has written later. b"" is nobody, whom nobody overtakes."""
    return author[:_CLIENT_BYTES] == by[:_CLIENT_BYTES] and author < by
