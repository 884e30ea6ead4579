"""Which core owns which slot: a balanced assignment that moves as little as possible. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence


def reassign(owners: Sequence[str], cores: Collection[str], keeping: Collection[str] = ()) -> dict[int, str]:
    """The slots that change their owner, and to whom. `owners`: by slot, "" for none.

    Who is `keeping`, and is none of `cores`, keeps what it has. Of the other slots each core owns ⌊slots/cores⌋ or one
    more afterwards. A slot moves only when its owner is neither, or owns more than its share. Without cores nothing
    changes.
    """
    if not cores or is_balanced(owners, cores):
        return {}
    held: dict[str, list[int]] = {core: [] for core in cores}
    homeless: list[int] = []
    kept = 0
    for slot, owner in enumerate(owners):
        if owner in keeping and owner not in held:
            kept += 1
        else:
            held.get(owner, homeless).append(slot)
    by_load = sorted(held, key=lambda core: (-len(held[core]), core))
    share, richer = divmod(len(owners) - kept, len(held))
    quota = {core: share + (rank < richer) for rank, core in enumerate(by_load)}
    for core in by_load:
        homeless.extend(held[core][quota[core] :])
        del held[core][quota[core] :]
    moves: dict[int, str] = {}
    for core in reversed(by_load):
        for _ in range(quota[core] - len(held[core])):
            moves[homeless.pop()] = core
    return moves


def is_balanced(owners: Sequence[str], cores: Collection[str]) -> bool:
    """Whether each slot has an owner among `cores`, and each of them its share: then nothing moves."""
    share = len(owners) // len(cores)
    counts = Counter(owners)
    return sum(counts[core] for core in cores) == len(owners) and all(
        share <= counts[core] <= share + 1 for core in cores
    )
