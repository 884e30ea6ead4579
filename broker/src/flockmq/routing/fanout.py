"""Fan-outs: the receivers of a message, prepared so that the hot path only iterates over lists.

A fan-out is made when a topic is first seen, and shared by all topics that match the same subscriptions. So the fast
path can send a run of packets with different topics to one fan-out as one chunk.

Invariants: a detached session is in none. A session is in a fan-out once, with the highest QoS and all identifiers of
its matching subscriptions [MQTT-3.3.4-2, MQTT-3.3.4-3]; for its own messages, of those without No Local.

Heads: the *head* of a PUBLISH is its bytes from the first to the end of the topic (and, at QoS 0 in version 5, the zero
byte that means "no properties"). Equal heads mean equal flags, length and topic. So one dict look-up by head replaces
parsing and matching.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from flockmq.bounds import SHARED_GROUP_RECEIVERS
from flockmq.routing.group import Group
from flockmq.routing.sink import Sink
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.routing.targets import NodeTarget, SlotSet, SlotTarget

_NO_SUBSCRIPTIONS: Final[list[Subscription]] = []
_NO_SINKS: Final[list[Sink]] = []
_NO_PEERS: Final[list[NodeTarget]] = []
_NO_GROUPS: Final[list[Group]] = []
"""Most fan-outs have one receiver: they share what is empty. Nobody changes a fan-out's lists."""


@mypyc_attr(acyclic=True)
class Fanout:
    """`sinks4`, `sinks5`: sinks that get a QoS 0 run unchanged. `special`: subscribers that need packets of their own
    form. `deliveries`: all subscribers on this node, including `special`. `peers`: other nodes with subscribers.
    `groups`: shared subscriptions; one member of each gets the message. `slots`: slots with durable subscribers;
    None: there are none. `crosses`: the message may go to other nodes or slot owners.

    `sessions4`, `sessions5`: all receivers, if all of them can get a QoS 1 packet of that version unchanged; else None.
    `receivers`: how many there are, for what a message costs.
    """

    __slots__ = (
        "crosses", "deliveries", "groups", "peers", "reaches_nobody", "receivers", "sessions4", "sessions5", "sinks4",
        "sinks5", "slots", "special",
    )  # fmt: skip

    def __init__(
        self, deliveries: list[Subscription], peers: list[NodeTarget], groups: list[Group], slots: list[int]
    ) -> None:
        self.deliveries = deliveries or _NO_SUBSCRIPTIONS
        self.peers = peers or _NO_PEERS
        self.groups = groups or _NO_GROUPS
        self.slots: SlotSet | None = SlotSet(slots) if slots else None
        self.crosses: bool = len(peers) > 0 or len(slots) > 0
        self.reaches_nobody: bool = not deliveries and not peers and not groups and not slots
        self.receivers: i64 = len(deliveries) + len(peers) + len(slots) + SHARED_GROUP_RECEIVERS * len(groups)
        sinks4: list[Sink] = []
        sinks5: list[Sink] = []
        special: list[Subscription] = []
        for subscription in deliveries:
            sink = subscription.session.sink
            if not subscription.is_plain():
                special.append(subscription)
            elif sink.protocol_version == 5:
                sinks5.append(sink)
            else:
                sinks4.append(sink)
        self.sinks4 = sinks4 or _NO_SINKS
        self.sinks5 = sinks5 or _NO_SINKS
        self.special = special or _NO_SUBSCRIPTIONS
        self.sessions4 = self._all_sessions(4)
        self.sessions5 = self._all_sessions(5)

    def _all_sessions(self, version: int) -> list[Subscriber] | None:
        if self.crosses or self.groups or self.special:
            return None
        # PUBACK says that there are no matching subscribers [section 3.4.2.1].
        if version == 5 and not self.deliveries:
            return None
        for subscription in self.deliveries:
            if subscription.qos == 0 or subscription.session.sink.protocol_version != version:
                return None
        return [subscription.session for subscription in self.deliveries]


def build(matched: tuple[object, ...]) -> Fanout:
    """The fan-out for matches of the indexes: local subscriptions, peers, groups and slots, in any order."""
    peers: list[NodeTarget] = []
    groups: list[Group] = []
    slots: dict[int, None] = {}
    by_session: dict[Subscriber, Subscription] = {}
    for target in matched:
        if isinstance(target, Subscription):
            if target.session.is_detached:
                continue
            known = by_session.get(target.session)
            by_session[target.session] = target if known is None else _merged(known, target)
        elif isinstance(target, NodeTarget) and target not in peers:
            peers.append(target)
        elif isinstance(target, SlotTarget):
            slots[target.number] = None
        elif isinstance(target, Group):
            groups.append(target)
    return Fanout(list(by_session.values()), peers, groups, list(slots))


@mypyc_attr(acyclic=True)
class _PartlyLocal(Subscription):
    """Several subscriptions of one session, some of them with No Local: its own messages come through `own`, which is
    all others.
    """

    __slots__ = ("own",)

    def __init__(self, merged: Subscription, own: Subscription) -> None:
        as_published = merged.retain_as_published
        super().__init__(merged.session, merged.filter, merged.qos, True, as_published, merged.identifiers)
        self.own = own

    def of_own(self) -> Subscription | None:
        return self.own


def _merged(one: Subscription, other: Subscription) -> Subscription:
    both = _both(one, other)
    if not one.no_local and not other.no_local:
        return both
    own = [each for each in (_of_own(one), _of_own(other)) if each is not None]
    return _PartlyLocal(both, own[0] if len(own) == 1 else _both(own[0], own[1])) if own else both


def _of_own(subscription: Subscription) -> Subscription | None:
    return subscription.of_own() if subscription.no_local else subscription


def _both(one: Subscription, other: Subscription) -> Subscription:
    return Subscription(
        one.session,
        one.filter,
        max(one.qos, other.qos),
        one.no_local or other.no_local,
        one.retain_as_published or other.retain_as_published,
        one.identifiers + other.identifiers,
    )
