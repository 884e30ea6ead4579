"""A node that drains takes nobody: whom it sends away "other nodes take".

While one sends its clients away, because it drains (0x9C), it lets nobody in: not between the first that goes and the
last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.story import Story
from judges.verdict import Finding, Rules
from judges.wills import USE_ANOTHER_SERVER

TAKEN_ANYWAY: Final = "taken anyway"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    drains: dict[tuple[str, float], list[float]] = {}
    """By node, and the begin of the fault that had it drain: when clients were sent away."""
    for connection in story.connections.values():
        closed, node = connection.closed, connection.asked.node
        if closed is not None and closed.reason == USE_ANOTHER_SERVER:
            drains.setdefault((node, story.faults.drain_began(node, closed.at)), []).append(closed.at)
    for (node, _), went in drains.items():
        first, last = min(went) + rules.clock_slack_s, max(went)
        for connection in story.connections.values():
            asked, connected = connection.asked, connection.connected
            if asked.node == node and connected is not None and first < asked.at and connected.at < last:
                text = f"{asked.client} was let in at {node}, which had sent its clients away since {min(went):.3f}"
                yield Finding(TAKEN_ANYWAY, connected.at, text)
