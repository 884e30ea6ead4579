"""A delayed message comes when it is due: not before, and behind what is due before it.

"`$delayed/SECONDS/TOPIC` is … published when it is due, whatever nodes died." That it comes at all is the judge of
losses' affair, that it comes once that of repeats. The node that takes it says when it is due, the leader when that
is, both by the cluster's time: within `times_apart_s` of one another, unless that is wrong.

The order is that of the times at which messages are due, and of two of the same millisecond that of their publishing.
Judged are messages that are due `delayed_apart_s` apart, or have the same delay and connection, each sent once, while
no fault runs: what couldn't be published at once is tried again, and is passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.life import ORDINARY, Connection, Life, Sent
from judges.story import Story
from judges.verdict import Finding, Rules

EARLY: Final = "early"
DELAYED_ORDER: Final = "delayed out of order"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for life in story.lives:
        yield from _judge_order(story, rules, life)
        for delivered, _, _, sent in life.came:
            early_s = sent.due_at - delivered.at
            if not sent.is_delayed or early_s <= rules.times_apart_s:
                continue
            if not story.faults.of_time.overlap(sent.first_sent_at, delivered.at):
                yield Finding(
                    EARLY, delivered.at, f"{_named(sent)} came to {life.client} {early_s:.1f} s before it is due"
                )


def _judge_order(story: Story, rules: Rules, life: Life) -> Iterator[Finding]:
    last: dict[tuple[str, str, int], Sent] = {}
    alike: dict[tuple[str, str, int, float, Connection], Sent] = {}
    seen: set[Sent] = set()
    for delivered, _, _, sent in life.came:
        is_one = sent.is_delayed and len(sent.connections) == 1 and life.ways(delivered) == (ORDINARY,)
        if not is_one or sent in seen:
            continue
        seen.add(sent)
        stream = delivered.publisher, delivered.topic, delivered.qos
        latest = last.setdefault(stream, sent)
        apart_s = latest.due_at - sent.promised_at
        if apart_s > rules.delayed_apart_s and not story.faults.any.overlap(sent.first_sent_at, delivered.at):
            text = f"{_named(sent)} came to {life.client} behind {latest.message.number}"
            yield Finding(DELAYED_ORDER, delivered.at, f"{text}, due {apart_s:.1f} s later")
        elif sent.due_at > latest.due_at:
            last[stream] = sent
        delayed_alike = *stream, sent.delay_s, sent.connections[0]
        before = alike.setdefault(delayed_alike, sent)
        if before.place <= sent.place:
            alike[delayed_alike] = sent
        elif not story.faults.any.overlap(sent.first_sent_at, delivered.at):
            text = f"{_named(sent)} came to {life.client} behind {before.message.number}"
            yield Finding(DELAYED_ORDER, delivered.at, f"{text}, published later")


def _named(sent: Sent) -> str:
    return f"{sent.message.publisher} {sent.message.number} on {sent.topic}, delayed by {sent.delay_s:g} s,"
