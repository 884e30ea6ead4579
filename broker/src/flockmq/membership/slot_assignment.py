"""Which core owns which slot: a balanced assignment with as few moves as possible. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flockmq.bounds import LEASE_TTL_S, SLOTS_UNSERVED_MAX_S


def reassign(owners: Sequence[str], cores: Collection[str], keeping: Collection[str] = ()) -> dict[int, str]:
    """Which slots get a new owner, and which. `owners`: by slot, "" for none.

    A core in `keeping` but not in `cores` keeps its slots and gets no others. Of the remaining slots each core gets
    ⌊slots/cores⌋ or one more. A slot moves only if its owner is in neither, or owns more than its share. If `cores` is
    empty, nothing changes.
    """
    if not cores or is_balanced(owners, cores):
        return {}
    held: dict[str, list[int]] = {core: [] for core in cores}
    unassigned: list[int] = []
    kept = 0
    for slot, owner in enumerate(owners):
        if owner in keeping and owner not in held:
            kept += 1
        else:
            held.get(owner, unassigned).append(slot)
    by_load = sorted(held, key=lambda core: (-len(held[core]), core))
    share, richer = divmod(len(owners) - kept, len(held))
    quota = {core: share + (rank < richer) for rank, core in enumerate(by_load)}
    for core in by_load:
        unassigned.extend(held[core][quota[core] :])
        del held[core][quota[core] :]
    moves: dict[int, str] = {}
    for core in reversed(by_load):
        for _ in range(quota[core] - len(held[core])):
            moves[unassigned.pop()] = core
    return moves


def is_balanced(owners: Sequence[str], cores: Collection[str]) -> bool:
    """Whether each slot has an owner in `cores` and each of these has its share, so that no slot needs to move."""
    share = len(owners) // len(cores)
    counts = Counter(owners)
    return sum(counts[core] for core in cores) == len(owners) and all(
        share <= counts[core] <= share + 1 for core in cores
    )


class _Silence(NamedTuple):
    """`total_s`: how long a core has reported, in all, that it hears nothing from Redis."""

    total_s: float
    reported_at: float


class SlotEligibility:
    """Which cores may own slots, decided by the leader from their heartbeats.

    A core that hears nothing from Redis can't store sessions, so it loses its slots if another core can: after
    SLOTS_UNSERVED_MAX_S of silence in all, until it has heard from Redis for as long without a break. The leader
    checks this in each round. It has rounds only while it reaches Redis itself. So while Redis, or one of several Redis
    servers, is down for all cores, nothing is counted and no core loses slots. When Redis is back, the other cores have
    SLOTS_UNSERVED_MAX_S to reach it, too.
    """

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._silences: dict[str, _Silence] = {}
        """By core; it is forgotten when the core has heard from Redis for SLOTS_UNSERVED_MAX_S."""

    def look(self, now: float, hears_redis: Mapping[str, bool | None]) -> None:
        """One round of the leader. `hears_redis`: what each node reports; None: its release doesn't report it."""
        passed_s = now - self._looked_at
        self._looked_at = now
        if passed_s > LEASE_TTL_S:
            self._forget_short_silences()  # this core didn't lead, or Redis was unreachable, perhaps for all
            passed_s = 0.0
        if not any(hears_redis.values()):
            self._forget_short_silences()
            self._silences = {node: _Silence(total_s, now) for node, (total_s, _) in self._silences.items()}
            return
        for node, hears in hears_redis.items():
            if hears is False:
                before = self._silences.get(node)
                self._silences[node] = _Silence(0.0 if before is None else before.total_s + passed_s, now)
        self._silences = {
            node: silence
            for node, silence in self._silences.items()
            if node in hears_redis and now - silence.reported_at < SLOTS_UNSERVED_MAX_S
        }

    def gets_no_slots(self, node: str) -> bool:
        """It hears nothing from Redis, so it gets no new slots."""
        silence = self._silences.get(node)
        return silence is not None and (silence.reported_at == self._looked_at or self.loses_slots(node))

    def loses_slots(self, node: str) -> bool:
        """It has heard nothing for a long time, or began to hear again only now, so it also loses its slots."""
        silence = self._silences.get(node)
        return silence is not None and silence.total_s >= SLOTS_UNSERVED_MAX_S

    def _forget_short_silences(self) -> None:
        self._silences = {node: silence for node, silence in self._silences.items() if self.loses_slots(node)}
