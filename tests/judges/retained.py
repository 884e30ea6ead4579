"""What is retained of a topic is what was acknowledged last, on every node alike.

"A retained message is in the log, and this node has seen every route that was written before it, when its publisher is
answered." A topic has one writer at a time, so its messages have an order. When all is quiet each node shows, for each
topic, the last that was acknowledged, or one that was sent behind it and got no answer; nothing, if that is one which
clears, or has expired. All nodes show the same. And who subscribes is never sent what was overwritten before
("SUBSCRIBE appends its route and then reads up to where `retained` ends").

"Of a client's retained messages on a topic, its will's included, the last counts": a will comes behind what its
connection published, and before what a later connection of its client publishes.

Lawful: what was acknowledged just before Redis lost its data may be gone with its writer; a will of a connection that
came at once with another one, or that nobody answered, may stand in any order, and so may, while nodes of an older
release are there, one whose client is back at once, or while a fault runs, and then what it published, too. Topics with
a delayed retained message, or with the will of one of several clients, have writers that nobody orders: of these it is
judged that all nodes show the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from judges.denials import may_have_been_denied
from judges.life import Came, Connection, Sent
from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules
from load.history import Message, RetainedStood

RETAINED: Final = "retained"

_place = attrgetter("place")


def _rank(sent: Sent) -> tuple[int, bool, int]:
    """Of one client's messages: by its connections."""
    return sent.connections[-1].place, sent.is_will, sent.place


def _is_raced(story: Story, connection: Connection) -> bool:
    """Nobody knows which of its client's connections came behind it."""
    connected = connection.connected
    later = story.by_client[connection.asked.client][connection.place + 1 :]
    unsure = connected is None or connection.is_rival or any(not other.is_refused for other in connection.unsure)
    return unsure or any(other.asked.at < connected.at for other in later if connected is not None)


def _is_overtaken(story: Story, connection: Connection) -> bool:
    """Its client was back before what it left, its will too, was surely written."""
    later = story.by_client[connection.asked.client][connection.place + 1 :]
    written_at = story.faults.any.quiet_for(connection.until, WRITTEN_MAX_S)
    return any(other.asked.at < written_at for other in later)


WRITTEN_MAX_S: Final = 1.0
"""How long a will that is due takes into the log while no fault runs."""
REWRITTEN_MAX_S: Final = 1.0
"""How long Redis may have had what was acknowledged before nobody else needs its writer any more."""


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    topics = retained_topics(story, rules)
    for look in story.looks:
        yield from _judge_look(look, topics)
    for came in story.retained:
        topic = topics.get(came.sent.topic)
        if topic is not None and came.life.tells and came.life.is_new:
            yield from _judge_delivery(topic, came)


def retained_topics(story: Story, rules: Rules) -> dict[str, RetainedTopic]:
    writes: dict[str, list[Sent]] = defaultdict(list)
    for sent in story.sent.values():
        if sent.retain:
            writes[sent.topic].append(sent)
    return {topic: RetainedTopic(story, rules, some) for topic, some in writes.items()}


class RetainedTopic:
    """What was retained there, in the order in which it was sent last; `_unordered`: wills, and what a client left,
    that may stand anywhere."""

    def __init__(self, story: Story, rules: Rules, writes: list[Sent]) -> None:
        self._story = story
        self._rules = rules
        self._unordered = [sent for sent in writes if self._may_stand_anywhere(sent)]
        has_wills = any(sent.is_will for sent in writes)
        self._rank = _rank if has_wills else _place
        in_order = (sent for sent in writes if not sent.had_no_effect and sent not in self._unordered)
        self._writes = sorted(in_order, key=self._rank)
        first = FOREVER
        self._first_acknowledged = [first := min(first, sent.acknowledged_at) for sent in reversed(self._writes)][::-1]
        """Of each and those behind it."""
        is_of_one = len({sent.connections[0].asked.client for sent in writes}) == 1
        self.is_ordered = not any(sent.is_delayed for sent in writes) and (is_of_one or not has_wills)
        """Its writers take turns."""
        self.may_expire = any(sent.expiry_s >= 0.0 for sent in writes)

    def _may_stand_anywhere(self, sent: Sent) -> bool:
        connection, faults = sent.connections[0], self._story.faults.any
        if sent.is_will and _is_raced(self._story, connection):
            return True
        may_be_late = sent.is_will or faults.overlap(sent.first_sent_at, connection.until)
        return not self._rules.is_one_release and may_be_late and _is_overtaken(self._story, connection)

    def may_show(self, at: float) -> set[Message | None]:
        """None: nothing."""
        shown: set[Message | None] = {sent.message for sent in self._unordered if sent.first_sent_at <= at}
        for sent in reversed(self._writes):
            if sent.first_sent_at > at:
                continue
            shown |= self._shown_of(sent, at)
            if self._is_settled(sent, at):
                return shown
        return shown | {None}

    def stays_from(self, at: float) -> bool:
        """Something has been retained since then."""
        is_cleared = any(sent.clears and sent.last_sent_at >= at for sent in self._writes)
        return not is_cleared and None not in self.may_show(at)

    def overwritten_by(self, sent: Sent, before: float) -> Sent | None:
        """What was sent behind it, and acknowledged before that time."""
        if sent in self._unordered:
            return None
        first = bisect_right(self._writes, self._rank(sent), key=self._rank)
        for write, first_acknowledged in zip(self._writes[first:], self._first_acknowledged[first:], strict=True):
            if first_acknowledged >= before:
                return None
            if self._is_settled(write, before):
                return write
        return None

    def was_refused(self, message: Message | None) -> bool:
        sent = None if message is None else self._story.sent.get(message)
        return sent is not None and sent.had_no_effect

    def _is_settled(self, sent: Sent, at: float) -> bool:
        """By then it was there, or something behind it."""
        if sent.acknowledged_at >= at or may_have_been_denied(self._story, sent):
            return False
        return not self._story.lost_by_redis(sent.acknowledged_at, sent.acknowledged_at + REWRITTEN_MAX_S)

    def _shown_of(self, sent: Sent, at: float) -> set[Message | None]:
        value = None if sent.clears else sent.message
        if sent.expiry_s < 0.0:
            return {value}
        slack_s, faults = self._rules.message_expiry_slack_s, self._story.faults
        answered_at = sent.last_sent_at if sent.acknowledged_at == FOREVER else sent.acknowledged_at
        if faults.of_time.overlap(sent.first_sent_at, at):
            return {value, None}
        if at < sent.first_sent_at + sent.expiry_s - slack_s:
            return {value}
        return {None} if at > faults.any.over(answered_at) + sent.expiry_s + slack_s else {value, None}


def _judge_look(look: list[RetainedStood], topics: dict[str, RetainedTopic]) -> Iterator[Finding]:
    """Of a node that was looked at in parts all of them count."""
    at = look[-1].at
    shown: dict[str, dict[str, Message]] = defaultdict(dict)
    for stood in look:
        shown[stood.node].update(stood.values)
    for topic in dict.fromkeys([*topics, *(topic for values in shown.values() for topic in values)]):
        known = topics.get(topic)
        of_node = {node: values.get(topic) for node, values in shown.items()}
        wrong: set[Message | None] = set()
        if known is not None and known.is_ordered:
            expected = known.may_show(at)
            wrong = {value for value in of_node.values() if value not in expected}
            for node, value in of_node.items():
                if value in wrong and not known.was_refused(value):
                    yield Finding(RETAINED, at, f"{node} shows {value} on {topic}, not one of {expected}")
        if not wrong and len(set(of_node.values())) > 1 and not (known is not None and known.may_expire):
            yield Finding(RETAINED, at, f"on {topic} the nodes show {of_node}")


def _judge_delivery(topic: RetainedTopic, came: Came) -> Iterator[Finding]:
    delivered, life, _, sent = came
    askings = life.askings_on(sent.topic)
    if not topic.is_ordered or not askings:
        return
    asked_at = min(asking.since for asking in askings)
    by = topic.overwritten_by(sent, asked_at)
    if by is not None:
        text = f"{life.client}, who subscribed at {asked_at:.3f}, was sent {sent.message} as retained on {sent.topic}"
        yield Finding(RETAINED, delivered.at, f"{text}, overwritten by {by.message.number} at {by.acknowledged_at:.3f}")
