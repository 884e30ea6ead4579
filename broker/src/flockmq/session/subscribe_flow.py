"""The steps of one authorized SUBSCRIBE, at the node or owner where the session runs.

 claim exclusive filters ─▶ tell other nodes the user's usage ─▶ add to the router ─▶ add routes ─▶ answer
                        ◀─ if that took time                                   ─▶ send retained messages

Invariants: SUBACK is sent when this node's own tables have the routes [MQTT-3.8.4-1] and all messages that were
retained before. So a message that is published after the SUBACK arrives once, live, and not as a retained message too.
If the cluster refuses a route, the filter is removed from the router and its reason code says so; but not if a later
SUBSCRIBE of the same filter, or the same one that was asked again, has replaced it, which gets its own answer. If the
connection ends before the filters are added, none is: requests of a later connection may have been processed meanwhile.
With Retain Handling 1 the first SUBSCRIBE of a filter that is granted gets the retained messages, also if an earlier
one that was under way is refused.
A claim that no session uses may be deleted at any time, so exclusive filters are added in the moment in which they are
granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import CLIENT_FILTERS_MAX_BYTES
from flockmq.mqtt.packets import NO_LOCAL, RETAIN_AS_PUBLISHED, RETAIN_HANDLING_SHIFT
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.quotas import FilterRoom
from flockmq.routing.filter_index import has_wildcard, shape_of
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.session.limits import Limits

_UNDECIDED: Final = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class SubscribePort:
    """What the node, or the owner, does for one SUBSCRIBE."""

    def is_there(self) -> bool:
        """True while the requesting connection has the session."""
        raise NotImplementedError(type(self).__name__)

    def takes_new_filters(self) -> bool:
        """False: filters that the session doesn't have yet are refused (0x97)."""
        return True

    def hold(self) -> None:
        """Hold back requests after the SUBSCRIBE until `placed`."""

    def claim(self, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        """Claim exclusive filters in the cluster for this client. `done` gets the refused filters with reason codes."""
        raise NotImplementedError(type(self).__name__)

    def release(self, filters: list[bytes]) -> None:
        """Give up claims of exclusive filters that the client doesn't use."""
        raise NotImplementedError(type(self).__name__)

    def added(self, subscription: Subscription, asked: bytes, gets_retained: bool) -> bool:
        """The session has the subscription now. `asked`: the filter that the client asked for. `gets_retained`: this
        SUBSCRIBE entitles it to retained messages. Returns whether it gets them.
        """
        raise NotImplementedError(type(self).__name__)

    def decides_when_granted(self) -> bool:
        """True: whether a subscription with Retain Handling 1 gets retained messages is decided when it is granted.
        False: `added` knows it.
        """
        return False

    def placed(self) -> None:
        """The filters were added, or won't be."""
        raise NotImplementedError(type(self).__name__)

    def needs_route(self, filter: bytes) -> bool:
        raise NotImplementedError(type(self).__name__)

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None]) -> None:
        """Add routes for these filters. If `with_retained`, then wait until this node has all retained messages. `done`
        gets the worst reason code, and whether all retained messages are here.
        """
        raise NotImplementedError(type(self).__name__)

    def take_back(self, subscriptions: list[Subscription]) -> None:
        """The cluster refused the routes: remove the subscriptions. The session had those that are granted before."""
        raise NotImplementedError(type(self).__name__)

    def tell(self, reasons: list[int], pending_retained: list[Subscription], saw_all: bool) -> None:
        """Send the reason codes in SUBACK; then send retained messages to the subscriptions in `pending_retained`."""
        raise NotImplementedError(type(self).__name__)


class SubscribeFlow:
    """`wanted`: (filter, options as in SUBSCRIBE, filter that the client asked for) of each authorized subscription."""

    def __init__(
        self,
        port: SubscribePort,
        router: Router,
        session: Subscriber,
        limits: Limits,
        wanted: list[tuple[bytes, int, bytes]],
        identifiers: bytes,
    ) -> None:
        self._port = port
        self._router = router
        self._session = session
        self._limits = limits
        self._wanted = wanted
        self._identifiers = identifiers
        self._reasons: list[int] = [_UNDECIDED] * len(wanted)
        self._claims: list[bytes] = []
        self._waits = False
        """The quota's room isn't there at once."""
        self._refused: dict[bytes, int] = {}
        self._made: list[Subscription] = []
        """Subscriptions whose filters need a route."""
        self._pending_retained: list[Subscription] = []
        self._pending_if_first: list[Subscription] = []
        """Those that get retained messages if no other SUBSCRIBE of the filter is granted before."""
        self._added: list[Subscription] = []

    def start(self) -> None:
        filters = list(dict.fromkeys([filter for filter, _, _ in self._wanted]))
        if not self._port.takes_new_filters():
            find = self._session.subscriptions.find
            self._refused = {filter: Reason.QUOTA_EXCEEDED for filter in filters if find(filter) is None}
        if self._limits.exclusive_subscription:
            self._claims = [filter for filter in filters if is_exclusive(filter) and filter not in self._refused]
        if self._claims or self._session.usage is not None:
            self._port.hold()
        if self._claims:
            self._port.claim(self._claims, self._claimed)
        else:
            self._make_room()

    def _claimed(self, refused: dict[bytes, int]) -> None:
        self._refused.update(refused)
        self._make_room()

    def _make_room(self) -> None:
        """If the user's quota requires it, tell other nodes the user's usage first."""
        session = self._session
        if session.usage is None or not self._port.is_there():
            self._has_room()
            return
        filters = [filter for filter, _, _ in self._wanted if filter not in self._refused]
        new = [filter for filter in filters if session.subscriptions.find(filter) is None]
        self._waits = False
        FilterRoom(session.usage, new, self._room_made).make()
        self._waits = True

    def _room_made(self) -> None:
        granted = self._granted()
        if self._waits and granted and self._port.is_there():
            self._port.claim(granted, self._claimed)
        else:
            self._has_room()

    def _granted(self) -> list[bytes]:
        return [filter for filter in self._claims if filter not in self._refused]

    def _has_room(self) -> None:
        if self._port.is_there():
            self._place()
        find = self._session.subscriptions.find
        unused = [filter for filter in self._granted() if find(filter) is None]
        if unused:
            self._port.release(unused)
        self._port.placed()

    def _place(self) -> None:
        for position, (filter, options, asked) in enumerate(self._wanted):
            self._reasons[position] = self._refused.get(filter) or self._place_one(filter, options, asked)
        with_retained = len(self._pending_retained) > 0 or len(self._pending_if_first) > 0
        if self._made or with_retained:
            self._port.route([made.filter for made in self._made], with_retained, self._routed)
        else:
            self._grant(frozenset())
            self._port.tell(self._reasons, [], False)

    def _place_one(self, filter: bytes, options: int, asked: bytes) -> int:
        session = self._session
        older = session.subscriptions.find(filter)
        placed = add_subscription(self._router, session, self._limits, filter, options & 3, options, self._identifiers)
        if isinstance(placed, int):
            return placed
        retain_handling = options >> RETAIN_HANDLING_SHIFT & 3
        is_pending = self._port.added(placed, asked, gets_retained(filter, retain_handling, older is None))
        if retain_handling == 1 and self._port.decides_when_granted():
            if gets_retained(filter, retain_handling, older is None or not older.is_granted):
                self._pending_if_first.append(placed)
        elif is_pending:
            self._pending_retained.append(placed)
        self._added.append(placed)
        if self._port.needs_route(filter):
            self._made.append(placed)
        return placed.qos

    def _routed(self, reason: int, saw_all: bool) -> None:
        refused: frozenset[bytes] = frozenset()
        if reason >= 0x80:
            find = self._session.subscriptions.find
            self._port.take_back([made for made in self._made if find(made.filter) is made])
            refused = frozenset([made.filter for made in self._made])
            for position, (filter, _, _) in enumerate(self._wanted):
                if filter in refused and self._reasons[position] < 0x80:
                    self._reasons[position] = reason
            self._pending_retained = [
                pending_retained
                for pending_retained in self._pending_retained
                if pending_retained.filter not in refused
            ]
        self._grant(refused)
        self._port.tell(self._reasons, self._pending_retained, saw_all)

    def _grant(self, refused: frozenset[bytes]) -> None:
        for subscription in self._pending_if_first:
            current = self._current(subscription)
            if current is not None and not current.is_granted and subscription.filter not in refused:
                self._pending_retained.append(subscription)
        for subscription in self._added:
            current = self._current(subscription)
            if current is not None and subscription.filter not in refused:
                current.is_granted = True

    def _current(self, subscription: Subscription) -> Subscription | None:
        """What the session has of this subscription now: itself, or what replaced it."""
        while subscription.successor is not None:
            subscription = subscription.successor
        return subscription if self._session.subscriptions.find(subscription.filter) is subscription else None


def add_subscription(
    router: Router, session: Subscriber, limits: Limits, filter: bytes, qos: int, options: int, identifiers: bytes
) -> Subscription | int:
    """Add one subscription to the router and the session; it replaces an older one with the same filter [MQTT-3.8.4-3].
    A new one isn't granted yet. Returns the subscription, or the reason code of the refusal. `limits`: the session's.
    `options` as in SUBSCRIBE (section 3.8.3.1).
    """
    if is_shared(filter) and not limits.shared_subscription:
        return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
    if is_exclusive(filter) and not limits.exclusive_subscription:
        return Reason.TOPIC_FILTER_INVALID
    if matching(filter).count(b"/") >= limits.max_topic_levels:
        return Reason.TOPIC_FILTER_INVALID
    wild = has_wildcard(filter)
    if wild and not limits.wildcard_subscription:
        return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
    no_local, as_published = options & NO_LOCAL != 0, options & RETAIN_AS_PUBLISHED != 0
    granted = min(qos, limits.max_qos_allowed)
    subscription = Subscription(session, filter, granted, no_local, as_published, identifiers)
    older = session.subscriptions.find(filter)
    if older is None and not _has_room(session, limits, filter):
        return Reason.QUOTA_EXCEEDED
    if wild and not session.subscriptions.may_have_shape(shape_of(filter), limits.max_wildcard_shapes):
        return Reason.QUOTA_EXCEEDED
    router.add(subscription)
    subscription.is_granted = older is not None and older.is_granted
    if older is not None:
        older.successor = subscription
        router.remove(older)
    else:
        router.began(subscription)
    session.subscriptions.add(subscription)
    return subscription


def _has_room(session: Subscriber, limits: Limits, filter: bytes) -> bool:
    """True if the client's limits and the user's quota allow one more subscription."""
    if len(session.subscriptions) >= limits.max_subscriptions:
        return False
    if is_shared(filter) and session.subscriptions.shared >= limits.max_shared_subscriptions:
        return False
    if session.subscriptions.filter_bytes + len(filter) > CLIENT_FILTERS_MAX_BYTES:
        return False
    return session.usage is None or session.usage.may_subscribe(filter)


def gets_retained(filter: bytes, retain_handling: int, is_new: bool) -> bool:
    """True if a new subscription gets retained messages [MQTT-3.3.1-9 to 3.3.1-11]. A shared one doesn't (section
    4.8.2).
    """
    return not is_shared(filter) and (retain_handling == 0 or (retain_handling == 1 and is_new))
