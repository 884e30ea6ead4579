"""Who gave wrong keys lately, and how long the next answer takes for it. Pure.

A right key is never slowed: behind one address there may be many clients, and nobody finds 32 random bytes by trying.
Slowed is who tries all the same, and with it the lines in the log.
"""

from __future__ import annotations

from flockmq.bounds import (
    API_FAILURE_MAX_S,
    API_FAILURE_MIN_S,
    API_FAILURES_FORGOTTEN_S,
    API_FAILURES_MAX_ADDRESSES,
)


class Failures:
    def __init__(self) -> None:
        self._by_address: dict[str, tuple[int, float]] = {}
        """Address → how many in a row, and when the last one was; the one that was quiet for the longest first."""

    def failed(self, address: str, now_s: float) -> float:
        """A wrong key came once more. Returns for how many seconds its answer is to wait."""
        count, last_s = self._by_address.pop(address, (0, now_s))
        count = 1 if now_s - last_s > API_FAILURES_FORGOTTEN_S else count + 1
        self._by_address[address] = count, now_s
        if len(self._by_address) > API_FAILURES_MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]
        return min(API_FAILURE_MIN_S * (1 << min(count - 1, 16)), API_FAILURE_MAX_S)
