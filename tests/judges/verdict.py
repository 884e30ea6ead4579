"""What a judge says, and what it goes by: the slacks of a run, each with its unit.

A slack is no promise. It is how far what clients saw may be from what happened: messages take time, two clocks differ,
and who sees the end of a connection sees it late. Where a fault ran a judge waits for its end before it counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

FOREVER: Final = float("inf")


class Rules(NamedTuple):
    cores: int = 3
    max_stale_s: float = 0.5
    """`cluster.max_stale`: what is sent so long after a SUBACK comes."""
    clock_slack_s: float = 0.25
    """How much later than another event the one process that saw both may have seen one of them."""
    takeover_max_s: float = 6.0
    """How long two connections of one client may overlap while nothing keeps their nodes from hearing it."""
    delivered_max_s: float = 10.0
    """How long, without a fault, what is acknowledged or due takes to a client that is there."""
    calm_max_s: float = 1.0
    """How long, if nothing disturbs, what is published, or due, takes to a client that is there and answers at once."""
    shared_strategy: str = ""
    """`mqtt.shared_subscription_strategy`; "": it isn't known."""
    purged_min_s: float = 2.5
    """A node that is cut off for less stays a member."""
    purged_max_s: float = 6.0
    """A node that died is none by then."""
    undisturbed_s: float = 6.0
    """So long after a fault all is as if there had been none."""
    shortage_noticed_s: float = 3.5
    """How long all nodes may take to know that memory is short. A core looks at Redis every second, every second it
    raises an alarm for what it saw, and so often each node looks at the alarms in its log."""
    written_max_s: float = 10.0
    """What the log doesn't take for so long is refused."""
    recovered_max_s: float = 10.0
    """A node that a fault touched serves its clients by then, or has closed them."""
    silent_max_s: float = 5.0
    """How long a client may take to see that its node is gone."""
    gone_noticed_max_s: float = 20.0
    """How long a node may take to see that a client is gone, if a fault hides it: 1.5 times the keep-alive or more."""
    session_expiry_slack_s: float = 1.0
    message_expiry_slack_s: float = 1.0
    times_apart_s: float = 0.5
    """What two nodes take for the cluster's time."""
    delayed_apart_s: float = 1.0
    """Messages that are due so far apart come in that order."""
    max_mqueue_len: int = 1000
    """Messages that wait for one session; of more the oldest go."""
    is_one_release: bool = True
    """All nodes are of this release from the beginning on: owners keep the wills of sessions that end with their nodes,
    and what is retained says which connection wrote it."""
    will_held_s: float = 30.0
    """For how long the will of a client that its node sent to others is held back."""
    granted_max_s: float = 10.0
    """How long a client asks in vain for an exclusive filter that is free."""
    ban_max_s: float = 2.0
    rules_max_s: float = 2.0
    """How long a ban, or a change of rules, that is acknowledged takes to every node."""
    stale_ready_max_s: float = 10.0
    """How long a node may say that it is ready while it holds what is published."""
    slots_unserved_max_s: float = 10.0
    """How long slots may be owned by a core that can't write, while another one can."""


class Finding(NamedTuple):
    kind: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:.3f}: {self.text}"


@dataclass
class Verdict:
    acknowledged: int
    findings: list[Finding]

    def count(self, kind: str) -> int:
        return sum(finding.kind == kind for finding in self.findings)

    def joined(self, later: Verdict) -> Verdict:
        """With what is found in the same run at a later moment."""
        found = dict.fromkeys((*self.findings, *later.findings))
        return Verdict(later.acknowledged, sorted(found, key=lambda finding: finding.at))

    def by_kind(self) -> Counter[str]:
        return Counter(finding.kind for finding in self.findings)
