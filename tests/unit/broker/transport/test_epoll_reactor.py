"""Turns over real sockets: what one client does, or meets, is no other's business."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from flockmq.bounds import (
    READ_MAX_BYTES,
    READ_MIN_BYTES,
    READ_WORK_MAX_S,
    ROUND_WORK_MAX_S,
    STOOD_STILL_S,
    TURN_WORK_MAX_S,
    UNAUTHENTICATED_COUNTED_BYTES,
)
from flockmq.clock import Clock
from flockmq.mqtt import encode, frame
from flockmq.mqtt.message import Will
from flockmq.mqtt.packets import Connect, SubscribeEntry
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import OPENED, Channel
from flockmq.protocol.client import Principal
from flockmq.routing.sink import Sink
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.transport.connection import Connection
from flockmq.transport.epoll_reactor import next_read_bytes
from unit.broker.protocol.harness import Port, publish
from unit.broker.transport.harness import PATIENCE_S, Served

RESET = struct.pack("ii", 1, 0)


class Steps:
    """A clock: each look at it takes `step_s`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Our end, and the client's, which can be reset."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    ours.setblocking(False)
    return ours, client


def subscribe(filter: bytes, qos: int = 0) -> bytes:
    return encode.subscribe(4, 1, [SubscribeEntry(filter, qos)])


def test_a_message_goes_from_one_descriptor_to_another_in_one_turn() -> None:
    with Served() as served:
        _, subscriber = served.client("s")
        served.ask(subscriber, subscribe(b"a"))
        _, publisher = served.client("p")
        publisher.sendall(publish(4, "a", "x"))
        served.reactor.turn()
        assert subscriber.recv(100) == publish(4, "a", "x")
        assert served.router.turn == []


def test_after_a_node_stood_still_that_is_told_before_anything_is_read() -> None:
    with Served() as served:
        _, client = served.client("c")
        received = served.router.counters.packets_received
        told: list[int] = []
        served.reactor.on_stood_still = lambda: told.append(received[frame.PINGREQ])
        assert served.ask(client, encode.PINGREQ) == encode.PINGRESP
        assert told == []
        served.router.host.now_s -= STOOD_STILL_S + 0.1
        assert served.ask(client, encode.PINGREQ) == encode.PINGRESP
        assert told == [1]


def test_a_client_whose_packets_take_long_is_read_in_smaller_pieces() -> None:
    assert next_read_bytes(READ_MAX_BYTES, READ_WORK_MAX_S * 2) == READ_MAX_BYTES // 2
    assert next_read_bytes(READ_MIN_BYTES, READ_WORK_MAX_S * 2) == READ_MIN_BYTES
    assert next_read_bytes(READ_MIN_BYTES, READ_WORK_MAX_S / 2) == READ_MIN_BYTES
    assert next_read_bytes(READ_MIN_BYTES, READ_WORK_MAX_S / 8) == READ_MIN_BYTES * 2
    assert next_read_bytes(READ_MAX_BYTES, 0.0) == READ_MAX_BYTES


def test_what_a_large_read_takes_counts_also_where_the_client_had_sent_no_more() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        connection, client = served.client("c")
        connection.read_bytes = READ_MAX_BYTES
        for step_s, size in ((0.0, READ_MAX_BYTES), (READ_WORK_MAX_S * 2, READ_MAX_BYTES // 2)):
            clock.step_s = step_s
            client.sendall(publish(4, "a", "x" * 3 * READ_MIN_BYTES))
            served.reactor.turn()
            assert not connection.has_more
            assert connection.read_bytes == size


class Defective(Port):
    """Meets a defect with one client's subscriptions, and with the end of another."""

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None], user: bytes) -> None:
        if filters == [b"defect"]:
            raise RuntimeError("a defect")
        super().route(filters, with_retained, done)

    def gone(self, channel: Channel, session: LocalSession, will: Will | None) -> None:
        if channel.client_id() == b"cursed":
            raise RuntimeError("another defect")


@pytest.mark.parametrize("client_id", ["c", "cursed"])
def test_a_defect_ends_its_connection_and_no_other(client_id: str, caplog: pytest.LogCaptureFixture) -> None:
    with Served() as served:
        served.serve(Defective())
        _, other = served.client("other", 5)
        unlucky, client = served.client(client_id, 5)
        other.sendall(encode.PINGREQ)
        client.sendall(encode.subscribe(5, 1, [SubscribeEntry(b"defect", 0)]) + encode.PINGREQ)
        served.reactor.turn()
        assert other.recv(100) == encode.PINGRESP
        answer = client.recv(100)
        assert answer == (encode.disconnect(5, Reason.UNSPECIFIED_ERROR) if client_id == "c" else b"")
        assert unlucky.has_ended()
        assert "RuntimeError: a defect" in caplog.text
        assert served.ask(other, encode.PINGREQ) == encode.PINGRESP


def test_a_peer_whose_flush_fails_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sink):
        def flush(self) -> None:
            raise RuntimeError("no link")

    with Served() as served:
        _, client = served.client("c")
        Broken(served.router.turn, 4).put(b"x")
        assert served.ask(client, encode.PINGREQ) == encode.PINGRESP
        assert served.router.turn == []
        assert "RuntimeError: no link" in caplog.text


def test_a_turn_with_a_paused_publisher_reads_no_more_of_it() -> None:
    with Served(Limits(max_inflight=1, max_mqueue_len=10)) as served:
        _, subscriber = served.client("s")
        served.ask(subscriber, subscribe(b"a", 1))
        connection, publisher = served.client("p")
        for number in range(1, 8):
            publisher.sendall(publish(4, "a", "x", qos=1, packet_id=number))
            served.reactor.turn()
        assert connection.paused == 1
        publisher.sendall(encode.PINGREQ)
        served.reactor.turn()
        packet = subscriber.recv(100)
        served.ask(subscriber, b"\x40\x02" + packet[5:7])
        assert connection.paused == 0
        served.reactor.turn()
        assert publisher.recv(100).endswith(encode.PINGRESP)


async def test_keep_alive_is_checked_by_the_clock() -> None:
    with Served(Limits(idle_timeout=0.1)) as served:
        loop = asyncio.get_running_loop()
        served.reactor.start(loop)
        _, client = served.opened()
        client.setblocking(False)
        async with asyncio.timeout(PATIENCE_S):
            assert await loop.sock_recv(client, 1) == b""


def test_a_turn_that_takes_long_ends_and_the_next_goes_on_with_who_is_left() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        clients = [served.client(f"c{number}") for number in range(5)]
        counters = served.router.counters
        clock.step_s = TURN_WORK_MAX_S * 0.6
        much = publish(4, "a", "x" * READ_MIN_BYTES)
        for connection, client in clients:
            connection.read_bytes = READ_MAX_BYTES
            client.sendall(much)
        for had in (2, 3, 4, 5):
            served.reactor.turn()
            assert counters.messages_received == had
        assert not served.reactor.table.waiting


def test_a_turn_ends_among_clients_that_connect() -> None:
    """Their packets are small, but a session may have very many filters."""
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        clock.step_s = TURN_WORK_MAX_S * 0.6
        pairs = [served.opened() for _ in range(5)]
        clients = [client for _, client in pairs]
        for number, client in enumerate(clients):
            client.sendall(encode.connect(Connect(4, b"c%d" % number)))
        served.reactor.turn()
        assert 0 < sum(connection.state == OPENED for connection, _ in pairs) < len(clients)
        while served.reactor.table.waiting:
            served.reactor.turn()
        assert all(client.recv(100)[:4:3] == b" \0" for client in clients)


def paused_with_a_message(served: Served, number: int) -> tuple[list[Connection], list[socket.socket]]:
    """Clients that were paused before their message was processed."""
    pairs = [served.client(f"c{place}") for place in range(number)]
    for connection, client in pairs:
        connection.pause()
        client.sendall(publish(4, "a", "x"))
    served.reactor.turn()
    assert served.router.counters.messages_received == 0
    return [connection for connection, _ in pairs], [client for _, client in pairs]


@pytest.mark.parametrize("how", ["in a turn", "outside", "rested"])
def test_connections_that_go_on_together_do_so_in_several_rounds_and_users_take_them_in_turn(how: str) -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        reactor, counters = served.reactor, served.router.counters
        connections, clients = paused_with_a_message(served, 6)
        for connection in connections[:-1]:
            connection.principal = Principal(b"many")
        connections[-1].principal = Principal(b"few")
        clock.step_s = ROUND_WORK_MAX_S * 0.6
        for connection in connections:
            if how == "rested":
                reactor.router.pauses.resting.append(connection)
            else:
                connection.unpause()
        if how == "in a turn":
            _, client = served.opened()
            client.sendall(encode.PINGREQ)
            reactor.turn()
        elif how == "outside":
            reactor.end_turn()
        else:
            reactor._wake()
        had = counters.messages_received
        assert had < 4
        assert not reactor.router.pauses.resumed
        for client in clients:
            client.sendall(encode.PINGREQ)  # It isn't read before the message is processed.
        reactor.turn()
        assert connections[-1].messages_in == 1
        while reactor.table.waiting:
            reactor.turn()
        clock.step_s = 0.0
        reactor.turn()
        assert counters.messages_received == len(connections)
        for client in clients:
            assert client.recv(100) == encode.PINGRESP


async def test_who_goes_on_later_needs_no_event_for_it() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        reactor = served.reactor
        connections, _ = paused_with_a_message(served, 6)
        reactor.start(asyncio.get_running_loop())
        clock.step_s = TURN_WORK_MAX_S * 0.6
        for connection in connections:
            connection.unpause()
        reactor.soon()
        async with asyncio.timeout(PATIENCE_S):
            while served.router.counters.messages_received < len(connections):  # noqa: ASYNC110 - turns are counted
                await asyncio.sleep(0)
        assert not reactor.table.waiting
        await asyncio.sleep(0)
        assert reactor._next_turn is None


def test_a_connection_that_is_reset_before_it_goes_on_has_its_message_processed() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        pairs = [tcp_pair() for _ in range(3)]
        table, reactor = served.reactor.table, served.reactor
        connections = [table.adopt(ours.detach(), served.listener) for ours, _ in pairs]
        for number, (connection, (_, client)) in enumerate(zip(connections, pairs, strict=True)):
            client.sendall(encode.connect(Connect(4, b"c%d" % number)))
            reactor.turn()
            connection.pause()
            client.sendall(publish(4, "a", "x"))
        reactor.turn()
        clock.step_s = TURN_WORK_MAX_S * 2
        for connection in connections:
            connection.unpause()
        reactor.end_turn()
        assert served.router.counters.messages_received < len(pairs)
        for _, client in pairs:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        for _ in range(4 * len(pairs)):
            reactor.turn()
        assert served.router.counters.messages_received == len(pairs)
        assert served.router.counters.connections == 0


def test_who_has_sent_more_than_was_read_waits_behind_all_others() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        _, decent = served.client("decent")
        others = [served.client(f"c{number}") for number in range(4)]
        packet = publish(4, "a", "x" * (READ_MIN_BYTES - 6))
        assert len(packet) == READ_MIN_BYTES
        for connection, client in others:
            connection.read_bytes = READ_MIN_BYTES
            client.sendall(packet)
        served.reactor.turn()
        assert all(connection.has_more for connection, _ in others)
        clock.step_s = TURN_WORK_MAX_S * 2
        for connection, client in others:
            connection.read_bytes = READ_MIN_BYTES
            client.sendall(packet * 2)
        counters, had = served.router.counters, len(others)
        for turn in range(2 * len(others)):
            assert served.ask(decent, encode.PINGREQ) == encode.PINGRESP
            assert counters.messages_received == had + turn + 1, "one of them is read, too"
            assert len(served.reactor.table.waiting) <= len(others)
        others[0][1].sendall(packet)
        served.reactor.turn()
        served.reactor.table.close(others[0][0])
        assert others[0][0] not in served.reactor.table.waiting


def test_a_connection_with_more_that_was_paused_between_two_turns_is_not_watched() -> None:
    with Served() as served:
        connection, client = served.client("c")
        connection.has_more = True
        connection.pause()
        client.sendall(encode.PINGREQ)
        served.reactor.turn()
        assert not served.reactor.epoll.poll(0), "the event loop would be busy with it"
        connection.unpause()
        served.reactor.end_turn()
        served.reactor.turn()
        assert client.recv(100) == encode.PINGRESP


def test_a_connection_that_is_closed_for_another_ones_read_and_a_paused_one_may_wait() -> None:
    with Served() as served:
        table = served.reactor.table
        paused, _ = served.client("paused")
        costly, _ = served.opened()
        reader, client = served.opened()
        table.add_cost(costly, table.unauthenticated.max_bytes - UNAUTHENTICATED_COUNTED_BYTES)
        table.add_cost(reader, UNAUTHENTICATED_COUNTED_BYTES)
        paused.pause()
        table.watch(paused)
        client.sendall(b"\x10\xff\x7f")
        reader.has_more = True
        for connection in (reader, costly, paused):
            table.waiting.add(connection)
        served.reactor.turn()
        assert costly.fd < 0
        assert not table.waiting


@pytest.mark.parametrize("how", ["reset", "close", "disconnect"])
def test_connections_that_end_together_end_in_several_turns(how: str) -> None:
    """Each end may cost much: the session's filters, its will."""
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        counters, table = served.router.counters, served.reactor.table
        pairs = [tcp_pair() for _ in range(5)]
        clients = []
        for number, (ours, client) in enumerate(pairs):
            connection = table.adopt(ours.detach(), served.listener)
            client.sendall(encode.connect(Connect(4, b"c%d" % number)))
            clients.append((connection, client))
        served.reactor.turn()
        clock.step_s = TURN_WORK_MAX_S * 0.6
        for _, client in clients:
            if how == "disconnect":
                client.sendall(encode.disconnect(4))
                continue
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        ended = []
        while counters.connections:
            served.reactor.turn()
            ended.append(len(clients) - counters.connections)
        assert len(ended) > 1
        assert ended[0] < len(clients)
        assert not table.waiting
        for _, client in clients:
            client.close()


def test_a_paused_connection_that_was_reset_when_the_time_was_up_ends_later() -> None:
    clock = Steps()
    with Served(clock=Clock(clock, clock)) as served:
        pairs = [tcp_pair() for _ in range(4)]
        table = served.reactor.table
        connections = [table.adopt(ours.detach(), served.listener) for ours, _ in pairs]
        for connection in connections:
            connection.pause()
            table.watch(connection)
        clock.step_s = TURN_WORK_MAX_S * 2
        for _, client in pairs:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        for left in (3, 2, 1, 0):
            served.reactor.turn()
            assert served.router.counters.connections == left


def test_a_turn_waits_awake_only_where_answers_lately_came_at_once() -> None:
    with Served() as served:
        reactor = served.reactor
        _, client = served.client("c")
        reactor._hits = 16
        reactor._served_s = 0.0  # long ago
        for hits in (12, 8, 4, 0, 0):
            served.ask(client, encode.PINGREQ)
            assert reactor._hits == hits
            reactor._served_s = 0.0
        assert reactor._spin() == []


def test_a_turn_with_much_to_do_waits_for_nothing() -> None:
    with Served() as served:
        clients = [served.client(f"c{number}")[1] for number in range(9)]
        served.reactor._hits = 16
        for client in clients:
            client.sendall(encode.PINGREQ)
        served.reactor.turn()
        assert served.reactor._hits == 0
