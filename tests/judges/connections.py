"""One connection a client id.

"A CONNECT attaches at its owner, which closes an older connection wherever it is" [MQTT-3.1.4-3]: each that was
followed by another one of its client must have ended soon, as soon as its nodes and its owner, which may be any core,
could know. Of two that came at once either may be the one that stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.life import Connection
from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules

TWO_CONNECTIONS: Final = "two connections"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for client, connections in story.by_client.items():
        told = [(c.connected.at, place, c) for place, c in enumerate(connections) if c.connected is not None]
        others: list[Connection] = []
        for came_at, _, newer in sorted(told):
            others = [older for older in others if older.until > came_at]
            still: list[Connection] = []
            for older in others:
                due = _due(story, rules, came_at, {older.asked.node, newer.asked.node})
                if due < min(_until(older, newer), story.ended_at):
                    text = f"{client}'s on {older.asked.node} was there {due - came_at:.1f} s after it came to"
                    yield Finding(TWO_CONNECTIONS, came_at, f"{text} {newer.asked.node}")
                else:
                    still.append(older)
            others = [*still, newer]


def _due(story: Story, rules: Rules, came_at: float, nodes: set[str]) -> float:
    """When both nodes, and the client id's owner, have been undisturbed for long enough to end the older connection."""
    heard_at = story.faults.over_for(came_at, nodes)
    due = story.faults.of_cores.quiet_for(heard_at, rules.takeover_max_s)
    if story.faults.of_owners.overlap(came_at, came_at):  # who hasn't read yet where the client id's slot went
        due = max(due, story.faults.of("redis").quiet_for(heard_at, rules.takeover_max_s))
    return due


def _until(older: Connection, newer: Connection) -> float:
    """When one of them had to be the only one."""
    came_at = FOREVER if older.connected is None else older.connected.at
    return min(older.until, newer.until) if newer.asked.at < came_at else older.until
