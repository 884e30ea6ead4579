"""A will comes once, if the connection that it was for ended without a DISCONNECT 0x00; otherwise never. That of a
client that its node sent to others, because it drains, is held back, and doesn't come if the client is back by then.

It is published when its delay or its session is over, whichever comes first, and not if a new connection took up the
session before [MQTT-3.1.3-9]; at once if it has no delay, also where another connection of its client took over. "A
will is … tried again until everybody who is to have it accepted it", and "the next owner publishes what it finds, under
the same message id, so nobody gets it twice."

So a will is promised to each subscriber at QoS 1 or 2 that was there before, stays, and is whole at the end. Lawful:
the will of a clean session as whose end faults touched its node and another one, within `purged_max_s` of each other,
for that is in the memory of the node and of its client id's owner, until the node is purged (before all nodes are of
cluster version 2 in that of its node alone); the will of a client that was admitted amid a fault and never came back (a
known limit); one that Redis lost; one of a client that may be banned then, or may not publish it. Of who came back, and
left before it was answered, nobody knows whether it was let in: if only Redis was away meanwhile, the will comes, or
that of this CONNECT. Where a fault ran while the connection was there its node may have been taken for dead, or its
DISCONNECT not have been heard: then the will may come, and needn't.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from typing import Final, NamedTuple

from judges.denials import may_be_dropped_when_due
from judges.ends import promised_until
from judges.life import Came, Connection, Life, Sent, Window
from judges.losses import may_have_overflowed
from judges.story import LATE_CONNECT_MAX_S, Story
from judges.topics import matches
from judges.verdict import FOREVER, Finding, Rules
from load.history import Message

WILL_LOST: Final = "will lost"
WILL_TWICE: Final = "will twice"
WILL_UNDUE: Final = "will undue"

_NEAR_S: Final = 1.0
USE_ANOTHER_SERVER: Final = 0x9C


class _Fate(NamedTuple):
    """When a will may come at the earliest; when it must have, at the latest, or one of those `instead`."""

    since: float
    by: float
    instead: tuple[Message, ...] = ()


_NEVER: Final = _Fate(FOREVER, FOREVER)


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    wills = [sent for sent in story.sent.values() if sent.is_will]
    if not wills:
        return
    subscribers = _Subscribers(story, rules)
    retained: dict[Sent, list[Came]] = defaultdict(list)
    for came in story.retained:
        if came.sent.is_will:
            retained[came.sent].append(came)
    for will in wills:
        fate = _fate(story, rules, will)
        those = story.came.get(will.message, [])
        yield from _judge_undue(will, fate, [*those, *retained[will]])
        yield from _judge_twice(those)
        if fate.by < FOREVER:
            have = {one.life for message in (will.message, *fate.instead) for one in story.came.get(message, [])}
            for life in subscribers.lacking(will, fate, have):
                yield Finding(WILL_LOST, fate.by, f"{_named(will)} never came to {life.client}")


def _named(will: Sent) -> str:
    return f"{will.message.publisher} {will.message.number} on {will.topic} (QoS {will.qos})"


# --- when it is due ---------------------------------------------------------------------------------------------------


def _fate(story: Story, rules: Rules, will: Sent) -> _Fate:
    connection = will.connections[0]
    connected, asked, said = connection.connected, connection.asked, connection.disconnected
    if connected is None:
        return _Fate(asked.at, FOREVER)  # nobody knows whether it was let in
    ended_at = connection.until if said is None else min(said.at, connection.until)
    if _may_have_lost_a_race(story, rules, connection, ended_at):
        return _Fate(asked.at, FOREVER)
    is_faulty = story.faults.any.overlap(connected.at - _NEAR_S, min(ended_at, story.ended_at) + _NEAR_S)
    later = _behind(story, connection)
    if said is not None and not said.with_will:
        is_raced = any(other.asked.at < said.at + rules.clock_slack_s for other in later)
        return _Fate(connected.at, FOREVER) if is_faulty or is_raced else _NEVER
    if said is None and (held_s := _held_back_s(story, rules, connection, ended_at)):
        return _when_sent_away(story, rules, connection, later, ended_at, held_s)
    if ended_at == FOREVER and not later:
        return _Fate(connected.at, FOREVER) if is_faulty else _NEVER
    return _when_it_ended(story, rules, connection, later, ended_at, is_faulty)


def _when_it_ended(
    story: Story, rules: Rules, connection: Connection, later: list[Connection], ended_at: float, is_faulty: bool
) -> _Fate:
    """Without a word, or with one that has the will published."""
    asked, connected, faults = connection.asked, connection.connected, story.faults
    assert connected is not None
    assert asked.will is not None
    delay_s = min(asked.will.delay_s, connection.expiry_s)
    since = min([ended_at, *(other.asked.at for other in later)]) - rules.clock_slack_s + delay_s
    last_end = ended_at + rules.clock_slack_s
    if is_faulty:
        last_end = faults.any.over(last_end) + rules.gone_noticed_max_s
    by = faults.any.quiet_for(last_end + delay_s, rules.delivered_max_s)
    unsure: list[Connection] = []
    for other in later:
        if not delay_s or other.asked.at > last_end + delay_s:
            break
        if other.asked.clean_start:
            since = min(since, other.asked.at - rules.clock_slack_s)
            if other.connected is not None:
                break
        elif other.connected is not None and other.connected.present and other.connected.at < since and not is_faulty:
            return _NEVER
        elif other.connected is None and other.asked.will is not None:
            unsure.append(other)
        else:
            by = FOREVER  # it may have come in time
    if unsure:
        return _one_of(story, rules, connection, later, unsure, connected.at if is_faulty else since)
    if is_faulty:
        since = connected.at
    return _Fate(since, FOREVER if by > story.ended_at or _may_be_lost(story, rules, connection, later, by) else by)


def _one_of(
    story: Story,
    rules: Rules,
    connection: Connection,
    later: list[Connection],
    unsure: list[Connection],
    since: float,
) -> _Fate:
    """It may have been let in in time, and have a will itself, as long as nobody else came back."""
    faults, wills = story.faults, [connection, *unsure]
    last_end = faults.any.over(max(one.until for one in wills) + rules.clock_slack_s) + rules.gone_noticed_max_s
    delay_s = max(one.asked.will.delay_s for one in wills if one.asked.will is not None)
    by = faults.any.quiet_for(last_end + delay_s, rules.delivered_max_s)
    is_known = not faults.of_nodes.overlap(connection.asked.at - _NEAR_S, by)
    is_back = any(other.asked.at < by for other in later if other not in unsure)
    if not is_known or is_back or by > story.ended_at or story.lost_by_redis(connection.asked.at, by):
        return _Fate(since, FOREVER)
    client = connection.asked.client
    instead = [Message(f"{client}!", one.asked.will.number) for one in unsure if one.asked.will is not None]
    return _Fate(since, by, tuple(instead))


def _held_back_s(story: Story, rules: Rules, connection: Connection, ended_at: float) -> float:
    """For how long its node may hold its will back, because it sent it to others; 0.0: it isn't, or is due later by
    itself."""
    asked, connected = connection.asked, connection.connected
    assert connected is not None
    assert asked.will is not None
    if min(asked.will.delay_s, connection.expiry_s) >= rules.will_held_s:
        return 0.0
    was_told = connection.closed is not None and connection.closed.reason == USE_ANOTHER_SERVER
    may_be = story.faults.drains(asked.node).overlap(connected.at, ended_at + rules.silent_max_s)
    return rules.will_held_s if was_told or may_be else 0.0


def _when_sent_away(
    story: Story, rules: Rules, connection: Connection, later: list[Connection], ended_at: float, held_s: float
) -> _Fate:
    """Sure is what happened where the client was told so, and no other fault ran."""
    connected, closed, faults = connection.connected, connection.closed, story.faults
    assert connected is not None
    held_until = ended_at + held_s
    was_told = closed is not None and closed.reason == USE_ANOTHER_SERVER and rules.is_one_release
    near = (connected.at - _NEAR_S, min(held_until, story.ended_at) + _NEAR_S)
    is_sure = was_told and not faults.but_drains.overlap(*near)
    backs = [other.connected.at for other in later if other.connected is not None]
    if is_sure and backs and backs[0] < held_until - rules.clock_slack_s:
        return _NEVER
    since = held_until - rules.clock_slack_s if is_sure else connected.at
    if ended_at == FOREVER or any(other.asked.at < held_until + rules.clock_slack_s for other in later):
        return _Fate(since, FOREVER)
    last_end = faults.any.over(held_until + rules.clock_slack_s) + (0.0 if is_sure else rules.gone_noticed_max_s)
    by = faults.any.quiet_for(last_end, rules.delivered_max_s)
    is_lost = by > story.ended_at or story.lost_by_redis(connected.at, by)
    return _Fate(since, FOREVER if is_lost or _may_be_lost(story, rules, connection, later, by) else by)


def _may_be_lost(story: Story, rules: Rules, connection: Connection, later: list[Connection], by: float) -> bool:
    asked, connected, faults = connection.asked, connection.connected, story.faults
    assert connected is not None
    ended_at = min(connection.until, story.ended_at)
    if not asked.lasts:
        since = ended_at - rules.silent_max_s
        if rules.is_one_release:
            return faults.met(asked.node, rules.purged_max_s, since, by)
        return faults.of(asked.node).overlap(since, by)
    if story.lost_by_redis(connected.at, by):
        return True
    admitted_amid = faults.any.overlap(asked.at - _NEAR_S, connected.at + rules.silent_max_s)
    return admitted_amid and not any(other.connected is not None for other in later)


def _may_have_lost_a_race(story: Story, rules: Rules, connection: Connection, ended_at: float) -> bool:
    """Its client came several times at once, in an order that nobody knows, and it was gone soon after that."""
    asked_at, connected = connection.asked.at, connection.connected
    assert connected is not None
    everybody = story.by_client[connection.asked.client]
    before = takewhile(lambda one: one.asked.at > asked_at - LATE_CONNECT_MAX_S, _from(everybody, connection, -1))
    behind = takewhile(lambda one: one.asked.at <= connected.at, _from(everybody, connection, 1))
    for other in chain(before, behind):
        told_at = other.asked.at + LATE_CONNECT_MAX_S if other.connected is None else other.connected.at
        is_rival = told_at >= asked_at and not other.is_refused
        if is_rival and ended_at <= max(told_at, connected.at) + rules.takeover_max_s:
            return True
    return False


def _behind(story: Story, connection: Connection) -> list[Connection]:
    """Those of its client that may have been let in behind it, up to the first that was."""
    assert connection.connected is not None
    behind: list[Connection] = []
    for other in _from(story.by_client[connection.asked.client], connection, 1):
        if other.asked.at > connection.connected.at and not other.is_refused:
            behind.append(other)
            if other.connected is not None:
                break
    return behind


def _from(connections: list[Connection], connection: Connection, step: int) -> Iterator[Connection]:
    """Those behind it, or before it, from the nearest on."""
    place = connection.place + step
    while 0 <= place < len(connections):
        yield connections[place]
        place += step


# --- what came --------------------------------------------------------------------------------------------------------


def _judge_undue(will: Sent, fate: _Fate, came: Iterable[Came]) -> Iterator[Finding]:
    for one in came:
        if one.delivered.at < fate.since:
            why = "was never due" if fate is _NEVER else f"was due at {fate.since:.3f}"
            yield Finding(WILL_UNDUE, one.delivered.at, f"{_named(will)} came to {one.life.client}, and {why}")
            return


def _judge_twice(came: Iterable[Came]) -> Iterator[Finding]:
    first: dict[Life, Came] = {}
    for one in came:
        delivered, life, connections, sent = one
        known = first.setdefault(life, one)
        is_sent_again = delivered.dup and delivered.qos == 1 and known.connections < connections
        if known is not one and not is_sent_again and len(life.ways(delivered)) == 1 and not _is_shared(one):
            yield Finding(WILL_TWICE, delivered.at, f"{_named(sent)} came to {life.client} again")


def _is_shared(came: Came) -> bool:
    return bool(came.life.ways(came.delivered)[0])


class _Subscribers:
    """Who stays subscribed, at QoS 1 or 2, by topic filter; and until when it is known what came to them."""

    def __init__(self, story: Story, rules: Rules) -> None:
        self._story = story
        self._rules = rules
        self._of: dict[str, list[tuple[Life, Window, float]]] = defaultdict(list)
        self._on: dict[str, list[tuple[Life, Window, float]]] = {}
        for life in story.lives:
            until = -FOREVER if life.excused else promised_until(story, rules, life)
            for window in life.windows if until > life.began_at else ():
                if window.qos and window.until == FOREVER and not window.is_shared:
                    self._of[window.topic_filter].append((life, window, until))

    def lacking(self, will: Sent, fate: _Fate, have: set[Life]) -> list[Life]:
        """Who should have it, and hasn't."""
        if not will.qos or may_be_dropped_when_due(self._story, will):
            return []
        if will.topic not in self._on:
            filters = [filter for filter in self._of if matches(filter, will.topic)]
            self._on[will.topic] = [member for filter in filters for member in self._of[filter]]
        since = fate.since - self._rules.max_stale_s - self._rules.clock_slack_s
        published_by = fate.by - self._rules.delivered_max_s
        due: dict[Life, None] = {}
        for life, window, until in self._on[will.topic]:
            is_own = f"{life.client}!" == will.message.publisher and window.no_local
            if window.since <= since and published_by < until and life not in have and not is_own:
                due[life] = None
        return [life for life in due if not may_have_overflowed(self._story, self._rules, life, will)]
