"""Who is banned isn't connected; what is denied isn't done.

- Banned: "a ban sends away who is connected, on every node, and is said at CONNECT", `ban_max_s` after it was
  acknowledged, and while no fault keeps a node from hearing of it.
- Let through: a change of rules holds for later packets, on every node, `rules_max_s` after it was acknowledged. What
  is sent then below a prefix that is denied isn't acknowledged with success (before 5.0 it can't be said otherwise),
  and comes to nobody, nor is a CONNECT with such a will granted; a SUBSCRIBE that is sent then, and overlaps the
  prefix, isn't granted. Where only to subscribe is denied nothing that is sent then comes before it is allowed again,
  for subscriptions that stood have ended.
- "Wills and delayed messages are authorized again when they are due": what is due while its topic is denied, or its
  client banned, comes to nobody as long as that holds.

Lawful: what was sent before comes, unless it is due later. A ban that somebody was asked to lift may be lifted, and a
rule: at once, or later, if that got no answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from judges.ends import earliest
from judges.life import Sent
from judges.story import Story
from judges.topics import below, is_unheard, is_unsaid, overlap, topic_filter
from judges.verdict import FOREVER, Finding, Rules
from load.history import Banned, ChangeAsked, RulesChanged

BANNED: Final = "banned"
LET_THROUGH: Final = "let through"


def bans(story: Story, rules: Rules) -> Iterator[Finding]:
    for client, changes in _changes(story, Banned, "ban", "lift").items():
        for since, until in _held(story, rules, rules.ban_max_s, changes):
            for connection in story.by_client[client]:
                connected = connection.connected
                if connected is None:
                    continue
                if connected.at <= since < min(connection.until, until, story.ended_at):
                    text = f"{client} is still connected to {connection.asked.node}"
                    yield Finding(BANNED, since, f"{text}, though it is banned")
                elif since < connected.at < until:
                    yield Finding(BANNED, connected.at, f"{connection.asked.node} let in {client}, which is banned")
            for sent in _left_by(story, client):
                for came in story.came.get(sent.message, ()):
                    if since < _due_from(story, rules, sent) and came.delivered.at < until:
                        text = f"{sent.message.publisher} {sent.message.number} came to {came.life.client}"
                        yield Finding(BANNED, came.delivered.at, f"{text}, though who left it is banned")


def permissions(story: Story, rules: Rules) -> Iterator[Finding]:
    for prefix, changes in _changes(story, RulesChanged, "deny", "allow").items():
        denied = list(_held(story, rules, rules.rules_max_s, changes))
        if denied:
            if is_unheard(prefix):
                yield from _judge_hearing(story, prefix, denied)
            else:
                yield from _judge_messages(story, prefix, denied)
                yield from _judge_what_is_left(story, rules, prefix, denied)
            yield from () if is_unsaid(prefix) else _judge_subscriptions(story, prefix, denied)


class _Change(NamedTuple):
    """What holds from then on, or doesn't any more; asked for, or acknowledged."""

    at: float
    holds: bool
    is_done: bool


def _changes(story: Story, kind: type[Banned | RulesChanged], begin: str, end: str) -> dict[str, list[_Change]]:
    """By client or prefix, in their order."""
    changes: dict[str, list[_Change]] = defaultdict(list)
    for event in story.changes:
        if isinstance(event, ChangeAsked):
            if event.what in (begin, end):
                changes[event.of].append(_Change(event.at, event.what == begin, False))
        elif isinstance(event, kind):
            of, holds = (event.client, event.holds) if isinstance(event, Banned) else (event.prefix, event.is_denied)
            changes[of].append(_Change(event.at, holds, True))
    return changes


def _held(story: Story, rules: Rules, slack_s: float, changes: list[_Change]) -> Iterator[tuple[float, float]]:
    """From when to when every node knew of it, and nobody may have undone it."""
    faults = story.faults.unheard
    tells = any(not change.is_done for change in changes)
    since, holds = -FOREVER, False
    unanswered: list[float] = []
    for change in changes:
        if change.holds and change.is_done and not holds:
            undone_by = faults.quiet_for(unanswered[-1], rules.delivered_max_s) if unanswered else -FOREVER
            holds, since = True, max(faults.quiet_for(change.at, slack_s), undone_by)
        elif not change.holds:
            until = change.at if tells else faults.before(change.at - slack_s)
            if holds and since < until:
                yield since, until
            holds = False
            if not change.is_done:
                unanswered.append(change.at)
            elif unanswered:
                unanswered.pop()
    if holds:
        yield since, FOREVER


def _judge_messages(story: Story, prefix: str, denied: list[tuple[float, float]]) -> Iterator[Finding]:
    for topic in story.topics_of(below(prefix)):
        for sent in story.by_topic[topic]:
            if sent.is_will:
                connection = sent.connections[0]
                if connection.connected and _was_held(denied, connection.asked.at, connection.connected.at):
                    text = f"{connection.asked.node} let in {connection.asked.client} with a will to {topic}"
                    yield Finding(LET_THROUGH, connection.connected.at, f"{text}, which nobody may publish to")
                continue
            if not _was_held(denied, sent.first_sent_at, sent.last_sent_at):
                continue
            text = f"{sent.message.publisher} {sent.message.number} to {topic}, which nobody may publish to,"
            for came in story.came.get(sent.message, ()):
                yield Finding(LET_THROUGH, came.delivered.at, f"{text} came to {came.life.client}")
            is_told = all(connection.asked.version >= 5 for connection in sent.connections)
            if sent.acknowledged_at < FOREVER and is_told and sent.message not in story.came:
                yield Finding(LET_THROUGH, sent.acknowledged_at, f"{text} was acknowledged")


def _judge_what_is_left(
    story: Story, rules: Rules, prefix: str, denied: list[tuple[float, float]]
) -> Iterator[Finding]:
    for topic in story.topics_of(below(prefix)):
        for sent in story.by_topic[topic]:
            for came in story.came.get(sent.message, ()):
                if _was_held(denied, _due_from(story, rules, sent), came.delivered.at):
                    text = f"{sent.message.publisher} {sent.message.number} to {topic}, which was due when nobody might"
                    yield Finding(LET_THROUGH, came.delivered.at, f"{text} publish it, came to {came.life.client}")


def _left_by(story: Story, client: str) -> Iterator[Sent]:
    """Its wills, and its delayed messages."""
    for sent in story.sent.values():
        if (sent.is_will or sent.is_delayed) and sent.message.publisher in (client, f"{client}!"):
            yield sent


def _due_from(story: Story, rules: Rules, sent: Sent) -> float:
    """From when on it may be published, if it is published later than it was sent; else -FOREVER."""
    if sent.is_delayed and not story.faults.of_time.overlap(sent.first_sent_at, sent.due_at):
        return sent.due_at - rules.times_apart_s
    connection = sent.connections[0]
    if not sent.is_will or connection.connected is None or connection.until == FOREVER:
        return -FOREVER
    assert connection.asked.will is not None
    delay_s = min(connection.asked.will.delay_s, connection.shortest_expiry_s)
    later = story.by_client[connection.asked.client][connection.place + 1 :]
    return min(
        [
            earliest(story, rules, connection.until) + delay_s,
            *(other.asked.at for other in later if not other.is_refused),
        ]
    )


def _judge_hearing(story: Story, prefix: str, denied: list[tuple[float, float]]) -> Iterator[Finding]:
    for topic in story.topics_of(below(prefix)):
        for sent in story.by_topic[topic]:
            for came in story.came.get(sent.message, ()):
                if _was_held(denied, sent.first_sent_at, came.delivered.at):
                    text = f"{sent.message.publisher} {sent.message.number} to {topic}, which nobody may hear of,"
                    yield Finding(LET_THROUGH, came.delivered.at, f"{text} came to {came.life.client}")


def _judge_subscriptions(story: Story, prefix: str, denied: list[tuple[float, float]]) -> Iterator[Finding]:
    for life in story.lives:
        for window in life.windows if life.tells else ():
            is_below = overlap(below(prefix), topic_filter(window.filter))
            if is_below and _was_held(denied, window.asked_at, window.since):
                text = f"{life.client} was granted {window.filter}, though nobody may subscribe below {prefix}"
                yield Finding(LET_THROUGH, window.since, text)


def _was_held(spans: list[tuple[float, float]], since: float, until: float) -> bool:
    """All the time."""
    return any(began < since and until < ended for began, ended in spans)
