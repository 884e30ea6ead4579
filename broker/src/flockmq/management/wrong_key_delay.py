"""The delay of the answer to a wrong API key, per client address. No I/O.

A right key is never delayed: many clients may share one address, and nobody can guess 32 random bytes. The delay only
slows down clients that try, and so the lines that they cause in the log file.
"""

from __future__ import annotations

from flockmq.bounds import (
    API_FAILURE_MAX_S,
    API_FAILURE_MIN_S,
    API_FAILURES_FORGOTTEN_S,
    API_FAILURES_MAX_ADDRESSES,
)


class WrongKeyDelay:
    def __init__(self) -> None:
        self._by_address: dict[str, tuple[int, float]] = {}
        """Address → (count of wrong keys in a row, time of the last one). The longest quiet address is first."""

    def failed(self, address: str, now_s: float) -> float:
        """Count a wrong key. Returns the delay of its answer in seconds."""
        count, last_s = self._by_address.pop(address, (0, now_s))
        count = 1 if now_s - last_s > API_FAILURES_FORGOTTEN_S else count + 1
        self._by_address[address] = count, now_s
        if len(self._by_address) > API_FAILURES_MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]
        return min(API_FAILURE_MIN_S * (1 << min(count - 1, 16)), API_FAILURE_MAX_S)
