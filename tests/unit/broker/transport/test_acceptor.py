"""Who comes in: not too many, not too fast, and nobody at another's cost."""

from __future__ import annotations

import os
import resource
import select
import socket
from contextlib import ExitStack

import pytest

from flockmq.bounds import CONNECTION_BYTES, STRANGERS_WAITING_MAX, TLS_HANDSHAKE_BYTES, TLS_SESSION_BYTES
from flockmq.clock import Clock
from flockmq.listening_sockets import bound
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.transport.listener import AddressFilter, Listener, Proxy
from flockmq.transport.tls_certificates import TlsCertificates
from flockmq.transport.token_bucket import Rates
from unit.broker.transport.harness import PATIENCE_S, Served
from unit.broker.transport.pki import Pki

CONNECT = encode.connect(Connect(4, b"c"))
CONNACK = encode.connack(4, 0)
STILL = Clock(lambda: 1000.0, lambda: 1000.0)
"""So that no tokens come while the machine is busy."""


def test_listeners_hear_nothing_while_descriptors_are_short_and_again_at_the_next_tick(
    caplog: pytest.LogCaptureFixture,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Served() as served:
        listener = bound("127.0.0.1", 0, "here")
        address = listener.getsockname()
        served.reactor.listen(served.listener, listener)
        served.router.host.now_s = 100.0
        with socket.create_connection(address, PATIENCE_S) as client:
            spare = os.dup(0)
            os.close(spare)
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
            try:
                served.reactor.turn()
                refused = served.router.counters.connects_refused
                served.reactor.turn()
                assert served.router.counters.connects_refused == refused == 1
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert "can't accept: Too many open files" in caplog.text
            served.reactor.tick()
            client.sendall(encode.connect(Connect(4, b"c")))
            served.reactor.turn()
            assert client.recv(100) == encode.connack(4, 0)


def test_while_many_wait_to_be_read_others_come_in_one_at_a_time() -> None:
    with Served() as served:
        listener = bound("127.0.0.1", 0, "here")
        address = listener.getsockname()
        served.reactor.listen(served.listener, listener)
        counters = served.router.counters
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(socket.create_connection(address, PATIENCE_S))
            served.listener.strangers_waiting = STRANGERS_WAITING_MAX
            for number in (1, 2):
                served.reactor._serve(served.reactor.epoll.poll(0, 512))
                assert counters.connections == number
            served.listener.strangers_waiting = 0
            for _ in range(3):
                stack.enter_context(socket.create_connection(address, PATIENCE_S))
            served.reactor._serve(served.reactor.epoll.poll(0, 512))
            assert counters.connections == 6


def test_more_than_max_connections_are_turned_away() -> None:
    with Served() as served:
        served.reactor.share_resources(TLS_HANDSHAKE_BYTES, 1, 1000)
        listener = bound("127.0.0.1", 0, "here")
        address = listener.getsockname()
        served.reactor.listen(served.listener, listener)
        with socket.create_connection(address, PATIENCE_S) as one, socket.create_connection(address, PATIENCE_S) as two:
            served.reactor.turn()
            assert two.recv(1) == b""
            one.sendall(encode.connect(Connect(4, b"c")))
            served.reactor.turn()
            assert one.recv(100) == encode.connack(4, 0)


def test_a_connection_by_tls_needs_more_room_in_the_memory(pki: Pki) -> None:
    room = 2 * CONNECTION_BYTES + TLS_SESSION_BYTES
    with Served() as served:
        served.reactor.share_resources(TLS_HANDSHAKE_BYTES, 1000, 1000, room)
        certificates = TlsCertificates("listeners.ssl.a", pki.settings())
        plain, by_tls = bound("127.0.0.1", 0, "plain"), bound("127.0.0.1", 0, "tls")
        at_plain, at_tls = plain.getsockname(), by_tls.getsockname()
        served.reactor.listen(served.listener, plain)
        served.reactor.listen(served.reactor.open(Listener("ssl:a", served.limits, certificates=certificates)), by_tls)
        accepted = []
        clients = []
        for address in (at_tls, at_tls, at_plain, at_plain):
            clients.append(socket.create_connection(address, PATIENCE_S))
            served.reactor.turn()
            accepted.append(served.router.counters.connections)
        assert accepted == [1, 1, 2, 2]
        for client in clients:
            client.close()


def test_who_comes_too_fast_waits_in_the_backlog() -> None:
    with Served(clock=STILL) as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits, max_conn_rate=2.0))
        listening = bound("127.0.0.1", 0, "here")
        address = listening.getsockname()
        served.reactor.listen(listener, listening)
        clients = [socket.create_connection(address) for _ in range(5)]
        served.reactor.turn()
        assert listener.connections == 2
        assert listener.is_suspended
        listener.conn_rate.debit(-2.0, served.router.host.now_s)  # type: ignore[union-attr]
        served.reactor.tick()
        served.reactor.turn()
        assert listener.connections == 4
        for client in clients:
            client.close()


def test_one_who_comes_alone_costs_no_more_than_one_of_a_crowd() -> None:
    with Served(clock=STILL) as served:
        listener = served.reactor.open(Listener("tcp:a", served.limits, max_conn_rate=3.0))
        listening = bound("127.0.0.1", 0, "here")
        served.reactor.listen(listener, listening)
        assert listener.conn_rate is not None
        clients = []
        for _ in range(3):
            clients.append(socket.create_connection(listening.getsockname()))
            select.select([listening], [], [])
            served.reactor.table.acceptor.accept(listener)
        assert listener.connections == 3
        for client in clients:
            client.close()


def test_a_crowd_at_one_listener_keeps_nobody_from_another() -> None:
    with Served(clock=STILL) as served:
        reactor = served.reactor
        reactor.limit(Rates(), 2.0)
        listeners = [reactor.open(Listener(name, served.limits)) for name in ("tcp:a", "tcp:b")]
        ports = [bound("127.0.0.1", 0, "here") for _ in listeners]
        clients = []
        for listener, port in zip(listeners, ports, strict=True):
            reactor.listen(listener, port)
            clients += [socket.create_connection(port.getsockname()) for _ in range(10)]
        for _ in range(4):
            assert reactor.table.acceptor.conn_rate is not None
            reactor.table.acceptor.conn_rate.debit(
                reactor.table.acceptor.conn_rate.tokens(served.router.host.now_s) - 2.0, served.router.host.now_s
            )
            reactor.tick()
            reactor.turn()
        assert [listener.connections for listener in listeners] == [4, 4]
        for client in clients:
            client.close()


def test_an_address_has_so_many_connections_and_when_one_ends_another_comes() -> None:
    with Served() as served:
        port = bound("127.0.0.1", 0, "here")
        served.reactor.share_resources(TLS_HANDSHAKE_BYTES, 1000, 2)
        served.reactor.listen(served.listener, port)
        address = port.getsockname()
        clients = [socket.create_connection(address, PATIENCE_S) for _ in range(3)]
        elsewhere = socket.create_connection(address, PATIENCE_S, ("127.0.0.2", 0))
        served.reactor.turn()
        assert clients[2].recv(1) == b""
        assert served.ask(elsewhere, CONNECT) == CONNACK
        assert served.reactor.table.acceptor.networks == {"127.0.0.1": 2, "127.0.0.2": 1}
        clients[0].close()
        served.reactor.turn()
        clients.append(socket.create_connection(address, PATIENCE_S))
        served.reactor.turn()
        assert served.ask(clients[3], CONNECT) == CONNACK
        for client in (*clients, elsewhere):
            client.close()
        served.reactor.turn()
        assert served.reactor.table.acceptor.networks == {}


def test_behind_a_balancer_those_that_it_names_are_counted() -> None:
    with Served() as served:
        port = bound("127.0.0.1", 0, "here")
        served.reactor.share_resources(TLS_HANDSHAKE_BYTES, 1000, 1)
        listener = served.reactor.open(Listener("tcp:a", served.limits, proxy=Proxy(AddressFilter())))
        served.reactor.listen(listener, port)
        answers = []
        clients = []
        for host in (b"192.0.2.1", b"192.0.2.2", b"192.0.2.1"):
            client = socket.create_connection(port.getsockname(), PATIENCE_S)
            clients.append(client)
            served.reactor.turn()
            answers.append(served.ask(client, b"PROXY TCP4 " + host + b" 10.0.0.1 1 2\r\n" + CONNECT))
        assert answers == [CONNACK, CONNACK, b""]
        for client in clients:
            client.close()
        served.reactor.turn()
        assert (served.reactor.table.acceptor.networks, served.reactor.unauthenticated_bytes()) == ({}, 0)
