"""Where memory is short nobody has more stored.

"From three quarters of Redis' `maxmemory` on, where it has one, or of a node's own memory, nothing more is queued for
durable sessions, retained or delayed: publishers get 0x97." So what is sent `shortage_noticed_s` after that began, at a
node that is short itself, or while Redis is, isn't acknowledged before it is over: not what is to be retained, or is
delayed, and not what a durable session should have whose client is away all the while.

Lawful: what clears a topic, for it frees memory; what was published with 3.1.1, for it can't be refused; whatever
another fault kept nodes from knowing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.ends import held_until
from judges.life import Life, Sent
from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules

STORED_ANYWAY: Final = "stored anyway"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    away = [life for life in story.lives if life.lasts and life.absences]
    for sent in story.sent.values():
        if not sent.qos or sent.acknowledged_at == FOREVER or sent.is_will or sent.clears:
            continue
        since = sent.first_sent_at - rules.shortage_noticed_s
        connection = sent.connections[0]
        if connection.asked.version < 5 or not story.faults.of_memory.overlap(since, since):
            continue
        if story.faults.ran_alone("crowd", ("redis", connection.asked.node), since, sent.acknowledged_at) and (
            sent.retain or sent.is_delayed or any(_waits(story, rules, life, sent) for life in away)
        ):
            text = f"{sent.message.publisher} {sent.message.number} on {sent.topic} was acknowledged by"
            yield Finding(STORED_ANYWAY, sent.acknowledged_at, f"{text} {connection.asked.node}, which has no room")


def _waits(story: Story, rules: Rules, life: Life, sent: Sent) -> bool:
    """For its client, which is away; its session hasn't expired."""
    since = sent.first_sent_at - rules.max_stale_s - rules.clock_slack_s
    if not any(left < since and sent.acknowledged_at < back for left, back in life.absences):
        return False
    if held_until(story, rules, life, life.began_at) <= sent.acknowledged_at:
        return False
    own = sent.message.publisher == life.client
    return any(
        window.qos and window.since < since and sent.acknowledged_at < window.until and not window.is_shared
        for window in life.windows_on(sent.topic)
        if not (own and window.no_local)
    )
