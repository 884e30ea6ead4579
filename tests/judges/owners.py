"""A client id is its user's while there is a connection or a session of it: nobody else gets it.

Who has it by a clean session can't know for how long while a fault runs: whose it is is known in the memory of its
owner (a known limit). Of a durable session it is in Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.ends import held_until
from judges.life import Life
from judges.story import Story
from judges.verdict import Finding, Rules
from load.history import Intruded

STOLEN: Final = "stolen"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for intruded in story.all(Intruded):
        if intruded.reason:
            continue
        for life in story.lives:
            if life.client == intruded.client and _has_it(story, rules, life, intruded):
                text = f"{intruded.node} let another user in by the client id of {intruded.client}"
                yield Finding(STOLEN, intruded.at, text)


def _has_it(story: Story, rules: Rules, life: Life, intruded: Intruded) -> bool:
    """All the time."""
    first = life.connections[0].connected
    if first is None or first.at > intruded.asked_at or held_until(story, rules, life, first.at) <= intruded.at:
        return False
    return life.lasts or not story.faults.any.overlap(first.at, intruded.at)
