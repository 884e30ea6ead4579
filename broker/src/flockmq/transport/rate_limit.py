"""Clients over a rate wait here, paused, until there are tokens again: nothing is dropped, nobody waits out of turn.

A client waits for its own bucket first, then in the line of each one that it shares with others (its listener's, its
node's). A line lets on only as many as it has tokens for, by what reads took lately; so a thousand clients behind one
bucket don't read a thousand times at once.

What always holds: who waits is paused by us exactly once; a closed connection is referred to no longer than
THROTTLE_CHECK_S.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING

from flockmq.bounds import THROTTLE_CHECK_S
from flockmq.transport.token_bucket import Meter, Rates

if TYPE_CHECKING:
    from flockmq.transport.metered_connection import MeteredConnection


class SharedMeter(Meter):
    """A meter that many clients draw from, and the line of those that wait for it."""

    __slots__ = ("line",)

    def __init__(self, rates: Rates, now_s: float) -> None:
        super().__init__(rates, now_s)
        self.line: dict[MeteredConnection, None] = {}

    def is_taken(self, now_s: float) -> bool:
        """Whether whoever draws from it must wait: for tokens, or behind others."""
        return bool(self.line) or self.wait_s(now_s) > 0.0


class RateLimit:
    """One per engine, which calls `tick` every THROTTLE_TICK_S while `is_busy()`."""

    def __init__(self) -> None:
        self.shared: list[SharedMeter] = []
        self._due: list[tuple[float, int]] = []
        self._alone: dict[int, MeteredConnection] = {}
        self._next: int = 0

    def share(self, rates: Rates, now_s: float) -> SharedMeter:
        shared = SharedMeter(rates, now_s)
        self.shared.append(shared)
        return shared

    def is_busy(self) -> bool:
        return bool(self._alone) or any(shared.line for shared in self.shared)

    def hold(self, client: MeteredConnection, now_s: float) -> None:
        """The client, which is paused, waits for its own bucket and then in the lines of the others; or goes on."""
        wait_s = 0.0 if client.own is None else client.own.wait_s(now_s)
        if wait_s > 0.0:
            self._next += 1
            heapq.heappush(self._due, (now_s + min(wait_s, THROTTLE_CHECK_S), self._next))
            self._alone[self._next] = client
            client.ticket = self._next
        else:
            self._line_up(client, client.listener.meters, now_s)

    def _line_up(self, client: MeteredConnection, meters: list[SharedMeter], now_s: float) -> None:
        for shared in meters:
            if shared.is_taken(now_s):
                shared.line[client] = None
                return
        client.go_on()

    def forget(self, client: MeteredConnection) -> None:
        """It was closed."""
        self._alone.pop(client.ticket, None)
        for shared in client.listener.meters:
            shared.line.pop(client, None)

    def tick(self, now_s: float) -> None:
        due: list[int] = []
        while self._due and self._due[0][0] <= now_s:
            due.append(heapq.heappop(self._due)[1])
        for ticket in due:
            client = self._alone.pop(ticket, None)
            if client is not None:
                self.hold(client, now_s)
        for shared in self.shared:
            if shared.line:
                for client in list(islice(shared.line, shared.room(now_s))):
                    del shared.line[client]
                    meters = client.listener.meters
                    self._line_up(client, meters[meters.index(shared) + 1 :], now_s)
