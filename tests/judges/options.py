"""What comes was handled as its subscription asks.

- Wrong RETAIN: by Retain As Published it is what the publisher said, and otherwise 0 [MQTT-3.3.1-12, MQTT-3.3.1-13];
  what is retained, and comes because its client subscribed, has 1 [MQTT-3.3.1-8]. Of several subscriptions of a session
  one with Retain As Published suffices: the session gets the message once.
- Outdated: what is published after another SUBSCRIBE of a filter has been granted names the Subscription Identifier
  that this one gave, and none of before [MQTT-3.8.4-3]; a message names none that its client hasn't given.

Lawful: a subscription of before, for a durable session of which Redis lost something while its slot moved. Who asks for
Retain As Published asks for nothing that is retained on what is published meanwhile: it couldn't tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from judges.denials import was_ever_denied
from judges.life import ORDINARY, Came, Life, Window
from judges.story import Story
from judges.topics import is_shared
from judges.verdict import FOREVER, Finding, Rules

WRONG_RETAIN: Final = "wrong RETAIN"
OUTDATED: Final = "outdated"

_EVERYWHERE_S: Final = 2.0
"""What is acknowledged takes less to each client that is there, where no fault keeps it up."""


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for came in chain(story.retained, *(life.came for life in story.lives)):
        life, sent = came.life, came.sent
        if not (life.tells and life.is_new) or (story.moved_losses and life.lasts):
            continue
        if _has_wrong_retain(story, came):
            yield _finding(WRONG_RETAIN, came, f"with RETAIN {came.delivered.retained:d}")
        is_named = came.delivered.identifiers and not came.is_kept and not was_ever_denied(story, sent.topic)
        if is_named and (wrong := _outdated(came)):
            yield _finding(OUTDATED, came, wrong)


def _finding(kind: str, came: Came, how: str) -> Finding:
    delivered = came.delivered
    text = f"{delivered.publisher} {delivered.number} on {delivered.topic} (QoS {delivered.qos}) came to"
    return Finding(kind, delivered.at, f"{text} {delivered.client} {how}")


def _has_wrong_retain(story: Story, came: Came) -> bool:
    if not came.sent.retain:
        return came.delivered.retained
    if not came.delivered.retained:
        return any(window.as_published for window in _held(came)) or _is_surely_kept(story, came)
    if came.is_kept:
        return False
    held, asked = _held(came), came.life.askings_on(came.sent.topic)
    is_all = {window.filter for window in held} == {asking.filter for asking in asked}
    return is_all and not any(window.as_published for window in held)


def _held(came: Came) -> list[Window]:
    """The subscriptions by which it came, that held all the while."""
    delivered, life, _, sent = came
    ways = life.ways(delivered)
    return [
        window
        for window in life.windows_on(sent.topic)
        if window.since <= sent.first_sent_at
        and delivered.at < window.until
        and (window.filter if is_shared(window.filter) else ORDINARY,) == ways
        and not window.no_local
        and not _may_be_replaced(life, window, delivered.at)
    ]


def _may_be_replaced(life: Life, window: Window, at: float) -> bool:
    """By then another SUBSCRIBE of that filter was sent, perhaps without an answer."""
    asked = (each for asking in life.askings if asking.filter == window.filter for each in asking.sent)
    return any(
        window.asked_at < each.at <= at
        and (each.as_published, each.identifier) != (window.as_published, window.identifier)
        for each in asked
    )


def _is_surely_kept(story: Story, came: Came) -> bool:
    """It was everywhere before its client first asked."""
    sent = came.sent
    if sent.acknowledged_at == FOREVER or sent.is_will or sent.is_delayed or len(sent.connections) > 1:
        return False
    there_at = story.faults.any.quiet_for(sent.acknowledged_at, _EVERYWHERE_S)
    return all(asking.since > there_at for asking in came.life.askings_on(sent.topic))


def _outdated(came: Came) -> str:
    """What is wrong; "": nothing."""
    delivered, life = came.delivered, came.life
    names = zip(delivered.filters, delivered.identifiers, strict=True)
    if wrong := [number for filter, number in names if not _may_have(life, filter, number, came)]:
        return f"by {wrong}"
    if not all(connection.asked.version == 5 for connection in life.connections):
        return ""
    expected = {window.identifier for window in _held(came) if window.identifier}
    missing = expected.difference(delivered.identifiers)
    return f"by {list(delivered.identifiers)}, not by {sorted(missing)}" if missing else ""


def _may_have(life: Life, filter: str, number: int, came: Came) -> bool:
    """The filter may have had that identifier when the message came to its subscriber's session."""
    given = [window for window in life.windows if (window.filter, window.identifier) == (filter, number)]
    if any(came.sent.due_at <= window.replaced_at for window in given):
        return True
    asked = (each for asking in life.askings if asking.filter == filter for each in asking.sent)
    return not given and any(each.identifier == number and each.at <= came.delivered.at for each in asked)
