"""Keeps an old retained message from overwriting a newer one that the same client published through another node.

A client may reconnect at another node while its messages still wait at the first one, for Redis or for a network path.
The two nodes write independently, so the older message may reach the log last. Invariant: no message replaces one that
a later connection of the same client wrote to its topic, or the will of the same connection. Every node decides this in
the same way, from the log alone. No I/O.

An author is the hash of a client id (8 bytes), the token of a connection (16 bytes), and whether the message is a will
(1 byte). A client's tokens only grow, whichever nodes it connects to (session_rpc/client_registry.py).
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_digest

_CLIENT_BYTES: Final = 8
_TOKEN_BYTES: Final = 16
AUTHOR_BYTES: Final = _CLIENT_BYTES + _TOKEN_BYTES + 1


def author_of(client_id: bytes, token: int, *, is_will: bool) -> bytes:
    """The author of a connection's publishes, or of its will, which comes after all of them."""
    return xxh3_64_digest(client_id) + token.to_bytes(_TOKEN_BYTES, "big") + (b"\1" if is_will else b"\0")


def is_overtaken(author: bytes, by: bytes) -> bool:
    """True if the same client wrote `by` later than `author`. The author b"" is unknown, and never overtaken."""
    return author[:_CLIENT_BYTES] == by[:_CLIENT_BYTES] and author < by
