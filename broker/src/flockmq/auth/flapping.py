"""Clients that come and go all the time are kept out for a while. Pure.

Only clients that were let in are counted: whoever can't authenticate can't have another's client id banned.
What always holds: at most FLAPPING_MAX_CLIENTS client ids are counted, each with at most `max_count` times.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from flockmq.auth.settings import Flapping
from flockmq.bounds import FLAPPING_MAX_CLIENTS


class FlappingDetector:
    def __init__(self, settings: Flapping, room: int = FLAPPING_MAX_CLIENTS) -> None:
        self._settings = settings
        self._room = room
        self._ended: OrderedDict[bytes, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ended)

    def disconnected(self, client_id: bytes, now_s: float) -> bool:
        """A connection of this client ended. True: it was the last of too many within the window."""
        if not self._settings.enable:
            return False
        horizon_s = now_s - self._settings.window_time
        times = self._ended.pop(client_id, None)
        if times is None:
            times = deque(maxlen=self._settings.max_count)
        times.append(now_s)
        if len(times) == self._settings.max_count and times[0] > horizon_s:
            return True
        self._ended[client_id] = times
        self._forget(horizon_s)
        return False

    def _forget(self, horizon_s: float) -> None:
        """Who was quiet for the whole window; the quietest stand first."""
        while self._ended:
            client_id, times = next(iter(self._ended.items()))
            if times[-1] > horizon_s and len(self._ended) <= self._room:
                return
            del self._ended[client_id]
