"""Whether this node's tables are what the cores have, by the digests at checkpoints. Pure.

A checkpoint is an entry of the log, so it is the same place for everybody, and tables are a function of the place:
different digests there mean that somebody's tables are wrong. Who differs from a majority of the configured cores is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from flockmq.rlog.entry import StreamId
from flockmq.rlog.generation import majority
from flockmq.rlog.tables import Digests


class Checked(NamedTuple):
    """What one core has at its latest checkpoint."""

    place: StreamId
    digests: Digests


class Verdict(NamedTuple):
    """`disputed`: whatever cores that are silent yet may say, no majority has the same."""

    place: StreamId
    kind: Literal["right", "wrong", "disputed"]


def judge(mine: Mapping[StreamId, Digests], votes: bool, others: Sequence[Checked], cores: int) -> Verdict | None:
    """At the latest checkpoint that says something. `votes`: this node is a core; `others`: what the others say."""
    for place in sorted(mine, reverse=True):
        heard = Counter(checked.digests for checked in others if checked.place == place)
        if votes:
            heard[mine[place]] += 1
        agreed = [digests for digests, cores_so in heard.items() if cores_so >= majority(cores)]
        if agreed:
            return Verdict(place, "right" if agreed[0] == mine[place] else "wrong")
        silent = cores - heard.total()
        if heard and max(heard.values()) + silent < majority(cores):
            return Verdict(place, "disputed")
    return None
