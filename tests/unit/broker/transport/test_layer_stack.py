"""Connections through layers, over real sockets: what the protocol says arrives, and nobody costs more than stated."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import math
import resource
import socket
import ssl
import struct
import time
import tracemalloc

import pytest

from flockmq.bounds import (
    FILTER_SLICE_MAX_BYTES,
    TLS_GREETINGS_PER_TURN_MAX,
    TLS_HANDSHAKE_BYTES,
    TLS_MESSAGE_BYTES,
    TLS_SESSION_BYTES,
    UNAUTHENTICATED_READ_BYTES,
)
from flockmq.listening_sockets import bound
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED, CONNECTED, OPENED
from flockmq.session.limits import Limits
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.connection import Connection
from flockmq.transport.listener import AddressFilter, Listener, Proxy
from flockmq.transport.tls_certificates import TlsCertificates
from flockmq.transport.token_bucket import Rates
from unit.broker.protocol.harness import publish
from unit.broker.transport.harness import PATIENCE_S, Served
from unit.broker.transport.pki import Client, Pki
from unit.broker.transport.test_proxy_protocol import V4, tls, version2
from unit.broker.transport.test_websocket import BINARY, CLOSE, PING, frame, request

CONNECT = encode.connect(Connect(4, b"c"))
CONNACK = encode.connack(4, 0)
BALANCERS = Proxy(AddressFilter([ipaddress.ip_network("127.0.0.0/8")]))
HEADER = b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 1883\r\n"


def listening(served: Served, pki: Pki | None = None, **settings: object) -> OpenListener:
    if pki is not None:
        settings["certificates"] = TlsCertificates("listeners.ssl.a", pki.settings())
    return served.reactor.open(Listener("ssl:a", served.limits, **settings))  # type: ignore[arg-type]


def layered(served: Served, listener: OpenListener) -> tuple[Connection, socket.socket]:
    connection, client = served.opened(listener)
    assert connection.layers is not None
    return connection, client


class TlsClient:
    """A client's socket with TLS on it, driven by hand."""

    def __init__(self, served: Served, end: socket.socket, context: ssl.SSLContext) -> None:
        self.served = served
        self.end = end
        self.tls = Client(context)

    def shake(self) -> None:
        for _ in range(4):
            if said := self.tls.say():
                self.end.sendall(said)
            self.served.reactor.turn()
            self.served.reactor.end_turn()
            self.end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                self.tls.hear(self.end.recv(100_000))

    def ask(self, data: bytes) -> bytes:
        self.end.sendall(self.tls.say(data))
        self.served.reactor.turn()
        return self.tls.hear(self.end.recv(100_000))


# --- WebSocket ------------------------------------------------------------------------------------------------------


def test_a_client_connects_over_websocket_and_its_pings_are_answered() -> None:
    with Served() as served:
        connection, client = layered(served, listening(served, path="/mqtt"))
        answer = served.ask(client, request() + frame(BINARY, CONNECT))
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert answer.endswith(frame(BINARY, CONNACK, mask=None))
        assert connection.state == CONNECTED
        assert served.ask(client, frame(PING, b"?")) == frame(10, b"?", mask=None)


def test_pings_are_paid_for_where_a_rate_is_set() -> None:
    with Served() as served:
        listener = listening(served, path="/mqtt", client_rates=Rates(bytes_rate=10_000, bytes_burst=1_000))
        connection, client = layered(served, listener)
        served.ask(client, request() + frame(BINARY, CONNECT))
        assert connection.meter is not None
        assert connection.meter.held is None
        served.ask(client, frame(PING, b"x" * 125) * 20)
        assert connection.meter.held is connection


def test_a_bad_request_is_answered_and_closed() -> None:
    with Served() as served:
        connection, client = layered(served, listening(served, path="/mqtt"))
        assert served.ask(client, request("GET / HTTP/1.1")).startswith(b"HTTP/1.1 404 ")
        assert client.recv(1) == b""
        assert connection.state == CLOSED
        assert len(served.port.violations) == 1


def test_a_broken_frame_ends_the_client_with_its_code_behind_the_last_packet() -> None:
    with Served() as served:
        _, client = layered(served, listening(served, path="/mqtt"))
        served.ask(client, request() + frame(BINARY, encode.connect(Connect(5, b"c"))))
        said = served.ask(client, frame(1, b"text"))
        disconnect = encode.disconnect(5, Reason.PROTOCOL_ERROR)
        assert said == frame(BINARY, disconnect, mask=None) + frame(CLOSE, struct.pack(">H", 1003), mask=None)


def test_a_close_behind_disconnect_is_a_clean_end() -> None:
    with Served() as served:
        connection, client = layered(served, listening(served, path="/mqtt"))
        served.ask(client, request() + frame(BINARY, CONNECT))
        served.ask(client, frame(BINARY, b"\xe0\x00") + frame(CLOSE, b"\x03\xe8"))
        assert connection.clean_end
        assert connection.fd == -1


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_a_client_connects_over_tls_and_its_end_is_said(pki: Pki) -> None:
    with Served() as served:
        connection, end = layered(served, listening(served, pki))
        client = TlsClient(served, end, pki.trusting())
        client.shake()
        assert client.ask(CONNECT) == CONNACK
        connection.close(Reason.SERVER_SHUTTING_DOWN)
        served.reactor.end_turn()
        client.tls.hear(end.recv(100_000))
        assert client.tls.tls.read(1) == b""  # close_notify
        assert end.recv(1) == b""
        assert not served.reactor.table.unauthenticated.bytes


def test_a_client_connects_over_websocket_over_tls_behind_a_balancer(pki: Pki) -> None:
    with Served() as served:
        listener = listening(served, pki, path="/mqtt", proxy=BALANCERS)
        connection, end = layered(served, listener)
        end.sendall(HEADER)
        client = TlsClient(served, end, pki.trusting())
        client.shake()
        assert client.ask(request() + frame(BINARY, CONNECT)).endswith(frame(BINARY, CONNACK, mask=None))
        peer = connection.peer()
        assert (peer.host, peer.port, peer.listener, peer.zone) == ("192.0.2.1", 4711, "ssl:a", "default")


def test_what_a_slow_reader_leaves_waits_in_plain_and_arrives_in_order(pki: Pki) -> None:
    with Served(Limits(max_packet_size=16_000_000)) as served:
        connection, end = layered(served, listening(served, pki))
        client = TlsClient(served, end, pki.trusting())
        client.shake()
        client.ask(CONNECT)
        large = [publish(4, "a", letter * 3_000_000) for letter in "xyz"]
        for packet in large:
            connection.put(packet)
        got = b""
        wanted = b"".join(large)
        served.reactor.end_turn()
        while len(got) < len(wanted):
            assert connection.layers is not None
            assert len(connection.layers.wrapped) <= FILTER_SLICE_MAX_BYTES * 1.01
            try:
                got += client.tls.hear(end.recv(200_000))
            except BlockingIOError:
                served.reactor.turn()
        assert got == wanted
        assert connection.out_bytes == 0


def test_handshakes_are_answered_a_few_a_turn(pki: Pki) -> None:
    with Served() as served:
        listener = listening(served, pki)
        clients = [layered(served, listener) for _ in range(TLS_GREETINGS_PER_TURN_MAX + 3)]
        for _, end in clients:
            end.sendall(Client(pki.trusting()).say())
        served.reactor._until_s = math.inf
        served.reactor._serve(served.reactor.epoll.poll(0, 512))
        served.reactor.end_turn()
        assert len(served.reactor.table.pending_handshakes) == 3
        sent = len(clients) * (UNAUTHENTICATED_READ_BYTES + 1000)
        assert 0 <= served.reactor.table.unauthenticated.bytes - TLS_GREETINGS_PER_TURN_MAX * TLS_HANDSHAKE_BYTES < sent
        served.reactor.end_turn()
        assert len(served.reactor.table.pending_handshakes) == 0


def test_one_handshake_too_many_makes_room_by_closing_the_oldest(pki: Pki) -> None:
    hello = Client(pki.trusting()).say()
    with Served() as served:
        served.reactor.share_resources(4 * TLS_HANDSHAKE_BYTES, 1000, 1000)
        listener = listening(served, pki)
        clients = [layered(served, listener) for _ in range(5)]
        for _, end in clients:
            end.sendall(hello)
            served.reactor.turn()
        assert [connection.fd == -1 for connection, _ in clients] == [True, True, False, False, False]


def test_a_client_that_stops_amid_its_answer_counts_for_the_longest_message_until_it_continues(pki: Pki) -> None:
    with Served() as served:
        connection, end = layered(served, listening(served, pki))
        client = Client(pki.trusting())
        end.sendall(client.say())
        served.reactor.turn()
        client.hear(end.recv(10_000))
        answer = client.say()
        begun = connection.cost
        end.sendall(answer[:-1])
        served.reactor.turn()
        assert 0 <= connection.cost - begun - TLS_MESSAGE_BYTES < 1000
        end.sendall(answer[-1:])
        served.reactor.turn()
        assert 0 <= connection.cost - TLS_SESSION_BYTES < 4000


def test_who_breaks_a_handshake_can_read_why_but_costs_no_memory_meanwhile(pki: Pki) -> None:
    with Served() as served:
        connection, end = layered(served, listening(served, pki))
        client = Client(pki.trusting())
        end.sendall(client.say())
        served.reactor.turn()
        end.recv(10_000)
        end.sendall(b"\x99\x03\x03\x00\x01x")
        served.reactor.turn()
        assert end.recv(100) != b""  # an alert
        assert end.recv(100) == b""
        assert connection.fd >= 0
        assert connection.layers is not None
        assert connection.layers.tls is None
        assert connection.cost == 0


def test_who_stays_silent_or_dribbles_costs_little_and_is_closed_in_time(pki: Pki) -> None:
    with Served(Limits(idle_timeout=15.0)) as served:
        served.router.host.now_s = time.monotonic()
        listeners = [listening(served, pki), listening(served, path="/mqtt"), listening(served, proxy=BALANCERS)]
        starts = [b"\x16\x03\x01\x02\x00\x01", b"GET /mqtt HTTP/1.1\r\n", b"PROXY TCP4 "]
        opened = [layered(served, listener) for listener in listeners]
        for second in range(1, 15):
            for (_, end), start in zip(opened, starts, strict=True):
                if second == 1:
                    end.sendall(start)
                elif second < 3:
                    end.sendall(b"x")
            served.reactor.turn()
        start_s = served.router.host.now_s
        overdue = [connection.overdue(start_s + 3.5) for connection, _ in opened]
        assert overdue == [False, False, True]
        assert all(connection.overdue(start_s + 15.5) for connection, _ in opened)
        assert [connection.state for connection, _ in opened] == [OPENED] * 3
        assert served.reactor.table.unauthenticated.bytes < TLS_HANDSHAKE_BYTES


# --- PROXY ----------------------------------------------------------------------------------------------------------


def test_behind_a_balancer_the_clients_own_address_is_judged() -> None:
    with Served() as served:
        access = AddressFilter(deny=[ipaddress.ip_network("192.0.2.0/24")])
        listener = listening(served, proxy=BALANCERS, access=access)
        connection, client = layered(served, listener)
        client.sendall(HEADER + CONNECT)
        served.reactor.turn()
        assert client.recv(1) == b""
        assert connection.fd == -1 or connection in served.reactor.table.half_closed
        assert served.port.violations == []
        _, client = layered(served, listener)
        assert served.ask(client, HEADER.replace(b"192.0.2.1", b"198.51.100.1") + CONNECT) == CONNACK


@pytest.mark.parametrize(
    ("peers", "denied", "answer"),
    [
        ("127.0.0.1/32", "192.0.2.0/24", CONNACK),
        ("10.0.0.0/8", "192.0.2.0/24", b""),  # a stranger who says that somebody else connects through it
        ("127.0.0.0/8", "127.0.0.1/32", b""),
        ("127.0.0.0/8", "198.51.100.0/24", b""),
    ],
)
def test_a_header_is_believed_from_named_peers_only_and_both_addresses_are_judged(
    peers: str, denied: str, answer: bytes
) -> None:
    proxy = Proxy(AddressFilter([ipaddress.ip_network(peers)]))
    access = AddressFilter(deny=[ipaddress.ip_network(denied)])
    with Served() as served, bound("127.0.0.1", 0, "here") as port:
        served.reactor.listen(listening(served, proxy=proxy, access=access), port)
        with socket.create_connection(port.getsockname(), PATIENCE_S) as client:
            with contextlib.suppress(OSError):  # closed before it was written
                client.sendall(HEADER.replace(b"192.0.2.1", b"198.51.100.1") + CONNECT)
            for _ in range(3):
                served.reactor.turn()
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(100) == answer
        served.reactor.stop_accepting()


@pytest.mark.parametrize("allowed", ["127.0.0.1/32", "192.0.2.0/24", "127.0.0.1/32 192.0.2.0/24"])
def test_where_some_are_allowed_both_addresses_must_be(allowed: str) -> None:
    with Served() as served:
        port = bound("127.0.0.1", 0, "here")
        access = AddressFilter([ipaddress.ip_network(network) for network in allowed.split()])
        served.reactor.listen(listening(served, proxy=BALANCERS, access=access), port)
        with socket.create_connection(port.getsockname(), PATIENCE_S) as client:
            with contextlib.suppress(OSError):  # closed before it was written
                client.sendall(HEADER + CONNECT)
            for _ in range(3):
                served.reactor.turn()
            said = b""
            with contextlib.suppress(ConnectionResetError):
                said = client.recv(100)
        assert said == (CONNACK if " " in allowed else b"")


@pytest.mark.parametrize("names_count", [True, False])
def test_a_common_name_in_a_header_counts_only_where_that_was_asked_for(names_count: bool) -> None:
    with Served() as served:
        proxy = Proxy(BALANCERS.peers, names_count=names_count)
        connection, client = layered(served, listening(served, proxy=proxy))
        assert served.ask(client, version2(V4 + tls(0x07, 0, b"admin")) + CONNECT) == CONNACK
        certificate = connection.peer().certificate
        assert (certificate is not None and certificate.common_name == "admin") is names_count


def test_a_balancer_that_speaks_for_itself_is_judged_by_its_own_address() -> None:
    with Served() as served:
        for denied, answer in (("127.0.0.0/8", b""), ("192.0.2.0/24", CONNACK)):
            access = AddressFilter(deny=[ipaddress.ip_network(denied)])
            with bound("127.0.0.1", 0, "here") as port:
                served.reactor.listen(listening(served, proxy=BALANCERS, access=access), port)
                with socket.create_connection(port.getsockname(), PATIENCE_S) as client:
                    served.reactor.turn()
                    assert served.ask(client, b"PROXY UNKNOWN\r\n" + CONNECT) == answer
                served.reactor.stop_accepting()


def test_without_a_header_nobody_comes_in() -> None:
    with Served() as served:
        connection, client = layered(served, listening(served, proxy=BALANCERS))
        client.sendall(CONNECT)
        served.reactor.turn()
        assert client.recv(1) == b""
        assert connection.state == CLOSED
        assert "no PROXY header" in str(served.port.violations[0])


def test_after_the_header_the_client_has_the_zones_time() -> None:
    with Served(Limits(idle_timeout=15.0)) as served:
        served.router.host.now_s = time.monotonic()
        connection, client = layered(served, listening(served, proxy=BALANCERS))
        client.sendall(HEADER)
        served.reactor.turn()
        assert not connection.overdue(served.router.host.now_s + 10.0)
        assert connection.overdue(served.router.host.now_s + 16.0)


# --- half open ------------------------------------------------------------------------------------------------------

HALF_OPEN = 1_000
HALF_OPEN_MAX_BYTES = 2048
"""What one half-open connection may cost, what it sent included."""


@pytest.mark.parametrize(
    "start", [b"", b"\x16\x03\x01\x02\x00" + bytes(300), b"GET /mqtt HTTP/1.1\r\nHost: " + b"x" * 300]
)
def test_half_open_connections_cost_little_each_and_end_in_time(pki: Pki, start: bytes) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Served(Limits(idle_timeout=15.0)) as served:
        served.router.host.now_s = time.monotonic()
        web = start.startswith(b"GET")
        listener = listening(served, path="/mqtt") if web else listening(served, pki)
        ends = [socket.socketpair() for _ in range(HALF_OPEN)]
        served.reactor.table.connections.extend([None] * (ends[-1][1].fileno() + 1))  # the table is there either way
        for ours, _ in ends:
            ours.setblocking(False)
        gc.collect()
        tracemalloc.start()
        for ours, theirs in ends:
            served.reactor.table.adopt(ours.detach(), listener)
            if start:
                theirs.send(start)
        while served.reactor.epoll.poll(0, 1):
            served.reactor.turn()
        cost, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert cost < HALF_OPEN * HALF_OPEN_MAX_BYTES
        assert served.router.counters.connections == HALF_OPEN
        assert served.reactor.table.unauthenticated.bytes < HALF_OPEN * HALF_OPEN_MAX_BYTES
        for connection in served.reactor.table.connections:
            if connection is not None:
                assert connection.overdue(served.router.host.now_s + 15.5)
                connection.expire()
        served.reactor.end_turn()
        for _, theirs in ends:
            theirs.close()
        served.reactor.turn()
        for connection in list(served.reactor.table.half_closed):
            served.reactor.table.close(connection)
        assert served.router.counters.connections == 0
