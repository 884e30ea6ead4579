"""Adds a subscription to a session and the router if limits allow it, and removes subscriptions from the router."""

from __future__ import annotations

from collections.abc import Callable, Collection

from flockmq.bounds import CLIENT_FILTERS_MAX_BYTES
from flockmq.mqtt.message import StoredMessage, packet_of, topic_of
from flockmq.mqtt.packets import NO_LOCAL, RETAIN_AS_PUBLISHED
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.routing.filter_index import FilterIndex, has_wildcard, shape_of
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscriber, Subscription, SubscriptionSet
from flockmq.session.limits import Limits


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


def remove_subscriptions(router: Router, subscriptions: list[Subscription]) -> list[bytes]:
    """Remove subscriptions, which their session no longer has, from the router. Returns the filters without
    subscribers.
    """
    unrouted: list[bytes] = []
    for subscription in subscriptions:
        router.remove(subscription)
        router.ended(subscription)
        if router.is_unwanted(subscription):
            unrouted.append(subscription.filter)
    return unrouted


def unsubscribed(router: Router, removed: list[Subscription | None]) -> tuple[list[int], list[bytes]]:
    """Remove from the router what an UNSUBSCRIBE removed from a session: None for a filter that it didn't have.
    Returns the reason codes for UNSUBACK, one for each, and the filters without subscribers.
    """
    reasons: list[int] = [Reason.NO_SUBSCRIPTION_EXISTED if each is None else Reason.SUCCESS for each in removed]
    return reasons, remove_subscriptions(router, [subscription for subscription in removed if subscription is not None])


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


def drop_waiting(
    queue: Collection[StoredMessage | bytes] | None,
    subscriptions: SubscriptionSet,
    ended: list[bytes],
    take_out: Callable[[list[StoredMessage | bytes], list[StoredMessage | bytes]], None],
) -> tuple[int, list[StoredMessage]]:
    """Remove the messages that match `ended` filters, and no other subscription, from a session's queue. Returns how
    many were dropped, and the messages of ended shared subscriptions, which go to other members. Messages in flight
    stay. `take_out` gets the removed entries and the remaining ones.
    """
    if not queue:
        return 0, []
    were, are = FilterIndex(), FilterIndex()
    for filter in ended:
        if not is_shared(filter):
            were.add(matching(filter), filter)
    ending = frozenset(ended)
    for subscription in subscriptions.all():
        if subscription.filter not in ending and not is_shared(subscription.filter):
            are.add(matching(subscription.filter), subscription)
    stay: list[StoredMessage | bytes] = []
    gone: list[StoredMessage | bytes] = []
    left: list[StoredMessage] = []
    for entry in queue:
        if isinstance(entry, StoredMessage) and entry.share:
            if entry.share in ending:
                left.append(entry)
            else:
                stay.append(entry)
            continue
        topic = topic_of(packet_of(entry))
        if were.match(topic) and not are.match(topic):
            gone.append(entry)
        else:
            stay.append(entry)
    if gone or left:
        take_out([*gone, *left], stay)
    return len(gone), left
