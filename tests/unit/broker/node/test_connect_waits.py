"""How long a node lets clients wait for CONNACK."""

from __future__ import annotations

from flockmq.node.connect_waits import ConnectWaits
from flockmq.protocol.channel import ADMITTING, CONNECTED, Channel
from unit.broker.protocol.harness import Node


def asking() -> Channel:
    client = Node().opened()
    client.state = ADMITTING
    return client


def test_who_waits_longest_counts_until_it_is_answered() -> None:
    waits, first, second = ConnectWaits(), asking(), asking()
    waits.note(first, 100.0)
    waits.note(second, 103.0)
    assert waits.longest_s(105.0) == 5.0
    first.state = CONNECTED
    assert waits.longest_s(105.0) == 2.0
    second.state = CONNECTED
    assert waits.longest_s(105.0) == 0.0


def test_who_waits_for_its_login_and_then_for_its_owner_has_waited_since_the_first() -> None:
    waits, client = ConnectWaits(), asking()
    waits.note(client, 100.0)
    waits.note(client, 104.0)
    assert waits.longest_s(105.0) == 5.0
