"""Histories made up for the tests of the judges."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, Final

from judges.judge import DROPPED, LATE_IN_CALM, REFUSED_IN_CALM, Rules, judge
from load.history import (
    Acknowledged,
    AnyEvent,
    Asked,
    Closed,
    Connected,
    Delivered,
    Disconnected,
    FaultBegan,
    FaultEnded,
    NodeSeen,
    Published,
    PublishRefused,
    RedisLost,
    Refused,
    Subscribed,
    SubscribeRefused,
    SubscribeSent,
    Unsubscribed,
    UnsubscribeDone,
    Will,
)

UNJUDGED: Final = (DROPPED, REFUSED_IN_CALM, LATE_IN_CALM)
"""What a script needs without a reason: connections that end, refusals, time that passes."""
ONE_CORE: Final = Rules(cores=1)
"""Its clock is the cluster's time."""


class Script:
    """A history, event by event, a tenth of a second apart unless told otherwise. `tells`: clients say what they ask
    for, too."""

    def __init__(self, *, tells: bool = False) -> None:
        self.events: list[AnyEvent] = []
        self.now = 0.0
        self._tells = tells
        self._connections: dict[str, int] = {}
        self._count = 0

    def tick(self, seconds: float = 0.1) -> float:
        self.now += seconds
        return self.now

    # Connections.

    def connect(self, client: str, *, present: bool = False, **asked: Any) -> int:
        self.ask(client, **asked)
        self.events.append(Connected(self.tick(), client, self._connections[client], present))
        return self._connections[client]

    def ask(
        self,
        client: str,
        *,
        lasts: bool = True,
        node: str = "a",
        clean_start: bool = False,
        version: int = 5,
        expiry_s: float = 3600.0,
        will: Will | None = None,
        packet_max: int = 0,
    ) -> int:
        self._count += 1
        self._connections[client] = self._count
        expiry_s = expiry_s if lasts else 0.0
        asked = lasts, clean_start, version, expiry_s, will, packet_max
        self.events.append(Asked(self.tick(), client, self._count, node, *asked))
        return self._count

    def told(self, client: str, connection: int, *, present: bool) -> None:
        """CONNACK, of an earlier `ask`."""
        self.events.append(Connected(self.tick(), client, connection, present))

    def turn_away(self, client: str, reason: int = 0x88) -> None:
        self.events.append(Refused(self.tick(), client, self._connections[client], reason))

    def disconnect(
        self, client: str, connection: int = 0, *, with_will: bool = False, ends: bool = False, expiry_s: float = -1.0
    ) -> None:
        """And the connection ends."""
        connection = connection or self._connections[client]
        self.events.append(Disconnected(self.tick(), client, connection, with_will, ends, expiry_s))
        self.close(client, connection)

    def close(self, client: str, connection: int = 0, *, by_server: bool = False, reason: int = -1) -> None:
        self.events.append(Closed(self.tick(), client, connection or self._connections[client], by_server, reason))

    # Subscriptions.

    def subscribe(
        self,
        client: str,
        filter: str = "t",
        qos: int = 2,
        *,
        no_local: bool = False,
        handling: int = 0,
        as_published: bool = False,
        identifier: int = 0,
        answered_s: float = 0.1,
    ) -> None:
        options = handling, as_published, identifier
        if self._tells:
            self.ask_for(client, filter, qos, *options)
        connection = self._connections[client]
        self.events.append(Subscribed(self.tick(answered_s), client, connection, filter, qos, no_local, *options))

    def ask_for(self, client: str, filter: str = "t", qos: int = 2, *options: Any) -> None:
        """`options`: Retain Handling, Retain As Published, Subscription Identifier."""
        self.events.append(SubscribeSent(self.tick(), client, self._connections[client], filter, qos, *options))

    def deny(self, client: str, filter: str = "t", reason: int = 0x97) -> None:
        """SUBACK that says no."""
        self.events.append(SubscribeRefused(self.tick(), client, self._connections[client], filter, reason))

    def unsubscribe(self, client: str, filter: str = "t", *, answered: bool = True, is_missed: bool = False) -> None:
        self.events.append(Unsubscribed(self.tick(), client, filter))
        if self._tells and answered:
            self.events.append(UnsubscribeDone(self.tick(), client, self._connections[client], filter, is_missed))

    # Messages.

    def publish(
        self, client: str, number: int, topic: str = "t", qos: int = 1, *, again: bool = False, **more: Any
    ) -> None:
        connection = self._connections[client]
        self.events.append(Published(self.tick(), client, connection, number, topic, qos, again, **more))

    def acknowledge(self, client: str, number: int) -> None:
        self.events.append(Acknowledged(self.tick(), client, number))

    def put(self, client: str, number: int, topic: str = "t", qos: int = 1, **more: Any) -> None:
        """Published and acknowledged."""
        self.publish(client, number, topic, qos, **more)
        self.acknowledge(client, number)

    def refuse(self, client: str, number: int, reason: int = 0x87) -> None:
        self.events.append(PublishRefused(self.tick(), client, number, reason))

    def deliver(self, client: str, publisher: str, number: int, topic: str = "t", qos: int = 1, **more: Any) -> None:
        connection = self._connections[client]
        self.events.append(Delivered(self.tick(), client, connection, publisher, number, topic, qos, **more))

    def crossing(self, number: int, qos: int = 1) -> None:
        """One message from `pub` to `sub`, in full."""
        self.put("pub", number, qos=qos)
        self.deliver("sub", "pub", number, qos=qos)

    # The rest.

    def fault(self, kind: str = "kill core", *nodes: str, lasts_s: float = 1.0) -> None:
        """From now on; nothing else happens meanwhile."""
        self.events.append(FaultBegan(self.tick(), kind, nodes))
        self.events.append(FaultEnded(self.tick(lasts_s), kind, nodes))

    @contextlib.contextmanager
    def during(self, kind: str, *nodes: str) -> Iterator[None]:
        """A fault that runs while the block does."""
        self.events.append(FaultBegan(self.tick(), kind, nodes))
        yield
        self.events.append(FaultEnded(self.tick(), kind, nodes))

    def look(self, **slots: int) -> None:
        """How many slots each core has."""
        at = self.tick()
        self.events += [NodeSeen(at, core, True, False, count, True) for core, count in slots.items()]

    @contextlib.contextmanager
    def losing(self, kind: str) -> Iterator[None]:
        """Redis is killed behind the block, and comes back with what the kind of fault leaves it."""
        with self.during(kind, "redis"):
            yield
            self.events.append(RedisLost(self.tick()))

    def found(self, rules: Rules = Rules()) -> dict[str, int]:  # noqa: B008
        """But for `UNJUDGED`."""
        kinds = judge(self.events, rules).by_kind()
        return {kind: count for kind, count in kinds.items() if kind not in UNJUDGED}


def begun(*, lasts: bool = True, tells: bool = False) -> Script:
    """A publisher, and a subscriber of all its messages whose route everybody knows."""
    script = Script(tells=tells)
    script.connect("pub", lasts=lasts)
    script.connect("sub", lasts=lasts)
    script.subscribe("sub")
    script.tick(1.0)
    return script


def a_good_history(seed: int, messages: int = 30) -> list[AnyEvent]:
    """Messages at both QoS, a publisher and a subscriber that come back, repeats as MQTT allows them."""
    rng, script = random.Random(seed), begun()
    for number in range(1, messages + 1):
        match rng.randrange(5):
            case 0:  # the publisher's connection ends before it hears, and the message comes twice
                script.publish("pub", number)
                script.deliver("sub", "pub", number)
                script.close("pub")
                script.connect("pub", present=True, node="b")
                script.publish("pub", number, again=True)
                script.acknowledge("pub", number)
                script.deliver("sub", "pub", number)
            case 1:  # the subscriber's does, and nobody knows whether it heard
                script.crossing(number)
                script.close("sub")
                script.connect("sub", present=True, node="b")
                script.deliver("sub", "pub", number)
            case 2:  # it waits
                script.close("sub")
                script.put("pub", number, qos=2)
                script.connect("sub", present=True)
                script.deliver("sub", "pub", number, qos=2)
            case _:
                script.crossing(number, qos=1 + number % 2)
    return script.events
