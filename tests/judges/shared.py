"""Of a shared subscription one member gets each message, on whatever node, and it is lost to nobody.

"What a member didn't acknowledge when its session ended goes to another." So:

- Shared out twice: a message comes to a group once, also where its publisher, whose session lasts, says it again at
  QoS 2, on whatever node. Lawful at QoS 1 where its publisher sent it again, to a member that came back, or to another
  one where the session of who had it ended; at QoS 2 to another one where it ended with a node that a fault kept from
  accepting it ("… and so does what a purged node never accepted"), or, sent again, that a fault ended meanwhile; sent
  again to another node, where one with such members may have ended, or wasn't purged yet, to which it was dealt; where
  one was cut off for so long that it was purged, for it may have given the message away and not been heard; sent again,
  once more at QoS 1, where one stood still for so long with a member at QoS 1 that ended: it gives what that had to
  another when it goes on, and the node that sent it there has dealt it anew; to the same
  durable member, which has it in flight again, for Redis came back with older data while slots moved. Before all
  nodes are of a release that remembers it, also where it is sent again.
- Lost to a group: an acknowledged message comes to one member, if there is one that was there `max_stale_s` before and
  stays subscribed to the end. Lawful: what a member had that a fault ended ("what a killed node had accepted is lost
  with the sessions that ended with it"); of QoS 2 what any had whose session ended, for it may go to nobody else
  [MQTT-4.8.2-6]; what waits for a durable member that is away; the oldest of more than `max_mqueue_len`.

A delivery whose way can't be told, for its client has several and gives no identifiers, is taken for a good one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from judges.ends import promised_until
from judges.life import Came, Life, Sent, Window
from judges.losses import is_promised, may_have_overflowed
from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules

SHARED_TWICE: Final = "shared out twice"
SHARED_LOST: Final = "lost to a group"


class _End(NamedTuple):
    """A member's: what it had may be gone with it. `qos`: of a session, whose QoS 2 may go to nobody else."""

    at: float
    by_fault: bool
    lasts: bool
    qos: int


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    groups: dict[str, list[tuple[Life, Window]]] = defaultdict(list)
    for life in story.lives:
        for window in life.windows:
            if window.is_shared:
                groups[window.filter].append((life, window))
    for group, members in groups.items():
        losses = _Losses(story, rules, members)
        for topic in story.topics_of(group):
            for sent in story.by_topic[topic]:
                came = [came for came in story.came.get(sent.message, ()) if group in came.life.ways(came.delivered)]
                came_surely = [each for each in came if _is_sure(each)]
                if len(came_surely) > 1:
                    is_anew = _may_be_dealt_anew(story, rules, members, came_surely)
                    is_handed_on = _may_be_handed_on(story, rules, members, came_surely)
                    yield from _judge_repeats(story, rules, group, came_surely, is_anew, is_handed_on)
                if not came and losses.is_lost(sent):
                    text = f"{sent.message.publisher} {sent.message.number} on {topic} (QoS {sent.qos})"
                    yield Finding(SHARED_LOST, sent.acknowledged_at, f"{text} came to nobody of {group}")


def _is_sure(came: Came) -> bool:
    return len(came.life.ways(came.delivered)) == 1


# --- twice ------------------------------------------------------------------------------------------------------------


def _may_be_dealt_anew(story: Story, rules: Rules, members: list[tuple[Life, Window]], came: list[Came]) -> bool:
    """A node with members was purged, and may have given it away; or ended, and it was sent again to another."""
    sent, until = came[0].sent, came[-1].delivered.at
    nodes = {connection.asked.node for life, _ in members if not life.lasts for connection in life.connections}
    since, faults = sent.first_sent_at, story.faults
    if sent.qos > 0 and any(faults.of_paths(node).overlap_for(rules.purged_min_s, since, until) for node in nodes):
        return True
    moved = len({connection.asked.node for connection in sent.connections}) > 1
    return moved and any(faults.of(node).overlap(since - rules.purged_max_s, until) for node in nodes)


def _may_be_handed_on(story: Story, rules: Rules, members: list[tuple[Life, Window]], came: list[Came]) -> bool:
    """Sent again at QoS 2, when a node stood still that may have had it in flight to a member at QoS 1: as the node was
    purged it is dealt anew, and as the member's session has ended the node gives it to another when it goes on."""
    sent, until = came[0].sent, came[-1].delivered.at
    if sent.qos < 2 or len(sent.connections) < 2:
        return False
    since = sent.first_sent_at
    return any(
        not life.lasts
        and window.qos == 1
        and window.asked_at <= since <= window.until
        and life.ended_at <= until + rules.silent_max_s
        and story.faults.of_stops(life.connections[-1].asked.node).overlap_for(rules.purged_min_s, since, until)
        for life, window in members
    )


def _judge_repeats(
    story: Story, rules: Rules, group: str, came: list[Came], is_anew: bool, is_handed_on: bool
) -> Iterator[Finding]:
    for place, again in enumerate(came[1:], 1):
        earlier = came[:place]
        if is_handed_on:
            earlier = [before for before in earlier if before.delivered.qos == again.delivered.qos]
        if is_anew:
            earlier = [before for before in earlier if _is_taken_once(rules, before, again)]
        if earlier and not any(_may_come_again(story, rules, before, again) for before in earlier):
            delivered = again.delivered
            text = (
                f"{delivered.publisher} {delivered.number} on {delivered.topic} (QoS {delivered.qos}) came to {group}"
            )
            yield Finding(SHARED_TWICE, delivered.at, f"{text} again: {came[0].life.client}, {again.life.client}")


def _is_taken_once(rules: Rules, before: Came, again: Came) -> bool:
    """Also where several nodes dealt it out anew: by one session that ends with its connection."""
    is_same = before.life is again.life and not again.life.lasts
    return is_same and again.delivered.qos == 2 and _is_known_again(rules, again.sent)


def _may_come_again(story: Story, rules: Rules, before: Came, again: Came) -> bool:
    sent, delivered = again.sent, again.delivered
    is_repeated = len(sent.connections) > 1
    if is_repeated and not _is_known_again(rules, sent):
        return True
    if sent.is_will or sent.is_delayed:  # published anew where its publisher's owner, or the leader, ended
        return story.faults.any.overlap(sent.first_sent_at, delivered.at)
    if delivered.qos == 0:
        return False
    if delivered.qos == 2 and before.delivered.qos == 2:
        if any(loss.may_bring_again(before, again) for loss in story.moved_losses):
            return True
        until = delivered.at if is_repeated else before.delivered.at
        return _may_not_have_been_accepted(story, rules, before, again, until)
    if before.life is again.life:
        return delivered.dup or before.connections < again.connections
    return before.life.ended_at <= delivered.at + rules.silent_max_s


def _is_known_again(rules: Rules, sent: Sent) -> bool:
    """It has an id by which whoever had it takes no second one."""
    return rules.is_one_release and sent.qos == 2 and all(connection.asked.lasts for connection in sent.connections)


def _may_not_have_been_accepted(story: Story, rules: Rules, before: Came, again: Came, until: float) -> bool:
    """Until then a fault kept the member's node from saying that it had the message, and ended the member's session."""
    came_at, ended_at = before.delivered.at, before.life.ended_at
    if before.life.lasts or ended_at > again.delivered.at + rules.silent_max_s:
        return False
    node = before.life.connections[-1].asked.node
    return story.faults.of(node).overlap(came_at - rules.clock_slack_s, until + rules.clock_slack_s)


# --- lost -------------------------------------------------------------------------------------------------------------


class _Losses:
    """What is promised to one group, as far as the member stands for it that stays the longest."""

    def __init__(self, story: Story, rules: Rules, members: list[tuple[Life, Window]]) -> None:
        self._story = story
        self._rules = rules
        self._durable = [(life, window) for life, window in members if life.lasts]
        staying = [(life, window) for life, window in members if window.until == FOREVER and not life.excused]
        self._settled_at = max((promised_until(story, rules, life) for life, _ in staying), default=-FOREVER)
        steady = [
            (life, window)
            for life, window in staying
            if promised_until(story, rules, life) == self._settled_at > -FOREVER
        ]
        is_sure = all(window.qos for _, window in members)
        since = min((window.since for _, window in steady), default=FOREVER) if is_sure else FOREVER
        self._since = since + rules.max_stale_s + rules.clock_slack_s
        self._until = max((min(life.left_at, story.ended_at) for life, _ in steady), default=-FOREVER)
        """When the last was there."""
        self._looked_at = min(self._settled_at, story.ended_at - rules.delivered_max_s)
        """From then on whoever was there had all that it was to have."""
        ended = [(life, window) for life, window in members if min(window.until, life.ended_at) <= self._looked_at]
        self._ends = sorted(self._end(life, window) for life, window in ended)

    def is_lost(self, sent: Sent) -> bool:
        """It came to nobody, and might have."""
        if sent.sent_at + sent.wait_s < self._since or sent.promised_at >= self._settled_at or sent.expiry_s >= 0.0:
            return False
        return is_promised(self._story, self._rules, sent) and not (self._may_wait(sent) or self._may_have_ended(sent))

    def _may_wait(self, sent: Sent) -> bool:
        """For a member that is away, or that Redis or its bound took it from."""
        story, rules = self._story, self._rules
        for life, window in self._durable:
            if (
                window.since > sent.promised_at + rules.delivered_max_s
                or min(window.until, life.ended_at) < sent.due_at
            ):
                continue
            since = max(self._looked_at, life.began_at)
            until = self._until if life.ended_at == FOREVER else min(self._until, life.left_at)
            if life.ended_at > self._looked_at and not life.was_there(since, max(since, until)):
                return True
            if story.lost_by_redis(sent.first_sent_at, FOREVER) or may_have_overflowed(story, rules, life, sent):
                return True
        return False

    def _may_have_ended(self, sent: Sent) -> bool:
        """With a member that had it."""
        rules = self._rules
        had_until = sent.promised_at + rules.delivered_max_s + rules.silent_max_s
        for end in self._ends[bisect_left(self._ends, (sent.due_at - rules.silent_max_s,)) :]:
            if (end.lasts or end.at <= had_until) and (end.by_fault or min(sent.qos, end.qos) == 2):
                return True
        return False

    def _end(self, life: Life, window: Window) -> _End:
        at, near_s = min(window.until, life.ended_at), self._rules.silent_max_s
        faults = self._story.faults.of(life.connections[-1].asked.node)
        by_fault = faults.overlap(min(at, life.left_at) - near_s, at + near_s)
        return _End(at, by_fault, life.lasts, window.qos if life.ended_at < FOREVER else 0)
