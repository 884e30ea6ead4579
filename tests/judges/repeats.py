"""A message comes once.

"A QoS 2 message is there once, whoever crashed": it comes once to a life; and a session stands in a fan-out once,
however many of its filters match. Any message comes once to a connection whose session had no other, if its publisher
sent it once.

Lawful: a QoS 1 message again after a connection of either side broke; a delayed one again "if a leader ends in
between", unless it has an origin, as those of QoS 2 have that a durable session published; one of QoS 2 that a durable
session has in flight again, for Redis came back with older data while slots moved. Shared subscriptions and wills have
judges of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.life import ORDINARY, Came, Life, Sent
from judges.story import Story
from judges.verdict import Finding, Rules

DUPLICATED: Final = "duplicated"
REPEATED: Final = "repeated"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for life in story.lives:
        yield from _judge(story, life)


def _judge(story: Story, life: Life) -> Iterator[Finding]:
    first: dict[Sent, Came] = {}
    for came in life.came:
        delivered, _, connections, sent = came
        if sent.is_will or life.ways(delivered) != (ORDINARY,):
            continue
        before = first.setdefault(sent, came)
        if before is came:
            continue
        text = f"{delivered.publisher} {delivered.number} on {delivered.topic} came to {delivered.client} again"
        if delivered.qos == 2:
            is_lawful = any(loss.may_bring_again(before, came) for loss in story.moved_losses)
            if not is_lawful and not _may_be_published_twice(story, came):
                yield Finding(DUPLICATED, delivered.at, text)
            continue
        is_sent_once = before.connections == connections and len(sent.connections) == 1
        if is_sent_once and not _may_be_published_twice(story, came):
            yield Finding(REPEATED, delivered.at, f"{text}, at QoS {delivered.qos}, sent once")


def _may_be_published_twice(story: Story, came: Came) -> bool:
    """Delayed, and perhaps by two leaders; each makes another message of one without an origin."""
    sent = came.sent
    has_origin = sent.qos == 2 and all(connection.asked.lasts for connection in sent.connections)
    return sent.is_delayed and not has_origin and story.faults.any.overlap(sent.first_sent_at, came.delivered.at)
