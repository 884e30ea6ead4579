"""What whoever runs the cluster saw at once to be wrong: each is a promise of its own, and needs no more judging.

- Unwell: no process ends that nobody ended, all is well again in time, no client waits for an answer for ever.
- Alarm: what an operator has to be told is told.
- Bound: "every queue has a named bound", and what it bounds stays within it.
- Overstepped: a node sends what the client's CONNECT allows: so many messages at once, each under a packet id that is
  free, in packets that aren't too large, by aliases that it has set [MQTT-3.3.4-9, MQTT-2.2.1-4, MQTT-3.1.2-24].
- Progress: when the last fault is over, each feature does what it is there for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judges.story import Story
from judges.verdict import Finding, Rules
from load.history import AlarmMissing, BoundPassed, Overstepped, Played, Unwell

UNWELL: Final = "unwell"
ALARM: Final = "alarm"
BOUND: Final = "bound"
OVERSTEPPED: Final = "overstepped"
NO_PROGRESS: Final = "no progress"


def unwell(story: Story, rules: Rules) -> Iterator[Finding]:
    for event in story.all(Unwell):
        yield Finding(UNWELL, event.at, f"{event.node}: {event.what}")


def alarms(story: Story, rules: Rules) -> Iterator[Finding]:
    for event in story.all(AlarmMissing):
        yield Finding(ALARM, event.at, event.what)


def bounds(story: Story, rules: Rules) -> Iterator[Finding]:
    for event in story.all(BoundPassed):
        yield Finding(BOUND, event.at, f"{event.node}: {event.name} is {event.value:g}, beyond {event.bound:g}")


def overstepped(story: Story, rules: Rules) -> Iterator[Finding]:
    for event in story.all(Overstepped):
        yield Finding(OVERSTEPPED, event.at, f"{event.node} sent {event.client} {event.what}")


def progress(story: Story, rules: Rules) -> Iterator[Finding]:
    for event in story.all(Played):
        if not event.times:
            yield Finding(NO_PROGRESS, event.at, f"{event.feature} did nothing since the last fault was over")
