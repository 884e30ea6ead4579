"""When a send queue to another node is congested: a high and a low watermark, so that it doesn't flap. No I/O."""

from __future__ import annotations

from flockmq.bounds import PEER_BLOCKED_BYTES, PEER_DRAINED_BYTES


def is_congested(was: bool, link_bytes: int, filled: float = 0.0) -> bool:
    """`was`: it is congested now. `link_bytes` wait on its link. `filled`: how full the queue is, from 0 to 1."""
    if was:
        return link_bytes >= PEER_DRAINED_BYTES or filled >= 0.25
    return link_bytes > PEER_BLOCKED_BYTES or filled > 0.5
