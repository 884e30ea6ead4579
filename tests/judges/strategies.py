"""Who of a group gets a message is what `mqtt.shared_subscription_strategy` says, while the group stays as it is.

- `hash_clientid`, `hash_topic`: the same member for what one client publishes, or what is published to one topic, on
  whatever node. `sticky`: the same one for what one connection publishes.
- `local`: a member whose session ends with its connection, and whose node is the publisher's, if there is one.
- `round_robin`: of what one connection publishes all members get as many, or one more; `round_robin_per_group`: of what
  one node takes, where what is under way at the edges of a time may be one more.
- A member gets what one connection publishes to one topic at one QoS in the order in which it was published.

Judged are times without a fault in which no member comes or goes, or has another connection, and groups whose members
answer at once: who doesn't keep up is passed over. Members that are away get nothing while others are there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from judges.life import Came, Life, Sent, Window
from judges.order import REORDERED
from judges.story import Story
from judges.verdict import Finding, Rules

WRONG_MEMBER: Final = "wrong member"

_NEAR_S: Final = 1.0

Member = tuple[Life, Window]


class _Dealt(NamedTuple):
    """A message, and who got it."""

    sent: Sent
    came: Came
    node: str
    """That took it."""


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    groups: dict[str, list[Member]] = defaultdict(list)
    for life in story.lives:
        for window in life.windows:
            if window.is_shared:
                groups[window.filter].append((life, window))
    for group, members in groups.items():
        if all(life.answers_at_once for life, _ in members):
            for since, until in _steady(story, rules, members):
                here = [
                    (life, window)
                    for life, window in members
                    if window.since <= since and until <= window.until and life.was_there(since, until)
                ]
                dealt, unknown = _dealt(story, group, since, until)
                yield from _judge_order(group, dealt)
                if len(here) > 1:
                    yield from _judge(rules, group, here, dealt, unknown)


def _steady(story: Story, rules: Rules, members: list[Member]) -> Iterator[tuple[float, float]]:
    """Times in which nothing changes."""
    changes = {window_at for _, window in members for window_at in (window.since, window.until)}
    for life, _ in members:
        for connection in life.connections:
            changes |= {connection.asked.at, connection.until}
            if connection.connected is not None:
                changes.add(connection.connected.at)
    for since, until in pairwise(sorted({*(at for at in changes if at < story.ended_at), story.ended_at})):
        begins = since + _NEAR_S
        if story.faults.any.overlap(since - rules.undisturbed_s, begins):
            begins = story.faults.any.quiet_for(since, rules.undisturbed_s)
        ends = min(until, story.faults.any.first(begins)) - _NEAR_S
        if begins < ends:
            yield begins, ends


def _dealt(story: Story, group: str, since: float, until: float) -> tuple[list[_Dealt], Counter[object]]:
    """What was published then, and of each connection, and node, how much of that came to nobody known."""
    dealt: list[_Dealt] = []
    unknown: Counter[object] = Counter()
    for topic in story.topics_of(group):
        for sent in story.by_topic[topic]:
            at = sent.first_sent_at
            if not since <= at < until or sent.is_will or sent.is_delayed:
                continue
            came = [each for each in story.came.get(sent.message, ()) if each.life.ways(each.delivered) == (group,)]
            node = sent.connections[0].asked.node
            if len(came) == 1 and len(sent.connections) == 1 and not sent.refusals:
                dealt.append(_Dealt(sent, came[0], node))
            else:
                unknown.update((sent.connections[0], node))
    return sorted(dealt, key=lambda each: each.sent.place), unknown


def _judge_order(group: str, dealt: Iterable[_Dealt]) -> Iterator[Finding]:
    last: dict[tuple[object, ...], Came] = {}
    for sent, came, _ in dealt:
        stream = sent.connections[0], sent.topic, came.delivered.qos, came.life
        before = last.get(stream)
        if before is not None and came.delivered.at < before.delivered.at:
            text = f"{sent.message.publisher} {before.sent.message.number} on {sent.topic} came to {came.life.client}"
            yield Finding(REORDERED, before.delivered.at, f"{text} of {group} after {sent.message.number}")
        else:
            last[stream] = came


def _judge(
    rules: Rules, group: str, members: list[Member], dealt: list[_Dealt], unknown: Counter[object]
) -> Iterator[Finding]:
    match rules.shared_strategy:
        case "hash_clientid":
            yield from _judge_one(group, ((each.sent.message.publisher, each) for each in dealt))
        case "hash_topic":
            yield from _judge_one(group, ((each.sent.topic, each) for each in dealt))
        case "sticky":
            yield from _judge_one(group, ((each.sent.connections[0], each) for each in dealt))
        case "local":
            yield from _judge_local(group, members, dealt)
        case "round_robin":
            turns = _by(dealt, lambda each: each.sent.connections[0])
            yield from _judge_turns(group, members, turns, unknown, 1)
        case "round_robin_per_group":
            yield from _judge_turns(group, members, _by(dealt, lambda each: each.node), unknown, 2)


def _judge_one(group: str, dealt: Iterable[tuple[object, _Dealt]]) -> Iterator[Finding]:
    """For one key one member."""
    first: dict[object, _Dealt] = {}
    for key, each in dealt:
        before = first.setdefault(key, each)
        if before.came.life is not each.came.life:
            yield _finding(group, each, f"as {_named(before.sent)} came to {before.came.life.client}")


def _judge_local(group: str, members: list[Member], dealt: list[_Dealt]) -> Iterator[Finding]:
    at_node = {life.connections[-1].asked.node for life, _ in members if not life.lasts}
    for each in dealt:
        life = each.came.life
        if each.node in at_node and (life.lasts or life.connections[-1].asked.node != each.node):
            yield _finding(group, each, f"and {each.node}, which took it, has a member")


def _by(dealt: Iterable[_Dealt], key: Callable[[_Dealt], object]) -> dict[object, list[_Dealt]]:
    turns: dict[object, list[_Dealt]] = defaultdict(list)
    for each in dealt:
        turns[key(each)].append(each)
    return turns


def _judge_turns(
    group: str, members: list[Member], turns: dict[object, list[_Dealt]], unknown: Counter[object], apart: int
) -> Iterator[Finding]:
    for key, some in turns.items():
        counts = Counter({life: 0 for life, _ in members})
        counts.update(each.came.life for each in some)
        most, least = max(counts.values()), min(counts.values())
        if most - least > apart + unknown[key]:
            told = ", ".join(f"{life.client} {count}" for life, count in counts.items())
            yield _finding(group, some[-1], f"and of {len(some)} in turn came {told}")


def _finding(group: str, dealt: _Dealt, why: str) -> Finding:
    text = f"{_named(dealt.sent)} came to {dealt.came.life.client} of {group}"
    return Finding(WRONG_MEMBER, dealt.came.delivered.at, f"{text}, {why}")


def _named(sent: Sent) -> str:
    return f"{sent.message.publisher} {sent.message.number} on {sent.topic} (QoS {sent.qos})"
