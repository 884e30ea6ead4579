"""When a sink of messages for another node is congested: two marks, so that it doesn't flutter. Pure."""

from __future__ import annotations

from flockmq.bounds import PEER_BLOCKED_BYTES, PEER_DRAINED_BYTES


def is_congested(was: bool, link_bytes: int, filled: float = 0.0) -> bool:
    """`was`: it is so far. `link_bytes` wait on its link; `filled`: how much of what it may hold waits in the sink."""
    if was:
        return link_bytes >= PEER_DRAINED_BYTES or filled >= 0.25
    return link_bytes > PEER_BLOCKED_BYTES or filled > 0.5
