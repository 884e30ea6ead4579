"""What a rule or a ban may have kept from being done: excuses of the judges of everything else.

A change counts from when somebody asked for it: it may be done though nobody said so.
"""

from __future__ import annotations

from judges.life import Sent
from judges.story import Story
from judges.topics import below, is_unsaid, overlap, topic_filter
from judges.verdict import FOREVER, Rules
from load.history import Banned, ChangeAsked, RulesChanged


def was_ever_denied(story: Story, filter: str) -> bool:
    """To publish to some topic of the filter, or to subscribe to it."""
    return any(overlap(below(prefix), topic_filter(filter)) for prefix in story.denied)


def may_have_been_denied(story: Story, sent: Sent) -> bool:
    """Before 5.0 what is denied is acknowledged, and dropped."""
    is_told = all(connection.asked.version >= 5 for connection in sent.connections)
    return not is_told and was_ever_denied(story, sent.topic)


def may_be_dropped_when_due(story: Story, sent: Sent) -> bool:
    """It is a will, or delayed: who left it may be banned by then, or may not publish it any more."""
    if not (sent.is_will or sent.is_delayed):
        return False
    client = sent.connections[0].asked.client
    banned = (change.of for change in story.changes if isinstance(change, ChangeAsked) and change.what == "ban")
    return client in banned or was_ever_denied(story, sent.topic)


def may_be_banned(story: Story, rules: Rules, client: str, at: float) -> bool:
    """Somewhere it may be known then that it is."""
    until = -FOREVER
    for change in story.changes:
        if change.at <= at and isinstance(change, ChangeAsked) and (change.what, change.of) == ("ban", client):
            until = FOREVER
        elif change.at <= at and isinstance(change, Banned) and change.client == client and not change.holds:
            until = story.faults.unheard.quiet_for(change.at, rules.ban_max_s)
    return at <= until


def may_be_revoked(story: Story, rules: Rules, filter: str, at: float) -> bool:
    """A subscription that was granted then may have ended: somewhere a rule was heard of that denied it."""
    doubtful: dict[str, float] = {}
    for event in story.changes:
        if event.at > at:
            break
        if isinstance(event, RulesChanged):
            prefix, is_denied = event.prefix, event.is_denied
        elif isinstance(event, ChangeAsked) and event.what == "deny":
            prefix, is_denied = event.of, True
        else:
            continue
        if is_unsaid(prefix):
            continue
        doubtful[prefix] = FOREVER if is_denied else story.faults.unheard.quiet_for(event.at, rules.rules_max_s)
    return any(at < until and overlap(below(prefix), topic_filter(filter)) for prefix, until in doubtful.items())
