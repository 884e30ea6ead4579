"""A node that says that it serves does so.

- Stale ready: a node whose tables may be old "matches nothing of QoS ≥ 1", so who comes to it waits. For a moment that
  is right; for longer than `stale_ready_max_s` in a row a node must not say that it is ready.
- Slots unserved: for each client id one core is its owner, and writes its sessions to Redis. A core that can't, while
  another one can, keeps its slots for `slots_unserved_max_s` at most. A core is a node that ever had slots; where none
  can write Redis is away, and it is no matter who has them. A core that can't write may not have read that its slots
  went to others: what these say counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules
from load.history import NodeSeen

STALE_READY: Final = "stale but ready"
UNSERVED: Final = "slots unserved"

SEEN_EVERY_MAX_S: Final = 3.0
SLOTS: Final = 1024
"""Of all cores."""


class _Runs:
    """Of each node since when something holds in a row; told once a run. A node that wasn't seen for a while wasn't
    there."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._since: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def passes(self, seen: NodeSeen, holds: bool) -> float:
        """For how long it holds, when that is too long; else 0."""
        is_back = seen.at - self._last.get(seen.node, seen.at) > SEEN_EVERY_MAX_S
        self._last[seen.node] = seen.at
        if is_back or not holds:
            self._since.pop(seen.node, None)
        since = self._since.setdefault(seen.node, seen.at) if holds else FOREVER
        if seen.at - since <= self._longest_s:
            return 0.0
        self._since[seen.node] = FOREVER
        return seen.at - since


def stale_ready(story: Story, rules: Rules) -> Iterator[Finding]:
    runs = _Runs(rules.stale_ready_max_s)
    for seen in story.all(NodeSeen):
        if held_s := runs.passes(seen, seen.is_ready and seen.is_stale):
            yield Finding(STALE_READY, seen.at, f"{seen.node} has been stale, and ready, for {held_s:.1f} s")


def slots_unserved(story: Story, rules: Rules) -> Iterator[Finding]:
    runs = _Runs(rules.slots_unserved_max_s)
    cores = {seen.node for seen in story.all(NodeSeen) if seen.slots}
    serving: dict[str, NodeSeen] = {}
    for seen in story.all(NodeSeen):
        serving.pop(seen.node, None)
        if seen.serves and seen.node in cores:
            serving[seen.node] = seen
        others = [it for it in serving.values() if it.node != seen.node and seen.at - it.at <= SEEN_EVERY_MAX_S]
        is_its_own = sum(other.slots for other in others) + seen.slots <= SLOTS
        if held_s := runs.passes(seen, seen.slots > 0 and not seen.serves and bool(others) and is_its_own):
            text = f"{seen.node} has had {seen.slots} slots for {held_s:.1f} s, and can't write; another core can"
            yield Finding(UNSERVED, seen.at, text)
