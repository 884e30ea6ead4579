"""How long this node lets clients wait for CONNACK. Nodes that send clients here slow down when it is long.

Invariant: a client that must answer first, in a SCRAM exchange, doesn't count as waiting. No I/O.
"""

from __future__ import annotations

from flockmq.protocol.channel import ADMITTING, Channel


class ConnectWaits:
    """Connections whose CONNECT couldn't be answered at once."""

    def __init__(self) -> None:
        self._since_s: dict[Channel, float] = {}
        """Those that have waited longest come first. Who was answered is forgotten at the next look."""

    def note(self, channel: Channel, now_s: float) -> None:
        """This node is busy with the client's CONNECT, from now on."""
        self._since_s.setdefault(channel, now_s)

    def longest_s(self, now_s: float) -> float:
        """For how long the client has waited that has waited longest; 0.0 if none does."""
        self._since_s = {channel: since for channel, since in self._since_s.items() if channel.state == ADMITTING}
        return now_s - next(iter(self._since_s.values()), now_s)
