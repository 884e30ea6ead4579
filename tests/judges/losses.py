"""An acknowledged message isn't lost.

"An acknowledged QoS 1 or 2 message was put to every matching subscriber … What waits for a client that is away, or
whose node is cut off, is bounded (`max_mqueue_len`): beyond it the oldest goes."

So each message that was sent behind a SUBACK of the same node, or `max_stale_s` behind another one's, and acknowledged,
comes by that subscription to a life that is still there at the end. A connection that ended may have had anything under
way, and so may a session that its client ended, or that expired. Of these a message counts that was acknowledged
`delivered_max_s` before the end, to a client that was there; and any gap: it never came, but by the same subscription a
later one of its publisher's connection and topic.

Lawful: the sender's own where it asked for No Local; what is delayed, and may be denied when it is due; what a 3.1.1
client published where rules may have denied it, or, for a client that was away, or whose node was cut off, or not back
yet, while Redis was short of memory, for it can't be told; what comes by a subscription that a rule may have ended;
what has an expiry, unless its client was there, with no fault, long before that ran out; the oldest of more than
`max_mqueue_len` that waited for a client that was away, or whose node was cut off, or not back yet; what is larger than
its client allows; what is delayed, until it is due, or if the cluster's time was wrong; for a session that ends with
its connection what stood in a resend buffer of a node that was killed while it had no link to the client's, or one that
brought nothing (a known limit). Wills and shared subscriptions have judges of their own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import Final

from judges.denials import may_be_dropped_when_due, may_be_revoked, may_have_been_denied
from judges.ends import promised_until
from judges.life import Connection, Life, Sent, Window
from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules

LOST: Final = "lost"

Streams = dict[str, list[list[Sent]]]
"""By topic, of each publisher: what is promised to subscribers, in the order in which it was."""

_promised_at = attrgetter("promised_at")
_due_at = attrgetter("due_at")


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    streams = _streams(story, rules)
    for life in story.lives:
        if not life.excused:
            yield from _judge(story, rules, life, streams)


def _streams(story: Story, rules: Rules) -> Streams:
    streams: Streams = {}
    for topic, sent_there in story.by_topic.items():
        by_publisher: dict[str, list[Sent]] = defaultdict(list)
        for sent in sent_there:
            if is_promised(story, rules, sent):
                by_publisher[sent.message.publisher].append(sent)
        streams[topic] = [sorted(stream, key=_promised_at) for stream in by_publisher.values()]
    return streams


def is_promised(story: Story, rules: Rules, sent: Sent) -> bool:
    """To somebody: it was acknowledged as what goes to subscribers."""
    if sent.acknowledged_at == FOREVER or sent.qos == 0 or sent.clears:
        return False
    if sent.is_delayed:
        due_by = story.faults.any.quiet_for(sent.promised_at, rules.delivered_max_s)
        if due_by > story.ended_at or story.faults.of_time.overlap(sent.first_sent_at, sent.promised_at):
            return False
    return not may_have_been_denied(story, sent) and not may_be_dropped_when_due(story, sent)


def _judge(story: Story, rules: Rules, life: Life, streams: Streams) -> Iterator[Finding]:
    came: dict[tuple[str, str], list[tuple[Sent, float]]] = defaultdict(list)
    for delivered, _, _, sent in life.came:
        came[delivered.publisher, delivered.topic].append((sent, delivered.at))
    have = {sent for some in came.values() for sent, _ in some}
    settled_at = promised_until(story, rules, life)
    lost: set[Sent] = set()
    for window in life.windows:
        if window.is_shared or not window.qos or may_be_revoked(story, rules, window.filter, window.since):
            continue
        since = window.held_since + rules.max_stale_s + rules.clock_slack_s
        until = min(window.until, life.ended_at)
        is_whole = window.until == FOREVER
        for topic in story.topics_of(window.filter):
            for stream in streams[topic]:
                first, end = (bisect_left(stream, at, key=_promised_at) for at in (window.held_since, until))
                due = [sent for sent in stream[first:end] if sent not in have and _is_behind(window, sent, since)]
                missing = [
                    sent for sent in due if sent not in lost and not _is_excused(story, rules, life, window, sent)
                ]
                if missing:
                    passed = _passed(came[stream[0].message.publisher, topic], window.held_since, until)
                    for sent in missing:
                        if (is_whole and sent.promised_at < settled_at) or _is_passed(sent, passed):
                            lost.add(sent)
                            yield _finding(life, window, sent)


def _finding(life: Life, window: Window, sent: Sent) -> Finding:
    text = (
        f"{sent.message.publisher} {sent.message.number} on {sent.topic} (QoS {sent.qos}) never came to {life.client}"
    )
    return Finding(LOST, sent.acknowledged_at, f"{text}, subscribed at {window.since:.3f}")


def _is_behind(window: Window, sent: Sent, since: float) -> bool:
    """It was sent when the subscription was known there: at the node that said SUBACK it is at once."""
    is_near = not sent.is_delayed and all(connection.asked.node == window.node for connection in sent.connections)
    return sent.sent_at + sent.wait_s >= (window.held_since if is_near else since)


def _passed(came: Iterable[tuple[Sent, float]], since: float, until: float) -> dict[Connection, int]:
    """Of each connection the last acknowledged message that came by this subscription, as that connection sent it."""
    passed: dict[Connection, int] = {}
    for sent, at in came:
        is_its = max(since, sent.last_sent_at) <= at < until
        if is_its and sent.acknowledged_at < FOREVER and not sent.is_delayed:
            passed[sent.connections[-1]] = max(passed.get(sent.connections[-1], 0), sent.message.number)
    return passed


def _is_passed(sent: Sent, passed: dict[Connection, int]) -> bool:
    return not sent.is_delayed and passed.get(sent.connections[-1], 0) > sent.message.number


def _is_excused(story: Story, rules: Rules, life: Life, window: Window, sent: Sent) -> bool:
    if (window.no_local and sent.message.publisher == life.client) or life.may_be_too_large(sent):
        return True
    if sent.expiry_s >= 0.0 and _may_have_expired(story, rules, life, sent):
        return True
    return _may_have_died_with_its_node(story, life, sent) or may_have_overflowed(story, rules, life, sent)


def _may_have_died_with_its_node(story: Story, life: Life, sent: Sent) -> bool:
    if life.lasts:
        return False
    by, to = sent.connections[-1].asked.node, {connection.asked.node for connection in life.connections}
    since, until = sent.last_sent_at, sent.acknowledged_at
    return any(story.faults.died_with_it(by, node, since, until) for node in to if node != by)


def _may_have_expired(story: Story, rules: Rules, life: Life, sent: Sent) -> bool:
    since, until = sent.first_sent_at - rules.delivered_max_s, sent.promised_at + rules.delivered_max_s
    if sent.due_at + sent.expiry_s <= until or story.faults.any.overlap(since, until):
        return True
    return not life.was_there(since, until)


def may_have_overflowed(story: Story, rules: Rules, life: Life, sent: Sent) -> bool:
    """Its client was away, or its node cut off, or not back yet, which is as if it were; and so many messages
    may have come behind it, before any of them passed it, that it had to go. What was published before it may have too,
    if it was acknowledged later: it may have waited at its own node."""
    if _may_have_been_dropped(story, rules, life, sent):
        return True
    others = story.meant_for(life)
    if len(others) <= rules.max_mqueue_len:
        return False
    until = life.passed_at(sent.promised_at)
    beside = bisect_right(others, until, key=_due_at) - bisect_left(story.arrived_for(life), sent.due_at)
    if beside <= rules.max_mqueue_len:
        return False
    absences = life.absences
    first = bisect_left(absences, sent.due_at, key=itemgetter(1))
    if first < len(absences) and absences[first][0] <= until:
        return True
    return any(_was_cut_off(story, connection, sent.due_at, until) for connection in life.connections)


def _may_have_been_dropped(story: Story, rules: Rules, life: Life, sent: Sent) -> bool:
    """Its client was away, or its node cut off, or not back yet, while Redis was short of memory, and who published it,
    being of before 5.0, couldn't be told so. Amid a fault a delayed message is published late."""
    if not life.lasts or all(connection.asked.version >= 5 for connection in sent.connections):
        return False
    is_late = sent.is_delayed and story.faults.any.overlap(sent.first_sent_at, sent.promised_at)
    until = sent.promised_at + (rules.recovered_max_s if is_late else 0.0)
    if not story.faults.of_memory.overlap(sent.first_sent_at - rules.recovered_max_s, until):
        return False
    if any(left <= until and sent.due_at <= back for left, back in life.absences):
        return True
    return any(_was_cut_off(story, connection, sent.due_at, until) for connection in life.connections)


def _was_cut_off(story: Story, connection: Connection, since: float, until: float) -> bool:
    """For a while between these times, with its node."""
    if connection.connected is None:
        return False
    since, until = max(since, connection.connected.at), min(until, connection.until)
    return since <= until and story.faults.kept_away(connection.asked.node, since, until)
