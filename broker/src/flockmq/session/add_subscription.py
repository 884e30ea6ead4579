"""Adds a subscription to a session and the router if limits allow it, and removes subscriptions from the router."""

from __future__ import annotations

from flockmq.bounds import CLIENT_FILTERS_MAX_BYTES
from flockmq.mqtt.packets import NO_LOCAL, RETAIN_AS_PUBLISHED
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.routing.filter_index import has_wildcard, shape_of
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.session.limits import Limits


def add_subscription(
    router: Router, session: Subscriber, limits: Limits, filter: bytes, qos: int, options: int, identifiers: bytes
) -> Subscription | int:
    """Add one subscription to the router and the session; it replaces an older one with the same filter [MQTT-3.8.4-3].
    Returns the subscription, or the reason code of the refusal. `limits`: the session's. `options` as in SUBSCRIBE
    (section 3.8.3.1).
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
    if older is not None:
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


def _has_room(session: Subscriber, limits: Limits, filter: bytes) -> bool:
    """True if the client's limits and the user's quota allow one more subscription."""
    if len(session.subscriptions) >= limits.max_subscriptions:
        return False
    if session.subscriptions.filter_bytes + len(filter) > CLIENT_FILTERS_MAX_BYTES:
        return False
    return session.usage is None or session.usage.may_subscribe(filter)


def gets_retained(filter: bytes, retain_handling: int, is_new: bool) -> bool:
    """True if a new subscription gets retained messages [MQTT-3.3.1-9 to 3.3.1-11]. A shared one doesn't (section
    4.8.2).
    """
    return not is_shared(filter) and (retain_handling == 0 or (retain_handling == 1 and is_new))
