"""Whether this node can serve, as it says in its readiness and to the others. Pure.

It can't while it doesn't reach Redis and another node does, nor while its tables may be old: who comes to it would
wait. Nor while it comes back after a purge, for others don't know yet what its clients subscribe to. A moment of any is
no matter. While Redis is away for everybody no node can do better than another, and what can go on does: then nobody is
unfit for it. But a Redis that is this node's alone is a part of it: nobody else looks after it, and the node isn't fit
without.
"""

from __future__ import annotations

from typing import Final, Protocol

from flockmq.bounds import UNFIT_AFTER_S

CUT_OFF: Final = "it doesn't reach Redis, which other nodes reach"
STALE: Final = "its tables may be old"
COMING_BACK: Final = "the cluster took it for dead, and doesn't know yet again what its clients subscribe to"


OWN_AWAY: Final = "the embedded Valkey is away"
SILENT: Final = "it doesn't answer"


class OwnRedis(Protocol):
    """A Redis that is this node's alone. `trouble`: why it is away, as far as who runs it knows."""

    @property
    def trouble(self) -> str: ...

    @property
    def where(self) -> str:
        """Where somebody can look, and what at."""


class Readiness:
    """`unfit`: why it can't serve, "" if it can."""

    def __init__(self) -> None:
        self.unfit = ""
        self.own_redis: OwnRedis | None = None
        self.is_cut_off = False
        """It hears nothing from Redis, and another node does."""
        self.is_coming_back = False
        self._since: dict[str, float] = {}

    def look(self, now: float, *, is_cut_off: bool, is_stale: bool, hears_redis: bool) -> None:
        """Ten times a second."""
        self.is_cut_off = is_cut_off
        lacks_own = self.own_redis is not None and (not hears_redis or bool(self.own_redis.trouble))
        said = (
            (OWN_AWAY, lacks_own),
            (CUT_OFF, is_cut_off),
            (STALE, is_stale),
            (COMING_BACK, self.is_coming_back),
        )
        reasons = [reason for reason, holds in said if holds]
        self._since = {reason: self._since.get(reason, now) for reason in reasons}
        self.unfit = next((reason for reason, since in self._since.items() if now - since >= UNFIT_AFTER_S), "")
        if self.unfit == OWN_AWAY:
            self.unfit = f"{OWN_AWAY}: {self.own_trouble()}"

    def own_trouble(self) -> str:
        """What is wrong with this node's own Redis, and where to look; "" where it has none."""
        own = self.own_redis
        return "" if own is None else f"{own.trouble or SILENT}; {own.where}"
