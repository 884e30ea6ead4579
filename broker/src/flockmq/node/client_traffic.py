"""What each client of this node has of its load: whether its session is durable, and its messages per second.

Each client's messages are counted every CLIENT_TRAFFIC_LOOK_S, in slices, and averaged. Who is sent away is forgotten
at once, so that what the node reports falls at once, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from flockmq.bounds import CLIENT_TRAFFIC_AVERAGED_S, CLIENT_TRAFFIC_LOOK_S, CLIENT_TRAFFIC_SLICE
from flockmq.node.node_load import Figures
from flockmq.protocol.channel import CONNECTED, Channel

_LEAST_PER_S: Final = 0.01
"""Fewer messages per second are none, so that quiet clients take no memory here."""


class ClientTraffic:
    """One per node. `clients`: its connections, the oldest first. Memory: two numbers for each of them."""

    def __init__(self, clients: Mapping[bytes, Channel], monotonic: Callable[[], float]) -> None:
        self._clients = clients
        self._monotonic = monotonic
        self._counted_s = monotonic()
        self._counts: dict[bytes, int] = {}
        """Client id → messages of its connection when they were counted last."""
        self._rates: dict[bytes, float] = {}
        """Client id → messages per second, of each client that has any."""
        self._sessions = 0
        self._messages_per_s = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(CLIENT_TRAFFIC_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Count all clients anew."""
        now_s = self._monotonic()
        elapsed_s, self._counted_s = now_s - self._counted_s, now_s
        counts, rates, sessions = dict[bytes, int](), dict[bytes, float](), 0
        newest = 1.0 - math.exp(-elapsed_s / CLIENT_TRAFFIC_AVERAGED_S)
        for number, client_id in enumerate(list(self._clients), 1):
            if not number % CLIENT_TRAFFIC_SLICE:
                await asyncio.sleep(0)
            channel = self._clients.get(client_id)
            if channel is None:
                continue
            counts[client_id] = count = channel.messages_in + channel.messages_out
            sessions += has_durable_session(channel)
            rate = self._rate(client_id, count, elapsed_s, newest)
            if rate >= _LEAST_PER_S:
                rates[client_id] = rate
        self._counts, self._rates, self._sessions = counts, rates, sessions
        self._messages_per_s = sum(rates.values())

    def _rate(self, client_id: bytes, count: int, elapsed_s: float, newest: float) -> float:
        """A connection that wasn't counted before has the rate of the time since the last look."""
        rate = self._rates.get(client_id, 0.0)
        if elapsed_s <= 0.0:
            return rate
        before = self._counts.get(client_id, count + 1)
        if count < before:  # it is another connection than the one that was counted
            return count / elapsed_s
        return rate + ((count - before) / elapsed_s - rate) * newest

    # What is known.

    def figures(self) -> Figures:
        """Of all clients now. Those that came since the last look count as connections alone."""
        return Figures(len(self._clients), min(self._sessions, len(self._clients)), max(self._messages_per_s, 0.0))

    def figures_of(self, channel: Channel) -> Figures:
        return Figures(1, int(has_durable_session(channel)), self._rates.get(channel.client_id(), 0.0))

    def oldest(self, number: int) -> Iterator[Channel]:
        return islice(self._clients.values(), number)

    def is_here(self, channel: Channel) -> bool:
        """Whether it is still a client of this node."""
        return channel.state == CONNECTED and self._clients.get(channel.client_id()) is channel

    def age_s(self, channel: Channel) -> float:
        """For how long it has been connected."""
        return self._monotonic() - channel.connected_s

    def gone(self, channel: Channel) -> None:
        """It is about to be sent away."""
        client_id = channel.client_id()
        if self._counts.pop(client_id, None) is not None:
            self._sessions -= has_durable_session(channel)
            self._messages_per_s -= self._rates.pop(client_id, 0.0)


def has_durable_session(channel: Channel) -> bool:
    session = channel.session
    return session is not None and session.is_remote()
