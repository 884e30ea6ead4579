"""Bugs of messages on their way: lost, again, out of order, late, to the wrong client, or under the wrong topic."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final

from flockmq.delivery.node_forwarding import NodeForwarding
from flockmq.durable.message_queue import MessageQueue
from flockmq.durable.session_fields import MESSAGE, SUBSCRIPTION, message_parts, message_value
from flockmq.durable.session_store import SessionStore
from flockmq.mqtt.message import Publish, StoredMessage, as_duplicate
from flockmq.mqtt.packets import NO_LOCAL, RETAIN_AS_PUBLISHED
from flockmq.publishing.retained_feed import of_row
from flockmq.routing.router import Router
from flockmq.routing.sink import AwaySink
from flockmq.routing.subscriber import Subscriber
from flockmq.session.limits import Limits
from flockmq.session.subscribe_flow import _has_room, add_subscription
from judges import judge
from simulation.seeded.bug import EVERY, Function, seeded

_runs: Final = itertools.count(1)
_held: Final[list[tuple[Any, ...]]] = []


@seeded(judge.LOST, "base", NodeForwarding._deliver)
def drop(right: Function, *run: Any) -> None:
    """Of what another node forwarded, and was accepted, some isn't delivered."""
    if next(_runs) % EVERY:
        right(*run)


@seeded(judge.REPEATED, "base", NodeForwarding._deliver)
def duplicate(right: Function, *run: Any) -> None:
    """Some is delivered twice."""
    right(*run)
    if next(_runs) % EVERY == 0:
        right(*run)


@seeded(judge.REORDERED, "base", NodeForwarding._deliver)
def reorder(right: Function, *run: Any) -> None:
    """Some is delivered behind what comes after it."""
    number = next(_runs)
    if number % EVERY == 0:
        _held.append(run)
        return
    right(*run)
    if number % EVERY == EVERY // 2:
        while _held:
            right(*_held.pop())


@seeded(judge.LOST_IN_CALM, "base", Router.emit, seed=9)
def drop_at_qos_0(right: Function, *run: Any) -> None:
    """Of what comes at QoS 0 some isn't sent on."""
    if next(_runs) % EVERY:
        right(*run)


@seeded(judge.KEPT_OLDER, "overflow", MessageQueue.drop_oldest, kinds=("clock replicant",))
def drop_the_newest(right: Function, messages: MessageQueue) -> bool:
    """Of a full queue the newest message goes."""
    queue = messages.queue
    if queue:
        queue.rotate(1)
    dropped: bool = right(messages)
    if queue:
        queue.rotate(-1)
    return dropped


@seeded(judge.MISCOUNTED, "overflow", AwaySink.dropped, kinds=("clock replicant",))
def count_some(right: Function, away: AwaySink, count: int) -> None:
    """Of what is dropped some isn't counted."""
    if next(_runs) % EVERY:
        right(away, count)


@seeded(judge.UNMARKED, "flow", as_duplicate, seed=9)
def send_as_new(right: Function, packet: bytes) -> bytes:
    """What is sent again has no DUP."""
    return packet


@seeded(judge.ALTERED, "forms", StoredMessage.started, seed=11)
def keep_the_expiry(right: Function, stored: StoredMessage, now_s: float) -> bytes:
    """What waited says the expiry that it came with."""
    return stored.packet


_topics: Final[dict[int, bytes]] = {}


@seeded(judge.INVENTED, "retained", of_row)
def keep_the_topic(right: Function, topic: bytes, *row: Any) -> Publish | None:
    """What is retained is given under the first topic that was as long."""
    message: Publish | None = right(_topics.setdefault(len(topic), topic), *row)
    return message


@seeded(judge.EXPIRED, "expiry", SessionStore.put, kinds=("kill core", "drain core"), seed=10)
def store_no_expiry(
    right: Function, store: SessionStore, slot: int, client_id: bytes, field: bytes, value: bytes | None, *other: bytes
) -> None:
    """The store doesn't say when a message expires: a session that moves keeps it for ever."""
    if value is not None and field[0] == MESSAGE:
        state, qos, version, _, share, packet = message_parts(value)
        value = message_value(state, qos, version, 0, share, packet)
    right(store, slot, client_id, field, value, *other)


@seeded(judge.ECHOED, "flow", add_subscription)
def hear_oneself(
    right: Function,
    router: Router,
    session: Subscriber,
    limits: Limits,
    filter: bytes,
    qos: int,
    options: int,
    identifiers: bytes,
) -> Any:
    """The owner of a session forgets No Local."""
    return right(router, session, limits, filter, qos, options & ~NO_LOCAL, identifiers)


@seeded(judge.FILTERS, "flow", add_subscription)
def name_the_first(
    right: Function,
    router: Router,
    session: Subscriber,
    limits: Limits,
    filter: bytes,
    qos: int,
    options: int,
    identifiers: bytes,
) -> Any:
    """All subscriptions of a session have the identifier of its first."""
    others = session.subscriptions.all()
    return right(router, session, limits, filter, qos, options, others[0].identifiers if others else identifiers)


@seeded(judge.WRONG_RETAIN, "options", add_subscription)
def forget_as_published(
    right: Function,
    router: Router,
    session: Subscriber,
    limits: Limits,
    filter: bytes,
    qos: int,
    options: int,
    identifiers: bytes,
) -> Any:
    """Retain As Published is forgotten."""
    return right(router, session, limits, filter, qos, options & ~RETAIN_AS_PUBLISHED, identifiers)


@seeded(judge.OUTDATED, "options", add_subscription)
def keep_the_identifier(
    right: Function,
    router: Router,
    session: Subscriber,
    limits: Limits,
    filter: bytes,
    qos: int,
    options: int,
    identifiers: bytes,
) -> Any:
    """A subscription that is asked for again keeps the identifier that it had."""
    older = session.subscriptions.find(filter)
    return right(router, session, limits, filter, qos, options, older.identifiers if older else identifiers)


@seeded(judge.LATE_IN_CALM, "calm", NodeForwarding._deliver)
def take_ones_time(right: Function, *run: Any) -> None:
    """Some of what another node forwarded is delivered two seconds later."""
    if next(_runs) % EVERY:
        right(*run)
    else:
        asyncio.get_running_loop().call_later(2.0, right, *run)


@seeded(judge.WRONG_QOS, "base", add_subscription)
def ask_for_less(
    right: Function,
    router: Router,
    session: Subscriber,
    limits: Limits,
    filter: bytes,
    qos: int,
    options: int,
    identifiers: bytes,
) -> Any:
    """Who subscribes at QoS 2 gets all at QoS 1."""
    return right(router, session, limits, filter, min(qos, 1), options, identifiers)


@seeded(judge.REFUSED_IN_CALM, "base", _has_room, seed=9)
def find_no_room(right: Function, *filter: Any) -> bool:
    """Some SUBSCRIBEs are refused (0x97), and nothing is full."""
    return bool(next(_runs) % EVERY and right(*filter))


@seeded(judge.UNASKED, "base", SessionStore.put, kinds=("kill core", "drain core"), seed=4)
def keep_subscriptions(
    right: Function, store: SessionStore, slot: int, client_id: bytes, field: bytes, value: bytes | None, *other: bytes
) -> None:
    """What a client gives up stays in the store: a session that moves has it again."""
    if value is not None or field[0] != SUBSCRIPTION:
        right(store, slot, client_id, field, value, *other)
