"""CONNACK is right about the session.

"A durable session … survives the death of any node, and of all, and is there wherever its client comes back", for
as long as its expiry [MQTT-3.1.2-23]. Clean Start ends it, and so does a DISCONNECT with an expiry of 0; a CONNECT
that was refused begins none.

Lawful: a session that nobody told of, where a CONNECT got no answer; one that is gone after Redis lost data; either
answer where several connections came at once, or a fault hid when the client left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.ends import may_be_over, must_be_over
from judges.story import Story
from judges.verdict import Finding, Rules

SESSION_PRESENT: Final = "session present"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for connection in story.connections.values():
        connected, asked = connection.connected, connection.asked
        if connected is None:
            continue
        if connected.present:
            if must_be_over(story, rules, connection):
                yield Finding(SESSION_PRESENT, connected.at, f"{asked.client} has no session, but {asked.node} has")
        elif not may_be_over(story, rules, connection):
            yield Finding(SESSION_PRESENT, connected.at, f"{asked.client}'s session is gone, says {asked.node}")
