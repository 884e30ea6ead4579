"""Which cores may own slots, decided by the leader from their heartbeats. No I/O.

A core that hears nothing from Redis can't store sessions, so it loses its slots if another core can. The leader checks
this in each round. It has rounds only while it reaches Redis itself. So while Redis, or one of several Redis servers,
is down for all cores, nothing is counted and no core loses slots. When Redis is back, the other cores have
SLOTS_UNSERVED_MAX_S to reach it, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from flockmq.bounds import LEASE_TTL_S, SLOTS_UNSERVED_MAX_S


class SlotEligibility:
    """Which cores hear nothing from Redis, and for how long."""

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._cut_off_since: dict[str, float] = {}
        self._unable: dict[str, float] = {}
        """Core that has reported for SLOTS_UNSERVED_MAX_S that it hears nothing from Redis → when it last reported
        that."""

    def look(self, now: float, hears_redis: Mapping[str, bool | None]) -> None:
        """One round of the leader. `hears_redis`: what each node reports; None: its release doesn't report it."""
        if now - self._looked_at > LEASE_TTL_S:
            self._cut_off_since.clear()  # this core didn't lead, or Redis was unreachable, perhaps for all
        self._looked_at = now
        if not any(hears_redis.values()):
            self._cut_off_since.clear()
            self._unable = dict.fromkeys(self._unable, now)
            return
        cut_off = [node for node, hears in hears_redis.items() if hears is False]
        self._cut_off_since = {node: self._cut_off_since.get(node, now) for node in cut_off}
        for node, since in self._cut_off_since.items():
            if node in self._unable or now - since >= SLOTS_UNSERVED_MAX_S:
                self._unable[node] = now
        self._unable = {
            node: reported_at
            for node, reported_at in self._unable.items()
            if node in hears_redis and now - reported_at < SLOTS_UNSERVED_MAX_S
        }

    def gets_no_slots(self, node: str) -> bool:
        """It hears nothing from Redis, so it gets no new slots."""
        return node in self._cut_off_since or node in self._unable

    def loses_slots(self, node: str) -> bool:
        """It has heard nothing for a long time, or began to hear again only now, so it also loses its slots."""
        return node in self._unable
