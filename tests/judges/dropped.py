"""A connection that no fault touches stays.

"A replicant can be killed at any time; a core or Redis can restart without a connection being dropped elsewhere." So a
node ends no connection of its own accord that lasts, unless a fault touched that node, at the end or `recovered_max_s`
before: one that was cut off, or stood still, closes whom it can't serve as if nothing had been.

Lawful: the end of one of several connections of one client at once, of which one may have got no answer, and be heard
late; of one whose client was to be banned; of one that is told that it didn't keep up (0x97); before 5.0 of one that
publishes what nodes refuse for want of Redis' memory, or what the log didn't take amid a fault for as long as that may
last: it can't be told so; and of one of a durable session, which Redis lost while its slot moved: nobody has it any
more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.denials import may_be_banned
from judges.life import Connection
from judges.story import LATE_CONNECT_MAX_S, Story
from judges.verdict import Finding, Rules

DROPPED: Final = "dropped"

DID_NOT_KEEP_UP: Final = 0x97


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for connection in story.connections.values():
        closed, node = connection.closed, connection.asked.node
        if closed is None or not closed.by_server or connection.connected is None or connection.disconnected:
            continue
        if may_be_banned(story, rules, closed.client, closed.at) or _has_others(story, rules, connection, closed.at):
            continue
        if closed.reason == DID_NOT_KEEP_UP and _may_be_behind(story, rules, connection):
            continue
        faults, lately = story.faults, (closed.at - rules.recovered_max_s, closed.at)
        if connection.asked.version < 5 and faults.of_memory.overlap(*lately):
            continue
        if _may_have_no_session(story, connection, *lately):
            continue
        if connection.asked.version < 5 and _was_not_written(story, rules, connection, closed.at):
            continue
        if not faults.of(node).overlap(*lately):
            text = f"{node} ended the connection of {closed.client} (reason {closed.reason:#x})"
            yield Finding(DROPPED, closed.at, text)


def _was_not_written(story: Story, rules: Rules, connection: Connection, at: float) -> bool:
    """What it published waited for the log until it was refused."""
    sent_by = at - rules.written_max_s + rules.clock_slack_s
    return any(
        sent.first_sent_at <= sent_by and at < sent.acknowledged_at and story.faults.any.overlap(sent.first_sent_at, at)
        for sent in story.sent.values()
        if connection in sent.connections and sent.qos and (sent.retain or sent.is_delayed)
    )


def _may_have_no_session(story: Story, connection: Connection, since: float, until: float) -> bool:
    """Redis lost it between these times, while its slot moved."""
    life = connection.life
    lately = (loss for loss in story.moved_losses if since <= loss.at <= until)
    return life is not None and life.lasts and any(loss.may_lack(life.began_at) for loss in lately)


def _may_be_behind(story: Story, rules: Rules, connection: Connection) -> bool:
    """So much came for its client that it may have had no room."""
    return connection.life is not None and len(story.meant_for(connection.life)) > rules.max_mqueue_len


def _has_others(story: Story, rules: Rules, connection: Connection, at: float) -> bool:
    """Its client had another one lately, or asked for one that was heard late."""
    assert connection.connected is not None
    for other in story.by_client[connection.asked.client][: connection.asked_by_then]:
        until = other.until + (LATE_CONNECT_MAX_S if other.connected is None and not other.is_refused else 0.0)
        is_late = story.faults.any.quiet_for(until, rules.takeover_max_s) >= at
        if other is not connection and until > connection.connected.at and is_late:
            return True
    return False
