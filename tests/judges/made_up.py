"""Histories made up for the tests of the checker."""

from __future__ import annotations

import random

from judges.judge import judge
from load.history import (
    Acknowledged,
    AnyEvent,
    Asked,
    Closed,
    Connected,
    Delivered,
    Published,
    Subscribed,
    Unsubscribed,
)


class Script:
    """A history, event by event, a tenth of a second apart unless told otherwise."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.now = 0.0
        self._connections: dict[str, int] = {}
        self._count = 0

    def tick(self, seconds: float = 0.1) -> float:
        self.now += seconds
        return self.now

    def connect(self, client: str, *, lasts: bool = True, present: bool = False, node: str = "a") -> int:
        self.ask(client, lasts=lasts, node=node)
        self.events.append(Connected(self.tick(), client, self._connections[client], present))
        return self._connections[client]

    def ask(self, client: str, *, lasts: bool = True, node: str = "a") -> None:
        self._count += 1
        self._connections[client] = self._count
        self.events.append(Asked(self.tick(), client, self._count, node, lasts))

    def close(self, client: str, connection: int = 0, *, by_server: bool = False) -> None:
        self.events.append(Closed(self.tick(), client, connection or self._connections[client], by_server))

    def subscribe(self, client: str, filter: str = "t", qos: int = 2) -> None:
        self.events.append(Subscribed(self.tick(), client, self._connections[client], filter, qos))

    def unsubscribe(self, client: str, filter: str = "t") -> None:
        self.events.append(Unsubscribed(self.tick(), client, filter))

    def publish(self, client: str, number: int, topic: str = "t", qos: int = 1, *, again: bool = False) -> None:
        at = self.tick()
        self.events.append(Published(at, client, self._connections[client], number, topic, qos, again))

    def acknowledge(self, client: str, number: int) -> None:
        self.events.append(Acknowledged(self.tick(), client, number))

    def deliver(self, client: str, publisher: str, number: int, topic: str = "t", qos: int = 1) -> None:
        connection = self._connections[client]
        self.events.append(Delivered(self.tick(), client, connection, publisher, number, topic, qos))

    def crossing(self, number: int, qos: int = 1) -> None:
        """One message from `pub` to `sub`, in full."""
        self.publish("pub", number, qos=qos)
        self.acknowledge("pub", number)
        self.deliver("sub", "pub", number, qos=qos)

    def found(self) -> dict[str, int]:
        return dict(judge(self.events).by_kind())


def begun(*, lasts: bool = True) -> Script:
    """A publisher, and a subscriber of all its messages whose route everybody knows."""
    script = Script()
    script.connect("pub", lasts=lasts)
    script.connect("sub", lasts=lasts)
    script.subscribe("sub")
    script.tick(1.0)
    return script


def a_good_history(seed: int) -> list[AnyEvent]:
    """Messages at both QoS, a publisher and a subscriber that come back, repeats as MQTT allows them."""
    rng, script = random.Random(seed), begun()
    for number in range(1, 31):
        match rng.randrange(5):
            case 0:  # the publisher's connection ends before it hears, and the message comes twice
                script.publish("pub", number)
                script.deliver("sub", "pub", number)
                script.close("pub", by_server=True)
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
                script.publish("pub", number, qos=2)
                script.acknowledge("pub", number)
                script.connect("sub", present=True)
                script.deliver("sub", "pub", number, qos=2)
            case _:
                script.crossing(number, qos=1 + number % 2)
    return script.events
