"""Of what waits for a client that is away the newest stays, and what is dropped is counted.

"What waits for a client that is offline … is bounded (`max_mqueue_len`): beyond it the oldest is dropped, and counted."
So, while nothing disturbs:

- Kept an older one: of what one connection published, and was acknowledged, while a client was away, nothing is dropped
  that is newer than something that comes. How much may be dropped the judge of losses says; the order is that of order.
- Miscounted: in a run without a fault, nodes say in the end that they dropped as many messages for want of room as
  never came to sessions that stayed.

Lawful: QoS 0, which is dropped first, and what expires.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from judges.life import Connection, Life, Sent
from judges.losses import is_promised
from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules
from load.history import NodeSeen

KEPT_OLDER: Final = "kept an older one"
MISCOUNTED: Final = "miscounted"

_NEAR_S: Final = 1.0

_due_at = attrgetter("due_at")


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for life in story.lives:
        if life.lasts and len(story.meant_for(life)) > rules.max_mqueue_len:
            for left, back in life.absences:
                if not story.faults.any.overlap(left - rules.undisturbed_s, back + _NEAR_S):
                    yield from _judge_absence(story, rules, life, left, back)


def counts(story: Story, rules: Rules) -> Iterator[Finding]:
    told = {seen.node: seen for seen in story.all(NodeSeen)}
    if not told or story.faults.any.overlap(-FOREVER, FOREVER) or min(seen.dropped for seen in told.values()) < 0:
        return
    at = max(seen.at for seen in told.values())
    missing = sum(len(_missing(story, rules, life, at)) for life in story.lives if life.lasts)
    dropped = sum(seen.dropped for seen in told.values())
    if dropped != missing:
        yield Finding(MISCOUNTED, story.ended_at, f"{missing} messages never came, and nodes counted {dropped}")


def _judge_absence(story: Story, rules: Rules, life: Life, left: float, back: float) -> Iterator[Finding]:
    meant = story.meant_for(life)
    first, end = (bisect_left(meant, at, key=_due_at) for at in (left, back))
    if end - first <= rules.max_mqueue_len:
        return
    have = {came.sent for came in life.came}
    streams: dict[Connection, list[Sent]] = defaultdict(list)
    for sent in _meant(story, rules, life, meant[first:end], back):
        if left <= sent.first_sent_at and sent.acknowledged_at <= back and len(sent.connections) == 1:
            streams[sent.connections[0]].append(sent)
    for stream in streams.values():
        stream.sort(key=lambda sent: sent.place)
        kept = [sent for sent in stream if sent in have]
        for sent in stream if kept else ():
            if sent not in have and sent.place > kept[0].place:
                text = f"{_named(sent)} never came to {life.client}, and the older {kept[0].message.number} did"
                yield Finding(KEPT_OLDER, sent.acknowledged_at, text)


def _missing(story: Story, rules: Rules, life: Life, at: float) -> set[Sent]:
    """What was published by then, to a client that is there."""
    meant = {sent for sent in _meant(story, rules, life, story.meant_for(life), at) if sent.acknowledged_at <= at}
    return meant.difference(came.sent for came in life.came) if life.was_there(at, at) else set()


def _meant(story: Story, rules: Rules, life: Life, some: Iterable[Sent], at: float) -> Iterator[Sent]:
    """Of these what is promised by subscriptions that stay until then, and may wait for as long as it takes."""
    windows = [w for w in life.windows if w.qos and not w.is_shared and min(w.until, life.ended_at) > at]
    if life.excused or not windows:
        return
    for sent in some:
        if sent.is_will or sent.is_delayed or sent.expiry_s >= 0.0 or life.may_be_too_large(sent):
            continue
        is_meant = any(
            window.held_since + rules.max_stale_s + rules.clock_slack_s <= sent.first_sent_at
            and not (window.no_local and sent.message.publisher == life.client)
            for window in life.windows_on(sent.topic)
            if window in windows
        )
        if is_meant and is_promised(story, rules, sent):
            yield sent


def _named(sent: Sent) -> str:
    return f"{sent.message.publisher} {sent.message.number} on {sent.topic} (QoS {sent.qos})"
