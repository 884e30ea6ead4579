"""Which cores serve slots, as the leader judges by what they say of themselves. Pure.

A core that hears nothing from Redis can make no session durable, so it loses its slots where another one can. The
leader looks at each of its beats, which it has only while it reaches Redis itself: while Redis, or one server of
several, is away for everybody nothing is counted, and nobody loses anything. When it is back the others have
SLOTS_UNSERVED_MAX_S to hear it, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from flockmq.bounds import LEASE_TTL_S, SLOTS_UNSERVED_MAX_S


class ServingCores:
    """`unable`: who has said for SLOTS_UNSERVED_MAX_S that it hears nothing from Redis, or did until lately."""

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._deaf_since: dict[str, float] = {}
        self._unable: dict[str, float] = {}
        """And when it said so last."""

    def look(self, now: float, hears_redis: Mapping[str, bool | None]) -> None:
        """One beat of the leader. `hears_redis`: what each node says of itself; None: it doesn't say."""
        if now - self._looked_at > LEASE_TTL_S:
            self._deaf_since.clear()  # it didn't lead, or Redis was away: for the others, too, maybe
        self._looked_at = now
        if not any(hears_redis.values()):
            self._deaf_since.clear()
            self._unable = dict.fromkeys(self._unable, now)
            return
        deaf = [node for node, hears in hears_redis.items() if hears is False]
        self._deaf_since = {node: self._deaf_since.get(node, now) for node in deaf}
        for node, since in self._deaf_since.items():
            if node in self._unable or now - since >= SLOTS_UNSERVED_MAX_S:
                self._unable[node] = now
        self._unable = {
            node: said_at
            for node, said_at in self._unable.items()
            if node in hears_redis and now - said_at < SLOTS_UNSERVED_MAX_S
        }

    def is_deaf(self, node: str) -> bool:
        """It hears nothing from Redis: it is given nothing."""
        return node in self._deaf_since or node in self._unable

    def is_unable(self, node: str) -> bool:
        """It has heard nothing for long, or began to hear again only now: it keeps nothing, either."""
        return node in self._unable
