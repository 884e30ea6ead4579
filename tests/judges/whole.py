"""What comes is what was published, as a whole.

- Altered: the payload is the publisher's, byte for byte, and so are the properties that nodes pass on, user properties
  in their order [MQTT-3.3.2-4, MQTT-3.3.2-15 to 3.3.2-20]. Message Expiry says what is left of it: what it was, less
  the time for which the message waited [MQTT-3.3.2-6].
- Unmarked: what a client didn't answer comes again by its next connection with DUP [MQTT-3.3.1-1], and nothing comes
  with DUP that wasn't there before, as to a session that had no other connection [MQTT-3.3.1-3].

Lawful: before MQTT 5 there are no properties, neither in what came to a session that had such a connection (a known
limit). Times count where no fault holds a message up on its way, and the cluster's time is right. What was begun to be
sent when an owner ended may come as if for the first time, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from judges.life import Came, Life
from judges.story import Story
from judges.verdict import FOREVER, Finding, Rules
from load.history import KEPT

ALTERED: Final = "altered"
UNMARKED: Final = "unmarked"

_BEGAN_BEFORE_S: Final = 6.0


def judge(story: Story, rules: Rules) -> Iterator[Finding]:
    for came in chain(story.retained, *(life.came for life in story.lives)):
        wrong = _altered(story, rules, came)
        if wrong:
            yield _finding(ALTERED, came, f"with {wrong}")
    for life in story.lives:
        for came in life.came:
            if came.delivered.dup != came.delivered.is_repeat and _is_known(story, life, came):
                yield _finding(UNMARKED, came, "with DUP" if came.delivered.dup else "again, without DUP")


def _finding(kind: str, came: Came, how: str) -> Finding:
    delivered = came.delivered
    text = f"{delivered.publisher} {delivered.number} on {delivered.topic} (QoS {delivered.qos}) came to"
    return Finding(kind, delivered.at, f"{text} {delivered.client} {how}")


def _altered(story: Story, rules: Rules, came: Came) -> str:
    """What is wrong; "": nothing."""
    delivered, life, _, sent = came
    if delivered.size and delivered.size != len(sent.message.payload(sent.size)):
        return f"a payload of {delivered.size} bytes"
    if delivered.expiry_s is None:
        return ""
    is_of_v5 = all(connection.asked.version == 5 for connection in (*sent.connections, *life.connections))
    if delivered.properties != (KEPT if sent.has_properties else "") and (is_of_v5 or delivered.properties):
        return delivered.properties or "no properties"
    if sent.expiry_s < 0.0 or not is_of_v5:
        return f"an expiry of {delivered.expiry_s:g} s" if delivered.expiry_s >= 0.0 > sent.expiry_s else ""
    least, most = _left_s(story, rules, came)
    is_right = least <= delivered.expiry_s <= most
    return "" if is_right else f"an expiry of {delivered.expiry_s:g} s, not {least:.1f} to {most:.1f}"


def _left_s(story: Story, rules: Rules, came: Came) -> tuple[float, float]:
    """How much of its expiry may be left."""
    at, sent, faults, slack_s = came.delivered.at, came.sent, story.faults, rules.message_expiry_slack_s
    if faults.of_time.overlap(sent.first_sent_at, at):
        return 0.0, sent.expiry_s
    waited_s = at - max(sent.promised_at, faults.of_loss.over(faults.any.over(sent.promised_at)))
    if sent.acknowledged_at == FOREVER or faults.any.overlap(at - rules.silent_max_s, at):
        waited_s = 0.0
    most = sent.expiry_s - max(0.0, waited_s - slack_s)
    return max(0.0, sent.expiry_s - (at - sent.due_at) - slack_s), max(0.0, min(sent.expiry_s, most + 1.0))


def _is_known(story: Story, life: Life, came: Came) -> bool:
    """Whether this session was sent it before; so it was published once, and no owner ended meanwhile."""
    delivered, sent = came.delivered, came.sent
    if not delivered.qos or len(sent.connections) > 1 or sent.is_will or sent.is_delayed:
        return False
    if delivered.dup and came.connections > 1:  # what a former connection brought may not have been read
        return False
    return not story.faults.any.overlap(sent.first_sent_at - _BEGAN_BEFORE_S, delivered.at)
