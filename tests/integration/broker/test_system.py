"""`$SYS` across nodes: what names its node reaches every node, what doesn't stays."""

from __future__ import annotations

import contextlib
import queue

from integration.broker.clients import Client
from integration.broker.conftest import Fleet

TOLD = '[{"type": "file", "rules": [{"permit": "allow", "topics": ["$SYS/#"]}]}]'


def test_clients_are_told_of_on_every_node(fleet: Fleet) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0", FLOCKMQ_AUTHORIZATION__SOURCES=TOLD), fleet.replicant("replicant-1")
    with Client(here.mqtt, "watcher") as watcher:
        watcher.subscribe("$SYS/brokers/+/clients/+/connected", 0)
        watcher.subscribe("$SYS/broker/clients/connected", 0)
        assert watcher.receive() == ("$SYS/broker/clients/connected", "1", 0, True)
        told = None
        while told is None:  # until the other node has the route
            with Client(there.mqtt, "dev"), contextlib.suppress(queue.Empty):
                told = watcher.messages.get(timeout=0.2)
        assert told.topic == "$SYS/brokers/replicant-1/clients/dev/connected"
