"""Which core owns which slot: a balanced assignment with as few moves as possible. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence


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
