"""`$exclusive/FILTER` is one client's in the whole cluster; another hears 0x97.

- Two holders: a client is granted a filter that another one was granted, and hasn't given back: by UNSUBSCRIBE, or by
  the end of its session. Who holds it by a clean session can't know for how long while a fault touches its node: a
  purge frees what its node had claimed. Where releases are mixed that goes for a durable session and its owner (a
  known limit).
- Refused its own: who holds a filter and asks again isn't refused, while no fault runs.
- Not granted: a client that asks for a filter again and again, which nobody has, gets it within `granted_max_s` in
  which no fault runs. A connection that broke before the answer may have got it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from judges.denials import was_ever_denied
from judges.ends import gone_by, held_until
from judges.life import Life
from judges.story import LockEvent, Story
from judges.verdict import FOREVER, Finding, Rules
from load.history import Subscribed, SubscribeRefused, SubscribeSent, Unsubscribed, UnsubscribeDone

TWO_HOLDERS: Final = "two holders"
REFUSED_ITS_OWN: Final = "refused its own"
NOT_GRANTED: Final = "not granted"

TAKEN: Final = 0x97
FAILED_311: Final = 0x80


@dataclass(slots=True, eq=False)
class _Holding:
    """Of one life, from its SUBSCRIBE on. `held_until`: for sure; `gone_by`: not any more, for sure."""

    life: Life
    asked_at: float
    granted_at: float = FOREVER
    held_until: float = FOREVER
    gone_by: float = FOREVER


@dataclass(slots=True)
class _Refusal:
    event: SubscribeRefused
    asked_at: float
    holding: _Holding | None
    """What its life had of the filter already."""


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for filter, events in story.locks.items():
        holdings, refusals = _read(story, rules, events)
        granted = [holding for holding in holdings if holding.granted_at < FOREVER]
        yield from _judge_holders(story, rules, filter, granted)
        taken = [refusal for refusal in refusals if _says_taken(story, refusal)]
        yield from _judge_own(story, rules, filter, taken)
        yield from _judge_progress(story, rules, filter, holdings, taken)


def _read(story: Story, rules: Rules, events: list[tuple[LockEvent, Life]]) -> tuple[list[_Holding], list[_Refusal]]:
    """What was granted, or may have been, and what was refused."""
    holdings: list[_Holding] = []
    refusals: list[_Refusal] = []
    asking: dict[Life, _Holding] = {}
    having: dict[Life, _Holding] = {}
    asked_at: dict[Life, float] = {}
    for event, life in events:
        match event:
            case SubscribeSent():
                asked_at[life] = event.at
                asking.setdefault(life, _Holding(life, event.at))
            case Subscribed():
                if life not in having or having[life].held_until < FOREVER:
                    having[life] = asking.get(life, _Holding(life, event.at))
                    having[life].granted_at = event.at
                    holdings.append(having[life])
                asking.pop(life, None)
            case SubscribeRefused():
                refusals.append(_Refusal(event, asked_at.get(life, event.at), having.get(life)))
                asking.pop(life, None)
            case Unsubscribed() if life in having:
                having[life].held_until = min(having[life].held_until, event.at)
            case UnsubscribeDone() if life in having and having[life].held_until < FOREVER:
                having.pop(life).gone_by = event.at
    holdings += asking.values()
    for holding in holdings:
        life, since = holding.life, min(holding.granted_at, holding.asked_at)
        holding.held_until = min(holding.held_until, held_until(story, rules, life, since))
        holding.gone_by = min(holding.gone_by, gone_by(story, rules, life))
    return holdings, refusals


def _says_taken(story: Story, refusal: _Refusal) -> bool:
    event = refusal.event
    if story.connections[event.connection].asked.version >= 5:
        return event.reason == TAKEN
    return event.reason == FAILED_311 and not was_ever_denied(story, event.filter)


def _judge_holders(story: Story, rules: Rules, filter: str, holdings: list[_Holding]) -> Iterator[Finding]:
    held: list[_Holding] = []
    for newer in sorted(holdings, key=lambda holding: holding.granted_at):
        held = [older for older in held if older.held_until > newer.granted_at]
        for older in held:
            may_be_freed = not rules.is_one_release and story.faults.any.overlap(older.granted_at, newer.granted_at)
            if older.life.client != newer.life.client and not may_be_freed:
                text = f"{newer.life.client} was granted {filter}, which {older.life.client} has"
                yield Finding(TWO_HOLDERS, newer.granted_at, f"{text} since {older.granted_at:.3f}")
        held.append(newer)


def _judge_own(story: Story, rules: Rules, filter: str, refusals: list[_Refusal]) -> Iterator[Finding]:
    for refusal in refusals:
        event, holding = refusal.event, refusal.holding
        if holding is None or holding.granted_at > refusal.asked_at or holding.held_until <= event.at:
            continue
        since = max(holding.granted_at, refusal.asked_at - rules.granted_max_s)
        if not story.faults.any.overlap(since, event.at):
            text = f"{event.client} was refused {filter} ({event.reason:#x}), which it has"
            yield Finding(REFUSED_ITS_OWN, event.at, f"{text} since {holding.granted_at:.3f}")


def _judge_progress(
    story: Story, rules: Rules, filter: str, holdings: list[_Holding], refusals: list[_Refusal]
) -> Iterator[Finding]:
    """One finding for each time that a client asks in vain."""
    coming = iter([*sorted(holdings, key=lambda holding: holding.asked_at), None])
    next_holding = next(coming)
    gone: dict[str, float] = {}
    vain_since: dict[str, float] = {}
    for refusal in refusals:
        event = refusal.event
        while next_holding is not None and next_holding.asked_at <= event.at:
            client = next_holding.life.client
            gone[client] = max(gone.get(client, -FOREVER), next_holding.gone_by)
            vain_since.pop(client, None)
            next_holding = next(coming)
        free_since = max((at for client, at in gone.items() if client != event.client), default=-FOREVER)
        began = vain_since.setdefault(event.client, event.at)
        since = max(began, free_since)
        if event.at - since >= rules.granted_max_s and not story.faults.any.overlap(since, event.at):
            text = f"{event.client} has asked for {filter} since {began:.3f}, and nobody has it"
            yield Finding(NOT_GRANTED, event.at, f"{text} since {since:.3f}")
            vain_since[event.client] = FOREVER
