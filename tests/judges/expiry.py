"""A message that expired doesn't come any more.

"A message's expiry runs in send queues, also for unassigned slots, at the owner, and while a will is retried"; a
delayed message's begins when it is due [MQTT-3.3.2-5]. It is counted from the acknowledgement, the latest moment at
which the last node that has it can have begun to count.

Lawful: what was begun to be sent before, and is sent again as a duplicate; whatever is on its way while a fault runs,
or is sent again because of one that loses packets, or the cluster's time is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules

EXPIRED: Final = "expired"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    faults = story.faults
    for delivered, life, _, sent in chain(story.retained, *(life.came for life in story.lives)):
        if sent.expiry_s < 0.0 or sent.acknowledged_at == FOREVER or delivered.dup:
            continue
        over_at = faults.any.over(sent.promised_at) + sent.expiry_s
        over_at = faults.of_loss.over(faults.any.quiet_for(over_at, rules.message_expiry_slack_s))
        if delivered.at > over_at and not faults.of_time.overlap(sent.first_sent_at, delivered.at):
            text = f"{delivered.publisher} {delivered.number} on {sent.topic} came to {life.client}"
            yield Finding(
                EXPIRED, delivered.at, f"{text} {delivered.at - sent.promised_at:.1f} s old: {sent.expiry_s:g} s"
            )
