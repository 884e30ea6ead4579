"""Removes subscriptions from the router, and what waited by them from a session's queue."""

from __future__ import annotations

from collections.abc import Callable, Collection

from flockmq.mqtt.message import StoredMessage, packet_of, topic_of
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_shared, matching
from flockmq.routing.filter_index import FilterIndex
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription, SubscriptionSet


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
