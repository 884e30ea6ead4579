"""What a node tells the nightly report of its connections."""

from __future__ import annotations

import pytest

from flockmq.membership.event_batches import COLUMNS, Event
from flockmq.mqtt import encode
from flockmq.mqtt.reason import Reason
from flockmq.node.event_rows import connected, disconnected, dropped, refused, taken_over
from flockmq.telemetry.counters import Counters
from unit.broker.protocol.harness import Client, Node, publish


def named(kind: str, row: Event) -> dict[str, object]:
    return dict(zip(COLUMNS[kind], row, strict=True))


def ended(client: Client) -> dict[str, object]:
    return named("connections", disconnected(7, b"c", client))


def test_each_row_has_its_kinds_columns() -> None:
    client = Node().client("c", version=5)
    row = named("connections", connected(7, b"c", client))
    assert {name: value for name, value in row.items() if value is not None} == {
        "at": 7,
        "kind": "connected",
        "client_id": "c",
        "reason_code": 0,
        "protocol_version": 5,
        "listener": "",
        "address": "",
    }
    assert named("connections", taken_over(7, b"c", client))["kind"] == "taken_over"
    row = named("refusals", refused(7, client, Reason.NOT_AUTHORIZED))
    assert (row["client_id"], row["reason_code"]) == ("c", 0x87)


@pytest.mark.parametrize("version", [4, 5])
def test_what_went_over_a_connection_is_counted_both_ways(version: int) -> None:
    """By each path: runs of QoS 0, QoS 1 at once, and QoS 1 that waits for the window."""
    node = Node()
    subscriber, publisher = node.client("s", version), node.client("p", version)
    node.subscribe(subscriber, ("t", 1), ("u/+", 0))
    for _ in range(2):  # the second time by the fast path
        for topic, qos in (("t", 0), ("t", 1), ("u/1", 0)):
            node.feed(publisher, publish(version, topic, "hello", qos=qos, packet_id=qos) * 5)
    before = ended(publisher)
    assert (before["messages_in"], before["messages_out"]) == (30, 0)
    assert isinstance(before["bytes_in"], int)
    node.feed(publisher, publish(version, "t", "hello"))
    assert ended(publisher)["bytes_in"] == before["bytes_in"] + len(publish(version, "t", "hello"))
    assert ended(subscriber)["messages_out"] == 31


@pytest.mark.parametrize("how", ["client", "network", "server"])
def test_who_ended_a_connection_is_told(how: str) -> None:
    node = Node()
    client = node.client("c", version=5)
    if how == "client":
        node.feed(client, encode.disconnect(5))
    elif how == "network":
        client.lost()
    else:
        client.close(Reason.ADMINISTRATIVE_ACTION)
    assert ended(client)["ended_by"] == how


def test_a_client_that_fell_silent_was_ended_by_the_network() -> None:
    client = Node().client("c", version=5)
    client.expire()
    assert (ended(client)["ended_by"], ended(client)["reason_code"]) == ("network", Reason.KEEP_ALIVE_TIMEOUT)


def test_a_session_lasts_from_its_connack_to_its_end() -> None:
    node = Node()
    client = node.client("c", version=5)
    node.router.host.now_s = client.connected_s + 1.5
    client.lost()
    assert ended(client)["duration_ms"] == 1500


def test_dropped_messages_are_those_of_every_cause() -> None:
    counters = Counters()
    counters.dropped_away, counters.dropped_queue_full, counters.messages_sent = 2, 3, 100
    assert dropped(counters) == 5
