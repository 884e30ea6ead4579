"""Clients whose login expires, in a heap ordered by expiry time. No I/O."""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

T = TypeVar("T")
SLACK: Final = 1000
"""The heap is rebuilt when it has this many more entries than twice the number of clients."""


class LoginExpiry(Generic[T]):
    def __init__(self) -> None:
        self._clients: dict[bytes, tuple[float, T]] = {}
        self._heap: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, client_id: bytes, at_s: float, client: T) -> None:
        """Replaces an earlier entry of this client id."""
        self._clients[client_id] = (at_s, client)
        heapq.heappush(self._heap, (at_s, client_id))
        if len(self._heap) > 2 * len(self._clients) + SLACK:
            self._heap = [(at_s, client_id) for client_id, (at_s, _) in self._clients.items()]
            heapq.heapify(self._heap)

    def remove(self, client_id: bytes, client: T) -> None:
        """Remove this connection. A newer connection with the same client id stays."""
        known = self._clients.get(client_id)
        if known is not None and known[1] is client:
            del self._clients[client_id]

    def due(self, now_s: float) -> list[T]:
        """Remove and return the clients whose login has expired."""
        over = []
        while self._heap and self._heap[0][0] <= now_s:
            at_s, client_id = heapq.heappop(self._heap)
            known = self._clients.get(client_id)
            if known is not None and known[0] == at_s:
                del self._clients[client_id]
                over.append(known[1])
        return over
