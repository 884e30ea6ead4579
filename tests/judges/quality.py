"""A message comes at the QoS that its subscriber asked for.

It is the lower one of the message's and of the highest of the subscriptions that match: "a session stands in a
fan-out once, with the highest QoS" [MQTT-3.8.4-8, MQTT-3.3.4-2]; what came by a shared subscription, or is retained,
goes by that subscription alone. A message that comes at a lower one is not there once, whatever the other judges say.

Lawful: where a client's subscriptions changed meanwhile, any that it may have had; where rules may have ended one, any
lower one; that of a member of a shared subscription that ended, and had it before. Judged are lives whose clients say
what they ask for, and had no session before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from judges.denials import was_ever_denied
from judges.life import ORDINARY, Came
from judges.story import Story
from judges.topics import is_shared
from judges.verdict import Finding, Rules

WRONG_QOS: Final = "wrong QoS"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for came in chain(story.retained, *(life.came for life in story.lives)):
        delivered, life, _, sent = came
        if not (life.tells and life.is_new):
            continue
        ways = life.ways(delivered)
        asked = [
            asking.qos
            for asking in life.askings_on(sent.topic)
            if asking.since <= delivered.at and _way(asking.filter) in ways
        ]
        highest, lowest = min(sent.qos, max(asked, default=2)), min(sent.qos, _surely_asked(story, came, ways))
        if not lowest <= delivered.qos <= highest and not _is_handed_on(story, rules, came, ways):
            expected = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
            text = f"{delivered.publisher} {delivered.number} on {delivered.topic} came to {delivered.client}"
            yield Finding(WRONG_QOS, delivered.at, f"{text} at QoS {delivered.qos}, not {expected}")


def _way(filter: str) -> str:
    return filter if is_shared(filter) else ORDINARY


def _is_handed_on(story: Story, rules: Rules, came: Came, ways: tuple[str, ...]) -> bool:
    """By a member at that QoS, whose session or subscription ended."""
    until = came.delivered.at + rules.silent_max_s
    return any(
        window.filter in ways
        and window.qos == came.delivered.qos
        and came.sent.first_sent_at <= min(window.until, life.ended_at) <= until
        for life in story.lives
        for window in life.windows
        if is_shared(window.filter)
    )


def _surely_asked(story: Story, came: Came, ways: tuple[str, ...]) -> int:
    """Of the subscriptions that held from before it was sent until it came the highest; 0: it isn't known."""
    delivered, life, _, sent = came
    if len(ways) > 1 or was_ever_denied(story, sent.topic):
        return 0
    held = [
        window.qos
        for window in life.windows_on(sent.topic)
        if window.since <= sent.first_sent_at
        and delivered.at < window.until
        and _way(window.filter) == ways[0]
        and not (window.no_local and sent.message.publisher == life.client)
    ]
    if came.is_kept:
        return min(held) if len(held) == len(life.windows_on(sent.topic)) and held else 0
    return max(held, default=0)
