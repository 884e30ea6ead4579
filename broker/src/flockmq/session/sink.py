"""Where encoded packets are put until the end of the turn.

A sink owns the bytes that wait for one peer: a client's connection or another node's link. Packets are appended as
chunks, by reference, so that one chunk can stand in many sinks; the first chunk of a turn puts the sink on the turn's
list of dirty sinks, and the owner of the descriptor flushes that list once, when the turn ends.

What always holds: a sink is on the dirty list at most once; `out_bytes` is the sum of the lengths in `out`.
"""

from __future__ import annotations


class Sink:
    """One peer's outgoing bytes. Subclasses own the descriptor and say how a flush is done."""

    __slots__ = ("dirty", "out", "out_bytes", "protocol_version", "turn")

    def __init__(self, turn: list[Sink], protocol_version: int) -> None:
        self.out: list[bytes] = []
        self.out_bytes: int = 0
        self.dirty: bool = False
        self.turn = turn
        self.protocol_version = protocol_version

    def put(self, chunk: bytes) -> None:
        """Append one chunk of whole packets, encoded for `protocol_version`."""
        self.out.append(chunk)
        self.out_bytes += len(chunk)
        if not self.dirty:
            self.dirty = True
            self.turn.append(self)
