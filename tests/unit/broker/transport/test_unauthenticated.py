"""What clients may cost before they are let in: all together, and from one address."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest

from flockmq.bounds import (
    UNAUTHENTICATED_COUNTED_BYTES,
    UNAUTHENTICATED_READ_BYTES,
    UNAUTHENTICATED_READ_MAX_BYTES,
)
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED, CONNECTED, Channel
from flockmq.session.limits import Limits
from flockmq.transport.connection import Connection
from flockmq.transport.unauthenticated import Unauthenticated
from unit.broker.protocol.harness import Port
from unit.broker.transport.harness import Served

CONNECT = encode.connect(Connect(4, b"c"))
CONNACK = encode.connack(4, 0)
NEVER_WHOLE = b"\x10\xff\xff\x02" + bytes(40_000)
"""Of a CONNECT of almost 48 KiB."""


@contextlib.contextmanager
def of(served: Served, *networks: str) -> Iterator[list[Connection]]:
    """Connections from these networks, which the reactor doesn't serve."""
    made = []
    for network in networks:
        made.append(Connection(served.reactor.table, served.router, served.port, served.listener, -1))
        made[-1].network = network
    yield made


def test_the_oldest_of_whoever_costs_more_than_its_share_goes_first() -> None:
    with Served() as served, of(served, "a", "b", "a", "a", "c") as (a1, b, a2, a3, c):
        unauthenticated = Unauthenticated(100_000)
        for connection, cost in ((a1, 30_000), (b, 20_000), (a2, 25_000), (a3, 25_000)):
            unauthenticated.cost(connection, cost)
        assert unauthenticated.excess() == []
        unauthenticated.cost(c, 10_000)
        assert unauthenticated.excess() == [a1]
        assert unauthenticated.bytes == 80_000
        unauthenticated.cost(c, 40_000)
        assert unauthenticated.excess() == [a2]


def test_from_one_address_the_oldest_go() -> None:
    with Served() as served, of(served, *["a"] * 20) as all_of_a:
        unauthenticated = Unauthenticated(10_000)
        going: list[Connection] = []
        for connection in all_of_a:
            unauthenticated.cost(connection, 1000)
            going += unauthenticated.excess()
        assert going == all_of_a[:10]


def test_whatever_comes_the_sum_is_right_and_within_the_bound() -> None:
    seed = random.Random(1)
    with Served() as served, of(served, *[seed.choice("abcdef") for _ in range(200)]) as connections:
        unauthenticated = Unauthenticated(50_000)
        costs: dict[Connection, int] = {}
        for _ in range(5000):
            connection = seed.choice(connections)
            if seed.random() < 0.2:
                unauthenticated.forget(connection)
                costs.pop(connection, None)
            else:
                more = seed.randrange(1, 2000)
                unauthenticated.cost(connection, more)
                costs[connection] = costs.get(connection, 0) + more
            for gone in unauthenticated.excess():
                del costs[gone]
            counted = [cost for cost in costs.values() if cost >= UNAUTHENTICATED_COUNTED_BYTES]
            assert unauthenticated.bytes == sum(counted) <= 50_000


# --- at the reactor -------------------------------------------------------------------------------------------------


def test_a_connect_that_is_never_whole_makes_room_for_those_that_come_later() -> None:
    with Served() as served:
        served.reactor.share_resources(100_000, 1000, 1000)
        opened = [served.opened() for _ in range(4)]
        for connection, client in opened:
            client.sendall(NEVER_WHOLE)
            for _ in range(len(NEVER_WHOLE) // UNAUTHENTICATED_READ_MAX_BYTES + 2):
                served.reactor.turn()
            assert served.reactor.unauthenticated_bytes() <= 100_000
            assert connection.fd >= 0
        assert [connection.fd < 0 for connection, _ in opened] == [True, True, False, False]
        assert served.router.counters.connects_refused == 2
        _, client = served.opened()
        assert served.ask(client, CONNECT) == CONNACK


def test_who_is_let_in_costs_nothing_any_more() -> None:
    with Served() as served:
        connection, client = served.opened()
        connect = encode.connect(Connect(4, b"c" * 1000))
        client.sendall(connect[:600])
        served.reactor.turn()
        assert served.reactor.unauthenticated_bytes() == 600 + UNAUTHENTICATED_READ_BYTES
        assert served.ask(client, connect[600:]) == CONNACK
        assert connection.state == CONNECTED
        assert (served.reactor.unauthenticated_bytes(), connection.cost) == (0, 0)


def test_who_costs_less_than_a_connection_is_not_counted() -> None:
    with Served() as served:
        connection, client = served.opened()
        for byte in encode.connect(Connect(4, b"c" * 100))[:8]:
            client.sendall(bytes((byte,)))
            served.reactor.turn()
        assert served.reactor.unauthenticated_bytes() == connection.cost == 8 * (1 + UNAUTHENTICATED_READ_BYTES)
        _, other = served.opened()
        other.sendall(CONNECT[:5])
        served.reactor.turn()
        assert served.reactor.unauthenticated_bytes() == connection.cost


class Asking(Port):
    """Nobody says yet who a client is."""

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.channel, self.connect = channel, connect


def test_who_is_being_asked_about_still_costs_what_it_sent() -> None:
    with Served() as served:
        served.serve(Asking())
        connection, client = served.opened()
        client.sendall(CONNECT + bytes(5000))
        served.reactor.turn()
        cost = len(CONNECT) + 5000 + UNAUTHENTICATED_READ_BYTES
        assert served.reactor.unauthenticated_bytes() == cost
        served.reactor.share_resources(cost - 1, 1000, 1000)
        _, other = served.opened()
        other.sendall(CONNECT + bytes(1000))
        served.reactor.turn()
        assert connection.state == CLOSED
        assert client.recv(1) == b""
        assert served.reactor.unauthenticated_bytes() == len(CONNECT) + 1000 + UNAUTHENTICATED_READ_BYTES


def test_who_is_closed_costs_nothing_any_more() -> None:
    with Served() as served:
        _, client = served.opened()
        client.sendall(NEVER_WHOLE[:1000])
        served.reactor.turn()
        assert served.reactor.unauthenticated_bytes()
        client.close()
        served.reactor.turn()
        assert served.reactor.unauthenticated_bytes() == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_connect_over_its_limit_is_refused_at_its_first_bytes(version: int) -> None:
    with Served(Limits(max_packet_size=10_000, max_connect_packet_size=1000)) as served:
        for length, read in ((900, None), (1000, 20)):
            connect = encode.connect(Connect(version, b"c" * length))
            _, client = served.opened()
            answer = served.ask(client, connect[:read])
            if read is None:
                assert answer[:4:3] == b" \0"
            elif version == 4:
                assert answer == b"", "there is no code for it"
            else:
                assert (answer[0], answer[3]) == (0x20, Reason.PACKET_TOO_LARGE)


def test_behind_connect_the_limit_is_that_of_all_packets() -> None:
    with Served(Limits(max_packet_size=10_000, max_connect_packet_size=1000)) as served:
        connection, client = served.client("c")
        client.sendall(encode.publish(4, b"t", bytes(5000)))
        served.reactor.turn()
        assert connection.state == CONNECTED


def test_no_connect_is_larger_than_any_packet_may_be() -> None:
    assert Limits(max_packet_size=500, max_connect_packet_size=1000).max_connect_packet_size == 500
