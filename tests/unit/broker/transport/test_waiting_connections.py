"""Who waits to be read: users take turns, however many connections each has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flockmq.bounds import READ_MIN_BYTES, SPIN_MAX_S, TURN_WORK_MAX_S
from flockmq.clock import Clock
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect
from flockmq.protocol.channel import CONNECTED, OPENED
from flockmq.protocol.client import Principal
from flockmq.transport.connection import Connection
from flockmq.transport.waiting_connections import WaitingConnections
from unit.broker.protocol.harness import publish
from unit.broker.transport.harness import Served
from unit.broker.transport.test_epoll_reactor import Steps


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as served:
        yield served


def of_user(served: Served, user: bytes, number: int) -> Connection:
    connection, _ = served.client(f"{user.decode()}{number}")
    connection.principal = Principal(user)
    return connection


def taken(waiting: WaitingConnections) -> list[Connection]:
    """All of the first row, and then all of the second one."""
    return [waiting.next(row) for row in (waiting.first, waiting.second) for _ in range(row.size)]


def test_users_take_turns_and_each_ones_connections_go_in_order(served: Served) -> None:
    waiting = WaitingConnections()
    many = [of_user(served, b"many", number) for number in range(4)]
    few = [of_user(served, b"few", number) for number in range(2)]
    for connection in (*many, *few, many[0]):
        waiting.add(connection)
    assert len(waiting) == 6
    assert taken(waiting) == [many[0], few[0], many[1], few[1], many[2], many[3]]


def test_who_has_sent_more_than_was_read_waits_in_the_second_row_in_turns_of_its_own(served: Served) -> None:
    waiting = WaitingConnections()
    much = [of_user(served, b"a", number) for number in range(3)] + [of_user(served, b"b", 0)]
    few = [of_user(served, b"a", number) for number in range(3, 5)]
    for connection in much:
        connection.has_more = True
        waiting.add(connection)
    for connection in few:
        waiting.add(connection)
    much[0].has_more = False
    waiting.add(much[0])
    assert (waiting.first.size, waiting.second.size, len(waiting)) == (2, 4, 6)
    assert taken(waiting) == [*few, much[0], much[3], much[1], much[2]]


def of_network(served: Served, network: str) -> Connection:
    connection, _ = served.opened()
    connection.network = served.reactor.table.acceptor.count_in(network)
    return connection


def test_who_has_no_user_yet_takes_turns_with_all_of_its_network(served: Served) -> None:
    waiting = WaitingConnections()
    users = [of_user(served, b"", 0), of_user(served, b"192.0.2.1", 0)]
    strangers = [of_network(served, "192.0.2.1") for _ in range(3)]
    other = of_network(served, "192.0.2.2")
    for connection in (*strangers, other, *users):
        connection.has_more = True
        waiting.add(connection)
    assert taken(waiting) == [strangers[0], other, *users, strangers[1], strangers[2]]


def test_a_listener_knows_how_many_wait_that_were_not_connected_when_they_came(served: Served) -> None:
    waiting = WaitingConnections()
    user, strangers = of_user(served, b"a", 0), [served.opened()[0] for _ in range(3)]
    for connection in (user, *strangers, *strangers):
        waiting.add(connection)
    assert served.listener.strangers_waiting == 3
    strangers[0].state = CONNECTED
    waiting.discard(strangers[0])
    waiting.discard(strangers[0])
    strangers[0].state = OPENED
    assert served.listener.strangers_waiting == 2
    taken(waiting)
    assert served.listener.strangers_waiting == 0


def test_who_is_gone_waits_no_more_whatever_its_user_is_by_then(served: Served) -> None:
    waiting = WaitingConnections()
    first, second = (of_user(served, b"a", number) for number in range(2))
    waiting.add(first)
    waiting.add(second)
    first.principal = Principal(b"b")
    waiting.discard(first)
    waiting.discard(first)
    assert first not in waiting
    assert taken(waiting) == [second]
    assert len(waiting) == 0


def test_a_client_waits_for_one_connection_of_another_user() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        others = [served.client(f"c{number}") for number in range(6)]
        decent, client = served.client("decent")
        for connection, _ in others:
            connection.principal = Principal(b"many")
        decent.principal = Principal(b"decent")
        clock.step_s = TURN_WORK_MAX_S * 2
        much = publish(4, "a", "x" * READ_MIN_BYTES)
        for connection, other in others:
            connection.read_bytes = 2 * READ_MIN_BYTES
            other.sendall(much)
        served.reactor.turn()
        client.sendall(encode.PINGREQ)
        client.setblocking(False)
        for _ in range(2):
            served.reactor.turn()
        assert client.recv(100) == encode.PINGRESP
        assert served.reactor.table.waiting


def test_a_client_waits_for_one_read_of_another_user_also_where_each_of_its_connections_sends_little() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        clock.step_s = SPIN_MAX_S
        many = [served.client(f"c{number}") for number in range(20)]
        decent, client = served.client("decent")
        for connection, _ in many:
            connection.principal = Principal(b"many")
        decent.principal = Principal(b"decent")
        clock.step_s = TURN_WORK_MAX_S * 2
        pings, received = encode.PINGREQ * (READ_MIN_BYTES // 2), served.router.counters.packets_received

        def turn() -> None:
            """All of the others have sent something before it."""
            for connection, other in many:
                if connection not in served.reactor.table.waiting:
                    other.sendall(pings)
            served.reactor.turn()

        turn()
        for _ in range(3):
            had = received[frame.PINGREQ]
            client.sendall(encode.PINGREQ)
            turn()
            turn()
            assert client.recv(100) == encode.PINGRESP
            assert received[frame.PINGREQ] - had <= 1 + 2 * (len(pings) // 2), "one read before it, and one behind it"


def test_a_client_waits_for_one_of_those_who_connect() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        _, client = served.client("decent")
        strangers = [served.opened()[1] for _ in range(10)]
        clock.step_s = TURN_WORK_MAX_S * 0.6
        for number, stranger in enumerate(strangers):
            stranger.sendall(encode.connect(Connect(4, b"c%d" % number)))
        served.reactor.turn()
        assert served.listener.strangers_waiting > 5
        client.sendall(encode.PINGREQ)
        client.setblocking(False)
        for _ in range(2):
            served.reactor.turn()
        assert client.recv(100) == encode.PINGRESP
        assert served.listener.strangers_waiting
