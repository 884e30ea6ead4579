"""How connections come and end: who is gone is gone everywhere, and who is cut off can read why."""

from __future__ import annotations

import sys

from flockmq.bounds import LINGER_MAX_S
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect, SubscribeEntry
from flockmq.mqtt.reason import Reason
from unit.broker.protocol.harness import publish, without_words
from unit.broker.transport.harness import Served


def subscribe(filter: bytes, qos: int = 0) -> bytes:
    return encode.subscribe(4, 1, [SubscribeEntry(filter, qos)])


def test_a_client_that_closes_is_gone_with_its_subscriptions() -> None:
    with Served() as served:
        connection, client = served.client("c")
        served.ask(client, subscribe(b"a"))
        client.close()
        served.reactor.turn()
        assert connection.fd == -1
        assert len(served.router.local) == 0
        assert served.router.counters.connections == 0


def test_a_reused_descriptor_is_a_new_connection() -> None:
    with Served() as served:
        older, client = served.client("c")
        fd = older.fd
        client.close()
        served.reactor.turn()
        newer, client = served.client("c")
        assert newer.fd == fd
        assert served.ask(client, encode.PINGREQ) == encode.PINGRESP


def test_a_client_that_is_cut_off_can_read_why_and_is_closed_then() -> None:
    with Served() as served:
        connection, client = served.client("c", 5)
        client.sendall(encode.connect(Connect(5, b"c")))
        served.reactor.turn()
        assert without_words([client.recv(100)]) == [encode.disconnect(5, Reason.PROTOCOL_ERROR)]
        assert client.recv(100) == b""
        assert connection.fd >= 0
        client.sendall(b"it goes on all the same")
        served.reactor.turn()
        client.close()
        served.reactor.turn()
        assert connection.fd == -1
        assert not served.reactor.table.half_closed


def test_a_client_that_was_cut_off_and_stays_is_closed_by_the_clock() -> None:
    with Served() as served:
        connection, client = served.opened()
        assert served.ask(client, encode.PINGREQ) == b""
        served.reactor.tick()
        assert connection.fd >= 0
        connection.last_seen_s -= LINGER_MAX_S
        served.reactor.tick()
        assert connection.fd == -1


def test_a_connection_that_is_gone_is_referred_to_by_nobody() -> None:
    """Compiled objects have no part in cycles that somebody would collect."""
    with Served() as served:
        connection, client = served.client("c")
        served.ask(client, subscribe(b"a", 1))
        served.ask(client, publish(4, "a", "x", qos=1, packet_id=1))
        client.close()
        served.reactor.turn()
        served.port.ended.clear()
        served.port.given.clear()
        assert sys.getrefcount(connection) == 2
