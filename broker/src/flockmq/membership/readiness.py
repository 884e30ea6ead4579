"""Whether this node can serve clients: its readiness, which it also reports to other nodes. No I/O.

A node is not ready when one of these lasts longer than UNFIT_AFTER_S:

- It can't reach Redis although another node can.
- Its tables may be stale: its clients would wait.
- It is rejoining after a purge: other nodes don't know yet what its clients subscribe to.
- It has its own embedded Redis, and that is down.

If the nodes share a Redis and none reaches it, all stay ready, because no other node could serve better.
"""

from __future__ import annotations

from typing import Final, Protocol

from flockmq.bounds import UNFIT_AFTER_S

CUT_OFF: Final = "it doesn't reach Redis, which other nodes reach"
STALE: Final = "its tables may be old"
COMING_BACK: Final = "it was purged and is rejoining: other nodes don't know yet what its clients subscribe to"


OWN_AWAY: Final = "the embedded Valkey is away"
SILENT: Final = "it doesn't answer"


class OwnRedis(Protocol):
    """A Redis that only this node uses. `trouble`: why it is down, if the code that runs it knows."""

    @property
    def trouble(self) -> str: ...

    @property
    def where(self) -> str:
        """Where to look, for example a log file."""


class Readiness:
    """`unfit`: why it isn't ready, "" if it is."""

    def __init__(self) -> None:
        self.unfit = ""
        self.own_redis: OwnRedis | None = None
        self.is_cut_off = False
        """It hears nothing from Redis, but another node does."""
        self.is_coming_back = False
        self._since: dict[str, float] = {}

    def look(self, now: float, *, is_cut_off: bool, is_stale: bool, hears_redis: bool) -> None:
        """Update `unfit`; ten times a second."""
        self.is_cut_off = is_cut_off
        lacks_own = self.own_redis is not None and (not hears_redis or bool(self.own_redis.trouble))
        checks = ((OWN_AWAY, lacks_own), (CUT_OFF, is_cut_off), (STALE, is_stale), (COMING_BACK, self.is_coming_back))
        reasons = [reason for reason, holds in checks if holds]
        self._since = {reason: self._since.get(reason, now) for reason in reasons}
        self.unfit = next((reason for reason, since in self._since.items() if now - since >= UNFIT_AFTER_S), "")
        if self.unfit == OWN_AWAY:
            self.unfit = f"{OWN_AWAY}: {self.own_trouble()}"

    def own_trouble(self) -> str:
        """What is wrong with this node's own Redis, and where to look; "" if it has none."""
        own = self.own_redis
        return "" if own is None else f"{own.trouble or SILENT}; {own.where}"
