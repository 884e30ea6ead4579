"""Who subscribes is sent what is retained, as its Retain Handling says [MQTT-3.3.1-9 to 3.3.1-11].

- Missing: by Retain Handling 0, and by 1 where the client had no such subscription, the last SUBSCRIBE of a
  subscription that stands at the end brought something of each topic that had something retained all the while.
- Unasked: by Retain Handling 2, and by 1 for what the client has already, comes nothing that is retained. What is
  published a while after the SUBSCRIBE isn't marked as retained any more.
- Twice: one SUBSCRIBE brings a message once, at QoS 2 whoever crashed; at a lower QoS on one connection.

Lawful: where rules may have ended a subscription, or Redis lost a session while its slot moved, either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from judges.denials import was_ever_denied
from judges.ends import promised_until
from judges.life import Asking, Came, Life, Window
from judges.retained import RetainedTopic, retained_topics
from judges.story import Story
from judges.topics import is_shared, topic_filter
from judges.verdict import FOREVER, Finding, Rules
from load.history import SubscribeSent

RETAINED_MISSING: Final = "retained missing"
RETAINED_UNASKED: Final = "retained unasked"
RETAINED_TWICE: Final = "retained twice"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    came: dict[Life, list[Came]] = defaultdict(list)
    for one in story.retained:
        came[one.life].append(one)
    for life, some in came.items():
        if life.tells and life.is_new and not story.moved_losses:
            yield from _judge_what_came(story, rules, life, some)


def missing(story: Story, rules: Rules) -> Iterator[Finding]:
    topics = retained_topics(story, rules)
    marked: dict[Life, list[Came]] = defaultdict(list)
    for came in story.retained:
        marked[came.life].append(came)
    for life in story.lives if topics else ():
        if life.tells and not life.excused and promised_until(story, rules, life) == FOREVER:
            for window in life.windows:
                if window.until == FOREVER and not window.is_shared:
                    yield from _judge_window(story, life, window, topics, [*marked[life], *life.came])


def _judge_what_came(story: Story, rules: Rules, life: Life, some: list[Came]) -> Iterator[Finding]:
    seen: dict[object, list[Came]] = defaultdict(list)
    for came in some:
        delivered, sent = came.delivered, came.sent
        text = f"{delivered.publisher} {delivered.number} on {sent.topic} came to {life.client} as retained"
        if was_ever_denied(story, sent.topic):
            continue
        asked = [
            each
            for asking in life.askings_on(sent.topic)
            for each in asking.sent
            if each.at <= delivered.at and _may_bring(life, asking, each)
        ]
        last_at = max((each.at for each in asked), default=-FOREVER)
        is_late = sent.first_sent_at > story.faults.any.quiet_for(last_at, rules.delivered_max_s)
        if not asked or (is_late and life.was_there(last_at, delivered.at)):
            yield Finding(RETAINED_UNASKED, delivered.at, f"{text}, which it didn't ask for")
        before = seen[sent]
        before.append(came)
        is_once = delivered.qos == 2 and rules.is_one_release
        if not is_once:
            before = [one for one in before if one.connections == came.connections]
        if len(before) > len(asked) > 0:
            yield Finding(RETAINED_TWICE, delivered.at, f"{text} {len(before)} times, by {len(asked)} SUBSCRIBEs")


def _may_bring(life: Life, asking: Asking, sent: SubscribeSent) -> bool:
    if is_shared(asking.filter) or sent.retain_handling == 2:
        return False
    return sent.retain_handling == 0 or not _had_it(life, sent)


def _had_it(life: Life, sent: SubscribeSent) -> bool:
    """For sure: SUBACK may have come in the millisecond of its SUBSCRIBE."""
    return any(window.filter == sent.filter and window.since < sent.at < window.until for window in life.windows)


def _judge_window(
    story: Story, life: Life, window: Window, topics: dict[str, RetainedTopic], came: list[Came]
) -> Iterator[Finding]:
    granted = [each for each in life.asked[window.filter].granted if each.at >= window.asked_at]
    bringing = [each for each in granted if each.retain_handling == 0]
    if granted and granted[0].retain_handling == 1 and life.is_new and len(life.askings) == 1:
        bringing = granted[:1]
    if not bringing or was_ever_denied(story, window.filter) or story.lost_by_redis(bringing[-1].at, FOREVER):
        return
    asked_at = bringing[-1].at
    have = {one.sent.topic for one in came if one.delivered.at >= asked_at}
    for topic in story.topics_of(topic_filter(window.filter)):
        known = topics.get(topic)
        if known is None or topic in have or known.may_expire or not known.is_ordered:
            continue
        if known.stays_from(asked_at):
            text = f"{life.client}, who subscribed at {asked_at:.3f}, was sent nothing that is retained on {topic}"
            yield Finding(RETAINED_MISSING, asked_at, text)
