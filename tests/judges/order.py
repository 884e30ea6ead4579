"""Messages keep their order: those of a publisher and topic at one QoS come in the order in which they were sent, each
seen where it came first [MQTT-4.6.0].

To a clean session that goes as far as one connection of the publisher: its next may be to a node with a shorter way,
and what was sent on both may come by either. To one that lasts it goes as far as the publisher's session, if that
lasts too.

Lawful: what was sent before the subscription, and again after it, comes late; so does what was sent again and of which
one copy may be gone, because it expired, or was the oldest of too many; and, while packets are lost, a node stands
still or is cut off from others, what was sent at QoS 0 to it, behind what its publisher sent to the next one. Not
promised, and not judged: which comes first of what is retained and what is published meanwhile; the order of wills, of
what is shared out, and of delayed messages among the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from judges.life import ORDINARY, Life, Sent
from judges.losses import may_have_overflowed
from judges.story import Story
from judges.verdict import Finding, Rules

REORDERED: Final = "reordered"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for life in story.lives:
        yield from _judge(story, rules, life)


def _judge(story: Story, rules: Rules, life: Life) -> Iterator[Finding]:
    seen: set[Sent] = set()
    last: dict[tuple[object, ...], int] = defaultdict(int)
    for delivered, _, _, sent in life.came:
        if sent in seen:
            continue
        seen.add(sent)
        if sent.is_will or sent.is_delayed or life.ways(delivered) != (ORDINARY,):
            continue
        if len(sent.connections) > 1 and not _is_bound(story, rules, life, sent, delivered.at):
            continue
        is_late = delivered.qos == 0 and _may_be_late(story, sent, delivered.at)
        is_whole = life.lasts and delivered.publisher in story.durable and not is_late
        parts = list(dict.fromkeys(connection.life if is_whole else connection for connection in sent.connections))
        stream = (delivered.publisher, delivered.topic, delivered.qos)
        if all(delivered.number < last[*stream, part] for part in parts):
            text = f"{delivered.publisher} {delivered.number} on {delivered.topic} came to {delivered.client}"
            yield Finding(REORDERED, delivered.at, f"{text} after {max(last[*stream, part] for part in parts)}")
        elif len(parts) == 1:
            last[*stream, parts[0]] = delivered.number


def _may_be_late(story: Story, sent: Sent, at: float) -> bool:
    """What came at QoS 0 waits at a node that can't reach its receiver's, and its publisher goes on at another node."""
    faults, node = story.faults, sent.connections[0].asked.node
    return faults.of_lateness.overlap(sent.first_sent_at, at) or faults.kept_apart(node, sent.first_sent_at, at)


def _is_bound(story: Story, rules: Rules, life: Life, sent: Sent, at: float) -> bool:
    """Sent again, it came first where it was sent first: it was subscribed to by one subscription since then, else what
    was sent behind it may have come before its repeat; and that copy is not gone."""
    if sent.expiry_s >= 0.0 or may_have_overflowed(story, rules, life, sent):
        return False
    return any(window.since <= sent.first_sent_at and at <= window.until for window in life.windows_on(sent.topic))
