"""Which core owns which slot: a balanced assignment that moves as little as possible. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping


def reassign(owners: Mapping[int, str], cores: Collection[str], slots: int) -> dict[int, str]:
    """The slots that change their owner, and to whom.

    Afterwards each core owns ⌊slots/cores⌋ or one more. A slot moves only when its owner isn't one of `cores`, or
    owns more than its share. Without cores nothing changes.
    """
    if not cores:
        return {}
    held: dict[str, list[int]] = {core: [] for core in cores}
    homeless: list[int] = []
    for slot in range(slots):
        held.get(owners.get(slot, ""), homeless).append(slot)
    by_load = sorted(held, key=lambda core: (-len(held[core]), core))
    share, richer = divmod(slots, len(held))
    quota = {core: share + (rank < richer) for rank, core in enumerate(by_load)}
    for core in by_load:
        homeless.extend(held[core][quota[core] :])
        del held[core][quota[core] :]
    moves: dict[int, str] = {}
    for core in reversed(by_load):
        for _ in range(quota[core] - len(held[core])):
            moves[homeless.pop()] = core
    return moves


def count_by_owner(owners: Mapping[int, str]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for owner in owners.values():
        counts[owner] += 1
    return dict(counts)
