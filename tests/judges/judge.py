"""All judges: each holds one promise against a story, and tells where it was broken. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from judges import (
    calm,
    connections,
    delayed,
    dropped,
    evacuation,
    exclusive,
    expiry,
    invented,
    losses,
    options,
    order,
    overflow,
    owners,
    permissions,
    quality,
    readiness,
    refused,
    repeats,
    reports,
    retained,
    retained_sent,
    sessions,
    shared,
    shortage,
    strategies,
    subscriptions,
    tables,
    whole,
    wills,
)
from judges.calm import LATE_IN_CALM, LOST_IN_CALM, REFUSED_IN_CALM
from judges.connections import TWO_CONNECTIONS
from judges.delayed import DELAYED_ORDER, EARLY
from judges.dropped import DROPPED
from judges.evacuation import TAKEN_ANYWAY
from judges.exclusive import NOT_GRANTED, REFUSED_ITS_OWN, TWO_HOLDERS
from judges.expiry import EXPIRED
from judges.invented import INVENTED
from judges.losses import LOST
from judges.options import OUTDATED, WRONG_RETAIN
from judges.order import REORDERED
from judges.overflow import KEPT_OLDER, MISCOUNTED
from judges.owners import STOLEN
from judges.permissions import BANNED, LET_THROUGH
from judges.quality import WRONG_QOS
from judges.readiness import STALE_READY, UNSERVED
from judges.refused import REFUSED
from judges.repeats import DUPLICATED, REPEATED
from judges.reports import ALARM, BOUND, NO_PROGRESS, OVERSTEPPED, UNWELL
from judges.retained import RETAINED
from judges.retained_sent import RETAINED_MISSING, RETAINED_TWICE, RETAINED_UNASKED
from judges.sessions import SESSION_PRESENT
from judges.shared import SHARED_LOST, SHARED_TWICE
from judges.shortage import STORED_ANYWAY
from judges.story import Story
from judges.strategies import WRONG_MEMBER
from judges.subscriptions import ECHOED, FILTERS, FORGOTTEN, UNASKED
from judges.tables import DIGESTS, ROUTES_LEFT
from judges.topics import matches
from judges.verdict import FOREVER, Finding, Rules, Verdict
from judges.whole import ALTERED, UNMARKED
from judges.wills import WILL_LOST, WILL_TWICE, WILL_UNDUE
from load.history import AnyEvent

__all__ = [
    "ALARM", "ALTERED", "BANNED", "BOUND", "DELAYED_ORDER", "DIGESTS", "DROPPED", "DUPLICATED", "EARLY", "ECHOED",
    "EXPIRED", "FILTERS", "FORGOTTEN", "INVENTED", "JUDGES", "KEPT_OLDER", "LATE_IN_CALM", "LET_THROUGH", "LOST",
    "LOST_IN_CALM", "MISCOUNTED", "NOT_GRANTED", "NO_PROGRESS", "OUTDATED", "OVERSTEPPED", "REFUSED", "REFUSED_IN_CALM",
    "REFUSED_ITS_OWN", "REORDERED", "REPEATED", "RETAINED", "RETAINED_MISSING", "RETAINED_TWICE", "RETAINED_UNASKED",
    "ROUTES_LEFT", "SESSION_PRESENT", "SHARED_LOST", "SHARED_TWICE", "STALE_READY", "STOLEN", "STORED_ANYWAY",
    "TAKEN_ANYWAY", "TWO_CONNECTIONS", "TWO_HOLDERS", "UNASKED", "UNMARKED", "UNSERVED", "UNWELL", "WILL_LOST",
    "WILL_TWICE", "WILL_UNDUE", "WRONG_MEMBER", "WRONG_QOS", "WRONG_RETAIN", "Finding", "Judge", "Rules", "Verdict",
    "judge", "matches",
]  # fmt: skip

Judge = Callable[[Story, Rules], Iterable[Finding]]

JUDGES: Final[dict[str, Judge]] = {
    "what is acknowledged isn't lost": losses.judge,
    "what is sent in calm comes": calm.losses,
    "what is sent in calm comes at once": calm.delays,
    "nothing is refused in calm": calm.refusals,
    "what expired doesn't come": expiry.judge,
    "what is delayed comes when it is due": delayed.judge,
    "a message comes once": repeats.judge,
    "messages keep their order": order.judge,
    "the newest are kept": overflow.judge,
    "what is dropped is counted": overflow.counts,
    "what comes was published": invented.judge,
    "it comes at the QoS that was asked for": quality.judge,
    "it comes as a whole": whole.judge,
    "it comes as was asked for": options.judge,
    "a client gets what it subscribed to": subscriptions.judge,
    "CONNACK is right about the session": sessions.judge,
    "one connection a client id": connections.judge,
    "a connection that no fault touches stays": dropped.judge,
    "a node that drains takes nobody": evacuation.judge,
    "one member of a group gets a message": shared.judge,
    "its strategy says which": strategies.judge,
    "one client has an exclusive filter": exclusive.judge,
    "a will comes once": wills.judge,
    "what was acknowledged last is retained": retained.judge,
    "who subscribes gets what is retained": retained_sent.missing,
    "nobody gets it who doesn't ask": retained_sent.judge,
    "nobody stores more where memory is short": shortage.judge,
    "what was refused had no effect": refused.judge,
    "who is banned isn't connected": permissions.bans,
    "what is denied isn't done": permissions.permissions,
    "a client id is its user's": owners.judge,
    "tables are the same": tables.judge,
    "who is stale isn't ready": readiness.stale_ready,
    "slots are served": readiness.slots_unserved,
    "all is well in the end": reports.unwell,
    "operators are told": reports.alarms,
    "bounds are kept": reports.bounds,
    "clients are sent what they allow": reports.overstepped,
    "features go on": reports.progress,
}


LOSSES: Final = {
    LOST: losses.judge,
    SHARED_LOST: shared.judge,
    WILL_LOST: wills.judge,
    RETAINED_MISSING: retained_sent.missing,
}
"""Who finds what is lost."""


def is_anything_missing(events: Iterable[AnyEvent], rules: Rules, at: float) -> bool:
    """Whether something that hasn't come would be lost if nothing else came until then."""
    story = Story(events, at, rules.cores)
    return any(finding.kind == kind for kind, each in LOSSES.items() for finding in each(story, rules))


def judge(events: Iterable[AnyEvent], rules: Rules = Rules(), ended_at: float = -FOREVER) -> Verdict:  # noqa: B008
    """`ended_at`: as if nothing else came until then."""
    story = Story(events, ended_at, rules.cores)
    findings = [finding for each in JUDGES.values() for finding in each(story, rules)]
    acknowledged = sum(sent.acknowledged_at < FOREVER for sent in story.sent.values())
    return Verdict(acknowledged, sorted(findings, key=lambda finding: finding.at))
