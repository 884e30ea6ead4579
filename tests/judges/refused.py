"""What was refused had no effect.

A PUBLISH that was refused, for whatever reason, each time that it was sent comes to nobody, not later either if it was
to be delayed, and isn't retained. A subscription that was refused brings nothing (`subscriptions`), and a CONNECT that
was begins no session (`sessions`).

Lawful: what got no answer once comes or doesn't, whatever was said of its repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from judges.story import Story
from judges.verdict import Finding, Rules

REFUSED: Final = "refused"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for delivered, life, _, sent in chain(story.retained, *(life.came for life in story.lives)):
        if sent.had_no_effect:
            text = f"{sent.message.publisher} {sent.message.number} on {sent.topic}, which was refused,"
            yield Finding(REFUSED, delivered.at, f"{text} came to {life.client}")
    for stood in chain.from_iterable(story.looks):
        for topic, message in stood.values.items():
            known = story.sent.get(message)
            if known is not None and known.had_no_effect:
                yield Finding(REFUSED, stood.at, f"{stood.node} retains {message} on {topic}, which was refused")
