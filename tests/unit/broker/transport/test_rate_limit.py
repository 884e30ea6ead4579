"""Clients over a rate: read more slowly, in turn, and never dropped."""

from __future__ import annotations

import asyncio
import math
import socket

import pytest

from flockmq.bounds import THROTTLE_TICK_S
from flockmq.listening_sockets import bound
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.connection import Connection
from flockmq.transport.listener import Listener
from flockmq.transport.token_bucket import Rates
from unit.broker.protocol.harness import publish
from unit.broker.transport.harness import Served

PACKET = publish(4, "a", "x" * 94)
"""100 bytes."""


class Paced:
    """A reactor whose clock is turned by hand, and clients that always have more to say."""

    def __init__(self, served: Served, listener: OpenListener, clients: int) -> None:
        self.served = served
        self.now_s = 0.0
        self.clients: list[tuple[Connection, socket.socket]] = []
        for number in range(clients):
            connection, client = served.opened(listener)
            assert connection.meter is not None
            client.sendall(encode.connect(Connect(4, b"c%d" % number)))
            self.clients.append((connection, client))
        self.turns = [0] * clients
        self.turn()

    def turn(self) -> None:
        """What the reactor does in one turn and one tick, at this clock's time."""
        reactor = self.served.reactor
        self.served.router.host.now_s = self.now_s
        reactor.table.rate_limit.tick(self.now_s)
        reactor._until_s = math.inf
        reactor.settle()
        reactor._serve(reactor.epoll.poll(0, 512))
        reactor.settle()

    def run(self, seconds: float, packets: int) -> int:
        """Each client says `packets` whenever it was read; the messages that came through."""
        counters = self.served.router.counters
        before = counters.messages_received
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            for number, (connection, client) in enumerate(self.clients):
                if connection.paused == 0:
                    client.sendall(PACKET * packets)
                    self.turns[number] += 1
            self.turn()
            self.now_s += THROTTLE_TICK_S
        return counters.messages_received - before


@pytest.mark.parametrize("packets", [3, 50])
def test_a_client_over_its_rate_gets_the_rate_and_loses_nothing(packets: int) -> None:
    with Served() as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits, client_rates=Rates(messages_rate=100)))
        paced = Paced(served, listener, 1)
        paced.run(5.0, packets)
        assert abs(paced.run(20.0, packets) - 2000) <= 2 * packets + 1
        (connection, _) = paced.clients[0]
        assert served.router.counters.throttled > 0
        assert connection.state != 3


def test_bytes_are_counted_as_they_are_read() -> None:
    with Served() as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits, client_rates=Rates(bytes_rate=10_000)))
        paced = Paced(served, listener, 1)
        paced.run(5.0, 10)
        assert abs(paced.run(20.0, 10) - 2000) <= 20


def test_clients_of_a_listener_share_its_rate_fairly() -> None:
    with Served() as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits, rates=Rates(messages_rate=1000)))
        paced = Paced(served, listener, 50)
        paced.run(5.0, 4)
        paced.turns = [0] * 50
        assert abs(paced.run(20.0, 4) - 20_000) <= 400
        assert max(paced.turns) <= 1.1 * min(paced.turns)


def test_the_nodes_rate_is_over_all_listeners() -> None:
    with Served() as served:
        served.reactor.limit(Rates(messages_rate=500), 0.0)
        one = served.reactor.open(Listener("tcp:a", served.limits))
        paced = Paced(served, one, 5)
        two = Paced(served, served.reactor.open(Listener("tcp:b", served.limits, rates=Rates(messages_rate=10_000))), 5)
        paced.clients += two.clients
        paced.turns += two.turns
        paced.run(5.0, 4)
        assert abs(paced.run(20.0, 4) - 10_000) <= 200


def test_nobody_is_counted_where_no_rate_is_set() -> None:
    with Served() as served:
        connection, _ = served.opened()
        assert connection.meter is None


def test_who_is_closed_while_it_waits_is_forgotten() -> None:
    with Served() as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits, client_rates=Rates(messages_rate=1)))
        paced = Paced(served, listener, 1)
        connection, client = paced.clients[0]
        client.sendall(PACKET * 100)
        paced.turn()
        assert connection.paused == 1
        assert served.reactor.table.rate_limit.is_busy()
        connection.close(0x8B)
        served.reactor.end_turn()
        client.close()
        served.reactor.table.close(connection)
        assert not served.reactor.table.rate_limit.is_busy()


def test_a_held_client_is_not_overdue() -> None:
    with Served() as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits, client_rates=Rates(messages_rate=1)))
        paced = Paced(served, listener, 1)
        connection, client = paced.clients[0]
        connection.keepalive_s = 10.0
        client.sendall(PACKET * 100)
        paced.turn()
        assert not connection.overdue(1000.0)


async def test_in_a_running_loop_a_held_client_goes_on_by_itself() -> None:
    with Served() as served:
        served.reactor.start(asyncio.get_running_loop())
        listener = served.reactor.open(
            Listener("tcp:a", served.limits, client_rates=Rates(messages_rate=1000, messages_burst=1))
        )
        connection, client = served.opened(listener)
        client.setblocking(False)
        client.sendall(encode.connect(Connect(4, b"c")) + PACKET * 30)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(10):
            assert await loop.sock_recv(client, 100) == encode.connack(4, 0)
            assert connection.paused == 1
            client.sendall(encode.PINGREQ)
            assert await loop.sock_recv(client, 100) == encode.PINGRESP
        assert not served.reactor.table.rate_limit.is_busy()


def test_another_rate_of_a_listener_holds_at_once_for_those_who_wait_too() -> None:
    with Served() as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits, rates=Rates(messages_rate=10)))
        paced = Paced(served, listener, 5)
        paced.run(20.0, 4)
        assert served.reactor.table.rate_limit.is_busy()
        listener.settings.rates = Rates(messages_rate=1000)
        served.reactor.configure(listener)
        paced.run(5.0, 4)
        assert abs(paced.run(20.0, 4) - 20_000) <= 400
        listener.settings.rates = Rates()
        served.reactor.configure(listener)
        paced.run(1.0, 4)
        assert not served.reactor.table.rate_limit.is_busy()


def test_a_first_rate_holds_for_those_who_come_from_then_on() -> None:
    with Served() as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits))
        served.reactor.listen(listener, bound("127.0.0.1", 0, "here"))
        before, _ = served.opened(listener)
        served.reactor.limit(Rates(messages_rate=500), 0.0)
        listener.settings.rates = Rates(messages_rate=1000)
        served.reactor.configure(listener)
        assert before.meter is None
        paced = Paced(served, listener, 5)
        meter = paced.clients[0][0].meter
        assert meter is not None
        assert meter.shared == [listener.meter, served.reactor._all]
        paced.run(5.0, 4)
        assert abs(paced.run(20.0, 4) - 10_000) <= 200
        served.reactor.limit(Rates(messages_rate=5000), 0.0)
        served.reactor.limit(Rates(messages_rate=2000), 0.0)
        assert len(listener.meters) == 2
        paced.run(5.0, 4)
        assert abs(paced.run(20.0, 4) - 20_000) <= 400, "the listener's rate is the lower one now"
