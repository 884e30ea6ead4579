"""While nothing disturbs them nodes do what they are asked.

Calm is a moment if no fault ran `undisturbed_s` before it, and none begins within NEAR_S.

- Lost in calm: at QoS 0 a message is promised to nobody while something is broken. But what is sent in calm comes to
  each client that is there, and has been subscribed for a while; so does one of QoS 1 or 2 by a subscription at QoS 0.
- Refused in calm: a CONNECT, a SUBSCRIBE or a PUBLISH is refused for a reason. Lawful are a ban, a rule (of a will,
  too), an exclusive filter that is another's (a judge of its own), a shared subscription whose members are full, and
  another CONNECT of that client at once.

- Late in calm: it takes `calm_max_s` to a client that is there, and answers what it is sent; what is delayed, from when
  it is due. What a member of a group left may come to another one later.

Of a client that comes by another connection, or whose connection ends within NEAR_S, nobody can say.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from judges.denials import may_be_banned, was_ever_denied
from judges.life import ORDINARY, Came, Connection, Life, Sent, Window
from judges.story import Story
from judges.topics import EXCLUSIVE, matches, topic_filter
from judges.verdict import FOREVER, Finding, Rules
from load.history import Message, PublishRefused, Refused, SubscribeRefused

LOST_IN_CALM: Final = "lost in calm"
REFUSED_IN_CALM: Final = "refused in calm"
LATE_IN_CALM: Final = "late in calm"

QUOTA_EXCEEDED: Final = 0x97
NEAR_S: Final = 1.0

_first_sent_at = attrgetter("first_sent_at")


def losses(story: Story, rules: Rules) -> Iterator[Finding]:
    for life in story.lives:
        have = {came.sent for came in life.came}
        for window in life.windows:
            if not window.is_shared:
                yield from _judge_window(story, rules, life, window, have)


def _judge_window(story: Story, rules: Rules, life: Life, window: Window, have: set[Sent]) -> Iterator[Finding]:
    since = window.since + rules.max_stale_s + rules.clock_slack_s
    until = min(window.until, story.ended_at) - NEAR_S
    for topic in story.topics_of(window.filter):
        sent_there = story.by_topic[topic]
        first, end = (bisect_left(sent_there, at, key=_first_sent_at) for at in (since, until))
        for sent in sent_there[first:end]:
            is_at_qos0 = not window.qos or not sent.qos
            if is_at_qos0 and sent not in have and _is_due(story, rules, life, window, sent):
                text = f"{sent.message.publisher} {sent.message.number} on {sent.topic} (QoS {sent.qos})"
                yield Finding(LOST_IN_CALM, sent.first_sent_at, f"{text} never came to {life.client}")


def _is_due(story: Story, rules: Rules, life: Life, window: Window, sent: Sent) -> bool:
    at = sent.due_at
    if sent.is_will or sent.clears or sent.refusals or len(sent.connections) > 1:
        return False
    if sent.expiry_s >= 0.0 or life.may_be_too_large(sent):
        return False
    if window.no_local and sent.message.publisher == life.client:
        return False
    if was_ever_denied(story, sent.topic) or not _is_calm(story, rules, sent.first_sent_at, at):
        return False
    if sent.is_delayed and at > min(window.until, story.ended_at) - 2 * NEAR_S:
        return False
    near = [connection for connection in life.connections if connection.until > at - NEAR_S]
    return _stays(sent.connections[0], sent.first_sent_at) and len(near) == 1 and _stays(near[0], at - NEAR_S)


def _stays(connection: Connection, at: float) -> bool:
    connected = connection.connected
    return connected is not None and connected.at <= at and connection.until > at + 2 * NEAR_S


def _is_calm(story: Story, rules: Rules, at: float, until: float = -FOREVER) -> bool:
    return not story.faults.any.overlap(at - rules.undisturbed_s, max(at, until) + NEAR_S)


def delays(story: Story, rules: Rules) -> Iterator[Finding]:
    for life in story.lives:
        seen: set[Sent] = set()
        for came in life.came:
            delivered, _, _, sent = came
            late_s = delivered.at - sent.due_at
            if sent in seen or (late_s > rules.calm_max_s and _may_be_late(story, rules, came)):
                continue
            seen.add(sent)
            if late_s > rules.calm_max_s:
                text = f"{sent.message.publisher} {sent.message.number} on {sent.topic} (QoS {sent.qos})"
                yield Finding(LATE_IN_CALM, delivered.at, f"{text} came to {life.client} after {late_s:.1f} s")


def _may_be_late(story: Story, rules: Rules, came: Came) -> bool:
    delivered, life, _, sent = came
    if (
        sent.is_will
        or sent.refusals
        or len(sent.connections) > 1
        or not _stays(sent.connections[0], sent.first_sent_at)
    ):
        return True
    if not _is_calm(story, rules, sent.first_sent_at, delivered.at) or was_ever_denied(story, sent.topic):
        return True
    near = [connection for connection in life.connections if connection.until > sent.due_at - NEAR_S]
    if len(near) != 1 or not _stays(near[0], sent.due_at - NEAR_S) or not life.answers_at_once:
        return True
    if not any(window.since + NEAR_S < sent.due_at for window in life.windows_on(sent.topic)):
        return True
    ways = life.ways(delivered)
    return ways != (ORDINARY,) and _may_be_anothers(story, ways, sent.first_sent_at, delivered.at)


def _may_be_anothers(story: Story, ways: tuple[str, ...], since: float, until: float) -> bool:
    """A member may have had it, and left, or doesn't answer."""
    return any(
        min(window.until, life.left_at) < until or not life.answers_at_once
        for life in story.lives
        for window in life.windows
        if window.filter in ways and window.since < until and since < min(window.until, life.ended_at)
    )


def refusals(story: Story, rules: Rules) -> Iterator[Finding]:
    for refused in story.all(Refused):
        connection = story.connections[refused.connection]
        is_banned = may_be_banned(story, rules, refused.client, refused.at)
        is_rightly = is_banned or _may_not_leave(story, connection) or _has_rivals(story, connection, refused.at)
        if not is_rightly and _is_calm(story, rules, connection.asked.at):
            yield _refusal(refused.at, refused.client, "CONNECT", refused.reason)
    for refusal in story.all(SubscribeRefused):
        is_rightly = refusal.filter.startswith(EXCLUSIVE) or was_ever_denied(story, refusal.filter)
        if not is_rightly and _is_calm(story, rules, refusal.at):
            yield _refusal(refusal.at, refusal.client, f"SUBSCRIBE {refusal.filter}", refusal.reason)
    for answer in story.all(PublishRefused):
        sent = story.sent[Message(answer.client, answer.number)]
        may_be_full = answer.reason == QUOTA_EXCEEDED and _has_a_group(story, sent.topic)
        if not may_be_full and not was_ever_denied(story, sent.topic) and _is_calm(story, rules, sent.first_sent_at):
            yield _refusal(answer.at, answer.client, f"PUBLISH {sent.topic}", answer.reason)


def _refusal(at: float, client: str, what: str, reason: int) -> Finding:
    return Finding(REFUSED_IN_CALM, at, f"{client} was refused {what} ({reason:#x}), and nothing was broken")


def _may_not_leave(story: Story, connection: Connection) -> bool:
    """Its will, for want of a permission."""
    will = connection.asked.will
    return will is not None and was_ever_denied(story, will.topic)


def _has_rivals(story: Story, connection: Connection, until: float) -> bool:
    """Its client came more than once at about that time, and one is left."""
    others = story.by_client[connection.asked.client]
    return any(other is not connection and connection.asked.at - NEAR_S <= other.asked.at <= until for other in others)


def _has_a_group(story: Story, topic: str) -> bool:
    filters = {window.filter for life in story.lives for window in life.windows if window.is_shared}
    return any(matches(topic_filter(filter), topic) for filter in filters)
