"""When all is quiet all nodes' tables are the same; when everybody left, they are empty.

"The version is the Stream ID, the same on every node", and what was applied up to one version has one digest. "A purge
frees", and UNSUBSCRIBE and the end of a session take out, the routes that nobody wants any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from judges.story import Story
from judges.verdict import Finding, Rules
from load.history import RowsLeft, TablesStood

DIGESTS: Final = "digests"
ROUTES_LEFT: Final = "routes left"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    stood: dict[str, dict[str, TablesStood]] = defaultdict(dict)
    for event in story.all(TablesStood):
        stood[event.shard][event.node] = event
    for shard, by_node in stood.items():
        states = {(event.applied, tuple(sorted(event.digests.items()))) for event in by_node.values()}
        if len(states) > 1:
            told = ", ".join(f"{node} {event.applied} {event.digests}" for node, event in sorted(by_node.items()))
            yield Finding(DIGESTS, next(iter(by_node.values())).at, f"shard {shard}: {told}")
    for left in story.all(RowsLeft):
        if left.routes:
            yield Finding(ROUTES_LEFT, left.at, f"{left.node} holds {left.routes} routes of nobody")
