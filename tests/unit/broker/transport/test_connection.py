"""Writing to a socket that takes what it likes: nothing is lost, reordered, or kept without bound."""

from __future__ import annotations

import socket

import pytest

from flockmq.bounds import READ_MAX_BYTES, SINK_CONGESTED_BYTES, SINK_LIMIT_BYTES
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect, ConnectWill, SubscribeEntry
from flockmq.protocol.client import ALLOWED, ASKED
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING
from flockmq.transport.listener import Listener
from unit.broker.protocol.harness import publish
from unit.broker.transport.harness import Served
from unit.broker.transport.test_websocket import BINARY, CLOSE, frame, request


def drain(served: Served, client: socket.socket, wanted_bytes: int) -> bytes:
    got = b""
    while len(got) < wanted_bytes:
        served.reactor.turn()
        got += client.recv(1 << 20)
    return got


@pytest.mark.parametrize("chunk_bytes", [1, 700, 100_000, 3_000_000])
def test_what_the_socket_does_not_take_follows_in_order(chunk_bytes: int) -> None:
    with Served() as served:
        connection, client = served.client("c")
        chunks = [bytes((number % 251,)) * chunk_bytes for number in range(4_000_000 // chunk_bytes % 5000 + 2)]
        for chunk in chunks:
            connection.put(chunk)
        served.reactor.turn()
        served.reactor.end_turn()
        wanted = b"".join(chunks)
        assert drain(served, client, len(wanted)) == wanted
        served.reactor.turn()
        assert (connection.out, connection.out_bytes, connection.blocked) == ([], 0, False)
        assert connection.flow == FLOWING
        assert connection.paused == 0


def test_a_subscriber_that_reads_nothing_is_bounded_at_qos_0() -> None:
    with Served() as served:
        connection, stalled = served.client("s")
        stalled.sendall(encode.subscribe(4, 1, [SubscribeEntry(b"a", 0)]))
        served.reactor.turn()
        publishing, publisher = served.client("p")
        run = publish(4, "a", "x" * 1000) * 50
        paused = 0
        for _ in range(1000):
            if publishing.paused:
                paused += 1
                assert connection.flow == CONGESTED
                connection.check_progress(served.router.host.now_s + 1.0)
                assert connection.flow == LAGGING
                served.reactor.end_turn()
            publisher.sendall(run)
            served.reactor.turn()
        assert paused == 1
        assert connection.out_bytes <= SINK_CONGESTED_BYTES + 2 * READ_MAX_BYTES
        assert served.router.counters.dropped_slow_reader > 40_000


def test_a_client_that_asks_and_never_reads_the_answers_is_not_read_any_more() -> None:
    with Served() as served:
        connection, client = served.client("c")
        client.setblocking(False)
        asked = 0
        while True:
            try:
                asked += client.send(encode.PINGREQ * 30_000)
            except BlockingIOError:
                if connection.paused:
                    break
            served.reactor.turn()
        assert SINK_CONGESTED_BYTES < connection.out_bytes < SINK_LIMIT_BYTES
        client.setblocking(True)
        answered = 0
        while connection.paused:
            answered += len(client.recv(1 << 20))
            served.reactor.turn()
        assert answered > 0
        assert connection.flow == FLOWING


def test_a_channel_that_ends_with_a_full_socket_is_closed_at_once() -> None:
    with Served() as served:
        connection, _ = served.client("c", 5)
        connection.put(b"\0" * 4_000_000)
        served.reactor.end_turn()
        assert connection.blocked
        connection.close(0x97)
        served.reactor.end_turn()
        assert connection.fd == -1


def test_a_write_to_a_client_that_is_gone_ends_the_connection() -> None:
    with Served() as served:
        connection, client = served.client("c")
        client.close()
        connection.put(b"\0")
        served.reactor.end_turn()
        assert connection.fd == -1
        assert served.port.ended == [connection]


@pytest.mark.parametrize("over", ["unix", "websocket"])
def test_its_disconnect_counts_though_its_end_was_seen_first(over: str) -> None:
    with Served() as served:
        web = served.reactor.open(Listener("ws:a", served.limits, path="/mqtt")) if over == "websocket" else None
        connection, client = served.opened(web)
        if web is not None:
            client.sendall(request())
            served.reactor.turn()
            client.recv(1000)

        def said(packets: bytes) -> bytes:
            return packets if web is None else frame(BINARY, packets)

        client.sendall(said(encode.connect(Connect(4, b"p", will=ConnectWill(b"dead", b"x", 0, False, None)))))
        served.reactor.turn()
        client.recv(100)
        connection.set_must_authorize(True)
        served.port.verdicts = {b"ask": ASKED}
        subscribe = encode.subscribe(4, 1, [SubscribeEntry(b"ask", 0)])
        last = said(subscribe + publish(4, "t", "x") + encode.disconnect(4))
        client.sendall(last if web is None else last + frame(CLOSE, b"\x03\xe8"))
        if web is None:
            client.close()
        for _ in range(3):
            served.reactor.turn()
        assert not connection.has_ended()
        served.port.asked[0][2](ALLOWED)
        served.reactor.end_turn()
        served.reactor.turn()
        assert connection.fd < 0
        assert connection.clean_end
        assert served.port.published == [], "no will"
        assert served.router.counters.messages_received == 1


def test_who_left_is_known_before_all_it_sent_is_read() -> None:
    with Served() as served:
        connection, client = served.client("c")
        assert not connection.has_left()
        connection.pause()
        served.reactor.table.watch(connection)
        client.sendall(encode.PINGREQ)
        assert not connection.has_left()
        client.shutdown(socket.SHUT_WR)
        assert connection.has_left()
        served.reactor.turn()
        assert not connection.has_ended(), "what it sent comes first"
