"""Token buckets: limit how fast clients are read. No I/O: the caller passes the time.

A client pays for a read after it was made, so its bucket may go into debt, and it waits until the debt is paid. Nothing
is dropped, and in the long run the rate is exact: until time t at most burst + rate·t + one read went through, and a
client that always has data gets at least rate·t.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import THROTTLE_TICK_S


@mypyc_attr(acyclic=True)
class Bucket:
    """`rate` tokens per second are added, up to `burst`, which is at least what is added between two checks. `mean`:
    the average cost of recent reads.
    """

    __slots__ = ("_at_s", "_tokens", "burst", "mean", "rate")

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self.rate = rate
        self.burst: float = max(burst or rate, 2.0 * THROTTLE_TICK_S * rate, 1.0)
        self.mean: float = 1.0
        self._tokens: float = self.burst
        self._at_s = now_s

    def debit(self, amount: float, now_s: float) -> None:
        self._tokens = self.tokens(now_s) - amount
        self._at_s = now_s
        self.mean += (amount - self.mean) / 16.0

    def tokens(self, now_s: float) -> float:
        """The tokens; negative: a debt."""
        return min(self.burst, self._tokens + (now_s - self._at_s) * self.rate)

    def wait_s(self, now_s: float) -> float:
        """Time until the debt is paid; 0 without debt."""
        tokens = self.tokens(now_s)
        return -tokens / self.rate if tokens < 0.0 else 0.0


@mypyc_attr(acyclic=True)
class Rates:
    """Configured rates: messages and bytes per second, and their bursts. 0: no limit; burst 0: one second's worth."""

    __slots__ = ("bytes_burst", "bytes_rate", "messages_burst", "messages_rate")

    def __init__(
        self, messages_rate: float = 0.0, messages_burst: float = 0.0, bytes_rate: float = 0.0, bytes_burst: float = 0.0
    ) -> None:
        self.messages_rate = messages_rate
        self.messages_burst = messages_burst
        self.bytes_rate = bytes_rate
        self.bytes_burst = bytes_burst

    def are_off(self) -> bool:
        return self.messages_rate == 0.0 and self.bytes_rate == 0.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Meter:
    """Counts messages and bytes of one client, or of all clients of a listener or a node."""

    __slots__ = ("bytes", "messages")

    def __init__(self, rates: Rates, now_s: float) -> None:
        self.messages: Bucket | None = None
        self.bytes: Bucket | None = None
        self.configure(rates, now_s)

    def configure(self, rates: Rates, now_s: float) -> None:
        """Other rates. The buckets are full, so a debt is forgiven."""
        self.messages = self.bytes = None
        if rates.messages_rate > 0.0:
            self.messages = Bucket(rates.messages_rate, rates.messages_burst, now_s)
        if rates.bytes_rate > 0.0:
            self.bytes = Bucket(rates.bytes_rate, rates.bytes_burst, now_s)

    def debit(self, messages: int, size: int, now_s: float) -> None:
        if self.messages is not None and messages:
            self.messages.debit(float(messages), now_s)
        if self.bytes is not None and size:
            self.bytes.debit(float(size), now_s)

    def wait_s(self, now_s: float) -> float:
        """How long a client must wait now."""
        wait_s = 0.0
        if self.messages is not None:
            wait_s = self.messages.wait_s(now_s)
        if self.bytes is not None:
            wait_s = max(wait_s, self.bytes.wait_s(now_s))
        return wait_s

    def room(self, now_s: float) -> int:
        """For how many reads of average size there are tokens; at least one if there is no debt."""
        room = 1 << 30
        for bucket in (self.messages, self.bytes):
            if bucket is not None:
                tokens = bucket.tokens(now_s)
                if tokens < 0.0:
                    return 0
                room = min(room, 1 + int(tokens / max(bucket.mean, 1.0)))
        return room
