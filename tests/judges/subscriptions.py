"""A client gets what it subscribed to, and nothing else.

- Unasked: what comes was sent, or is retained, while a filter of its client's may have held: from its SUBSCRIBE to the
  UNSUBACK, or to the SUBACK that refuses it. What was sent before may still come [MQTT-3.10.4-3].
- Echoed: No Local keeps a client's own messages from it [MQTT-3.8.3-3].
- Filters: a message that comes names all subscriptions that matched it, if they have identifiers, for "a session
  stands in a fan-out once, with the highest QoS and all the identifiers" [MQTT-3.3.4-3]; what is retained names its
  own.
- Forgotten: who gives up what it has isn't told that there was no such subscription (0x11).

Lawful, as known limits: with No Local, what was published with 3.1.1, wills, and what is delayed, for its publisher is
gone when it is due; to a session that ends with its connection also what its client published at another node before,
and is on its way from there. Judged are lives whose clients say what they ask for, and had no session before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from judges.denials import was_ever_denied
from judges.life import ORDINARY, Came, Life
from judges.story import Story
from judges.topics import is_shared
from judges.verdict import Finding, Rules
from load.history import UnsubscribeDone

UNASKED: Final = "unasked"
ECHOED: Final = "echoed"
FILTERS: Final = "filters"
FORGOTTEN: Final = "forgotten"


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    named = _named(story)
    for came in chain(story.retained, *(life.came for life in story.lives)):
        life = came.life
        if life.tells and life.is_new:
            if not _was_asked_for(rules, came):
                yield _finding(UNASKED, came, "which had no such subscription")
            elif came.delivered.filters:
                yield from _judge_filters(came, named.get(life, set()))
        if _is_echoed(came):
            yield _finding(ECHOED, came, "which wanted no local ones")
    for done in story.all(UnsubscribeDone):
        if done.is_missed and not was_ever_denied(story, done.filter):
            yield Finding(FORGOTTEN, done.at, f"{done.client} gave up {done.filter}, and was told that it hadn't it")


def _finding(kind: str, came: Came, why: str) -> Finding:
    delivered = came.delivered
    text = f"{delivered.publisher} {delivered.number} on {delivered.topic} came to {delivered.client}, {why}"
    return Finding(kind, delivered.at, text)


def _was_asked_for(rules: Rules, came: Came) -> bool:
    """Sent, at the earliest, before the last filter that matches it was gone everywhere."""
    slack_s = rules.max_stale_s + rules.clock_slack_s
    return any(
        asking.since <= came.delivered.at and came.sent.due_at <= asking.gone_at + slack_s
        for asking in came.life.askings_on(came.sent.topic)
    )


def _is_echoed(came: Came) -> bool:
    _, life, _, sent = came
    if sent.message.publisher != life.client or came.is_kept or sent.is_delayed:
        return False
    if any(connection.asked.version < 5 for connection in sent.connections):
        return False
    here = life.connections[-1].asked.node
    if not life.lasts and all(connection.asked.node != here for connection in sent.connections):
        return False
    windows = life.windows_on(sent.topic)
    asked = {asking.filter for asking in life.askings_on(sent.topic)}
    return bool(windows) and all(w.no_local for w in windows) and asked == {w.filter for w in windows}


def _named(story: Story) -> dict[Life, set[str]]:
    """Of each life the filters that have identifiers, as far as one was ever named."""
    named: dict[Life, set[str]] = {}
    for came in chain(story.retained, *(life.came for life in story.lives)):
        if came.delivered.filters:
            named.setdefault(came.life, set()).update(came.delivered.filters)
    return named


def _always_names(life: Life) -> bool:
    """Before 5.0 a client can't say identifiers."""
    return all(connection.asked.version == 5 for connection in life.connections)


def _judge_filters(came: Came, named: set[str]) -> Iterator[Finding]:
    delivered, life, _, sent = came
    known = {asking.filter for asking in life.askings_on(sent.topic)}
    if wrong := [filter for filter in delivered.filters if filter not in known]:
        yield _finding(FILTERS, came, f"by {wrong}, which it hasn't")
    elif not came.is_kept and life.ways(delivered) == (ORDINARY,) and _always_names(life):
        held = {
            window.filter
            for window in life.windows_on(sent.topic)
            if window.since <= sent.first_sent_at and window.until > delivered.at and not window.no_local
        }
        if missing := {filter for filter in held & named if not is_shared(filter)} - set(delivered.filters):
            yield _finding(FILTERS, came, f"by {list(delivered.filters)} alone, not by {sorted(missing)}")
