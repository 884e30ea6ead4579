"""Detects flapping clients, which connect and disconnect too often; they are then banned for a while. No I/O.

A client is a user name, a client id and an address together, so a client can't get another one banned by using its user
name or client id. Only authenticated clients count.

Invariants: at most FLAPPING_MAX_CLIENTS are counted, each with at most `max_count` times.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from flockmq.auth.bans import Client
from flockmq.bounds import FLAPPING_MAX_CLIENTS
from flockmq.config.auth_settings import FlappingSettings


class FlappingDetector:
    def __init__(self, settings: FlappingSettings, room: int = FLAPPING_MAX_CLIENTS) -> None:
        self._settings = settings
        self._room = room
        self._ended: OrderedDict[Client, deque[float]] = OrderedDict()

    def configure(self, settings: FlappingSettings) -> None:
        """Other settings; counting begins anew."""
        self._settings = settings
        self._ended.clear()

    def __len__(self) -> int:
        return len(self._ended)

    def disconnected(self, client: Client, now_s: float) -> bool:
        """Count the end of a connection. Returns True if the client must be banned now."""
        horizon_s = now_s - self._settings.window_time
        times = self._ended.pop(client, None)
        if times is None:
            times = deque(maxlen=self._settings.max_count)
        times.append(now_s)
        if len(times) == self._settings.max_count and times[0] > horizon_s:
            return True
        self._ended[client] = times
        self._forget(horizon_s)
        return False

    def _forget(self, horizon_s: float) -> None:
        """Forget clients without a disconnect in the window. The longest quiet ones are first in the dict."""
        while self._ended:
            client, times = next(iter(self._ended.items()))
            if times[-1] > horizon_s and len(self._ended) <= self._room:
                return
            del self._ended[client]
