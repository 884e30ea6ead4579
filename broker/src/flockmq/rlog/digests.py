"""Compares this node's tables with those of the cores, by their digests at checkpoints. No I/O.

A checkpoint is a log entry, so all nodes see it at the same log position. The tables depend only on the position. So if
digests differ there, some node's tables are wrong: those that differ from a majority of the configured cores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from flockmq.rlog.entry import StreamId
from flockmq.rlog.generation import majority
from flockmq.rlog.tables import Digests


class CheckpointDigests(NamedTuple):
    """One core's digests at its latest checkpoint."""

    position: StreamId
    digests: Digests


class Comparison(NamedTuple):
    """`disputed`: no majority can agree any more, whatever the silent cores answer."""

    position: StreamId
    kind: Literal["right", "wrong", "disputed"]


def compare_digests(
    mine: Mapping[StreamId, Digests], is_core: bool, others: Sequence[CheckpointDigests], cores: int
) -> Comparison | None:
    """Compare at the latest checkpoint that allows a conclusion. `is_core`: this node counts as one of the cores.
    `others`: what the other cores report."""
    for position in sorted(mine, reverse=True):
        heard = Counter(checked.digests for checked in others if checked.position == position)
        if is_core:
            heard[mine[position]] += 1
        agreed = [digests for digests, cores_so in heard.items() if cores_so >= majority(cores)]
        if agreed:
            return Comparison(position, "right" if agreed[0] == mine[position] else "wrong")
        silent = cores - heard.total()
        if heard and max(heard.values()) + silent < majority(cores):
            return Comparison(position, "disputed")
    return None
