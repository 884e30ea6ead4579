"""When a connection or a session ended, as far as anybody can know who saw only what its client saw.

A client sees an end later than its node did, or earlier; where a fault ran, much so. A session is over when its client
said so, or stayed away for longer than its expiry. It is away, too, for as long as its node is cut off.
"""

from __future__ import annotations

from judges.life import Connection, Life
from judges.story import Story
from judges.verdict import FOREVER, Rules
from load.history import RedisLost

_NEAR_S = 1.0


def earliest(story: Story, rules: Rules, seen_at: float) -> float:
    """When the cluster can have known at the earliest of an end that the client saw then."""
    is_calm = not story.faults.any.overlap(seen_at - rules.silent_max_s, seen_at)
    return seen_at - (rules.clock_slack_s if is_calm else rules.silent_max_s)


def latest(story: Story, rules: Rules, seen_at: float) -> float:
    """When it must have known."""
    if not story.faults.any.overlap(seen_at - _NEAR_S, seen_at + _NEAR_S):
        return seen_at + rules.clock_slack_s
    return story.faults.any.quiet_for(seen_at, rules.gone_noticed_max_s)


def may_be_over(story: Story, rules: Rules, connection: Connection) -> bool:
    """The session that its client had may be gone when this connection comes."""
    life, previous, connected = connection.before, connection.previous, connection.connected
    if life is None or previous is None or connected is None or connection.was_over:
        return True
    if connection.asked.clean_start or connection.is_rival or life.excused or previous.expiry_s == 0.0:
        return True
    if any(other.may_end for other in connection.unsure):
        return True
    if not life.windows and not life.askings and _is_unconfirmed(story, previous):
        return True
    if story.faults.of(previous.asked.node).overlap_for(previous.shortest_expiry_s, previous.asked.at, connected.at):
        return True
    left_at = life.left_before(connection)
    return left_at < connected.at and _may_have_expired(story, rules, left_at, connected.at, previous.shortest_expiry_s)


def must_be_over(story: Story, rules: Rules, connection: Connection) -> bool:
    """It must be."""
    life, previous, asked_at = connection.before, connection.previous, connection.asked.at
    if connection.asked.clean_start:
        return True
    if any(other.asked.lasts for other in connection.unsure):
        return False
    if life is None or previous is None:
        return True
    if connection.was_over:
        return _was_told(story, rules, previous, asked_at)
    left_at = life.left_before(connection)
    expiry_s = previous.expiry_s if _was_heard(story, previous) else previous.longest_expiry_s
    if left_at > asked_at or expiry_s == FOREVER or story.faults.of_time.overlap(left_at, asked_at):
        return False
    expired_at = latest(story, rules, left_at) + expiry_s
    return asked_at > story.faults.any.quiet_for(expired_at, rules.session_expiry_slack_s)


def _was_heard(story: Story, connection: Connection) -> bool:
    """What its client said last, at DISCONNECT or by its end."""
    said = connection.disconnected
    at = connection.until if said is None else said.at
    return not story.faults.any.overlap(at - _NEAR_S, at + _NEAR_S)


def _is_unconfirmed(story: Story, connection: Connection) -> bool:
    """What its node said of the CONNACK that it sent may be lost: then an empty session ends with its connection."""
    assert connection.connected is not None
    return story.faults.any.overlap(connection.asked.at, connection.connected.at)


def _may_have_expired(story: Story, rules: Rules, left_at: float, at: float, expiry_s: float) -> bool:
    since = earliest(story, rules, left_at)
    return at - since >= expiry_s or (expiry_s < FOREVER and story.faults.of_time.overlap(since, at))


def _was_told(story: Story, rules: Rules, last: Connection, at: float) -> bool:
    """The DISCONNECT that ended its session, if one did, came before whatever the client did then."""
    said = last.disconnected
    if said is None or not said.ends or not last.asked.lasts:
        return True
    return at > story.faults.any.over(said.at) + rules.takeover_max_s and not story.faults.any.overlap(
        said.at - _NEAR_S, said.at + _NEAR_S
    )


def promised_until(story: Story, rules: Rules, life: Life) -> float:
    """What was acknowledged before must have come to it, or be there to come. If its client ended it in order, and was
    there for long before, while no fault ran, it got all that was acknowledged before that."""
    if life.ended_at == FOREVER:
        return FOREVER
    if life.lasts and life.ended_by is not None and not may_be_over(story, rules, life.ended_by):
        return FOREVER
    left_at = min(life.left_at, life.ended_at)
    since = left_at - rules.delivered_max_s
    return since if life.was_there(since, left_at) and not story.faults.any.overlap(since, left_at) else -FOREVER


def held_until(story: Story, rules: Rules, life: Life, since: float) -> float:
    """Up to when its session, which was there at `since`, was there for sure, and what it had in the cluster."""
    last = life.connections[-1]
    ends = [life.ended_at]
    ends += [other.asked.at for other in _later(story, life) if other.may_end or not life.lasts]
    ends += [c.disconnected.at for c in life.connections if c.disconnected is not None and c.expiry_s == 0.0]
    if life.left_at < FOREVER:
        seen_at = life.left_at - (rules.silent_max_s if last.closed and last.closed.by_server else 0.0)
        ends.append(earliest(story, rules, seen_at) + last.shortest_expiry_s)
    if life.lasts:
        ends += [lost.at for lost in story.all(RedisLost) if lost.at >= since]
    else:
        ends.append(story.faults.of(last.asked.node).first(since))
    return min(ends)


def gone_by(story: Story, rules: Rules, life: Life) -> float:
    """From when on it was gone for sure."""
    last = life.connections[-1]
    unheard = [other.until for other in _later(story, life) if other.connected is None and not other.is_refused]
    left_at = max([life.left_at, *(unheard if life.lasts else [])])
    if left_at == FOREVER:
        return FOREVER
    over_at = latest(story, rules, left_at)
    if life.lasts:
        over_at += last.expiry_s if _was_heard(story, last) else last.longest_expiry_s
        over_at = story.faults.any.quiet_for(over_at, rules.session_expiry_slack_s)
    if life.ended_by is not None and life.ended_by.connected is not None:
        over_at = min(over_at, life.ended_by.connected.at)
    return over_at


def _later(story: Story, life: Life) -> list[Connection]:
    """What its client asked for behind the last connection of this life, by others."""
    behind = story.by_client[life.client][life.connections[-1].place + 1 :]
    return [connection for connection in behind if connection.life is not life]
