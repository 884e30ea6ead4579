"""A reactor whose node is nearly out of memory: whom it disconnects."""

from __future__ import annotations

from flockmq.bounds import ALLOWED_HEAD_MAX_BYTES, RELIEVED_MIN_BYTES
from flockmq.mqtt import encode
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import publish
from unit.broker.transport.harness import Served


def test_clients_for_which_most_waits_are_disconnected_until_so_much_is_free() -> None:
    with Served() as served:
        clients = [served.client(name, 5)[0] for name in ("little", "most", "much", "more")]
        sizes = [RELIEVED_MIN_BYTES - 1, 9 * RELIEVED_MIN_BYTES, 2 * RELIEVED_MIN_BYTES, 4 * RELIEVED_MIN_BYTES]
        for client, size in zip(clients, sizes, strict=True):
            client.blocked = True
            client.put(bytes(size))
        served.reactor.end_turn()
        assert served.reactor.relieve(10 * RELIEVED_MIN_BYTES)
        assert [client.state == CLOSED for client in clients] == [False, True, False, True]
        assert [client.close_reason for client in clients[1::2]] == [Reason.QUOTA_EXCEEDED] * 2
        assert [client.out_bytes for client in clients[1::2]] == [0, 0], "their memory is free"
        assert served.reactor.relieve(10 * RELIEVED_MIN_BYTES)
        assert not served.reactor.relieve(1), "for nobody else so much waits"
        assert clients[0].state != CLOSED


def test_what_waits_for_acknowledgements_of_a_clean_session_counts() -> None:
    with Served(Limits(max_inflight=1)) as served:
        connection, subscriber = served.client("s", 5)
        subscriber.sendall(encode.subscribe(5, 1, [SubscribeEntry(b"a", 1)]))
        served.reactor.turn()
        _, publisher = served.client("p")
        for number in range(1, 4):
            publisher.sendall(publish(4, "a", "x" * RELIEVED_MIN_BYTES, qos=1, packet_id=number))
            served.reactor.turn()
        assert connection.held_bytes() >= 2 * RELIEVED_MIN_BYTES
        assert served.reactor.relieve(1)
        assert connection.state == CLOSED


def test_what_a_client_sent_and_is_not_processed_yet_counts() -> None:
    with Served() as served:
        connection, client = served.client("c", 5)
        client.sendall(publish(5, "a", "x" * 2 * RELIEVED_MIN_BYTES)[:-1])
        served.reactor.turn()
        assert connection.held_bytes() >= 2 * RELIEVED_MIN_BYTES
        assert served.reactor.relieve(1)
        assert (connection.state, connection.held_bytes()) == (CLOSED, 0)


def test_the_topics_of_a_clients_aliases_count() -> None:
    with Served(Limits(max_topic_alias=1)) as served:
        connection, client = served.client("c", 5)
        topic, alias = "a" * 2 * RELIEVED_MIN_BYTES, b"\x23\0\1"
        served.reactor.turn()
        client.sendall(encode.publish(5, topic.encode(), b"", encoded_properties=alias))
        served.reactor.turn()
        assert connection.held_bytes() == 2 * RELIEVED_MIN_BYTES
        assert served.reactor.relieve(1)
        assert (connection.state, connection.held_bytes()) == (CLOSED, 0)


def test_shared_messages_that_a_client_read_and_does_not_acknowledge_count() -> None:
    with Served() as served:
        connection, member = served.client("m", 5)
        member.sendall(encode.subscribe(5, 1, [SubscribeEntry(b"$share/g/a", 1)]))
        served.reactor.turn()
        _, publisher = served.client("p")
        publisher.sendall(publish(4, "a", "x" * RELIEVED_MIN_BYTES, qos=1, packet_id=1))
        served.reactor.turn()
        member.recv(2 * RELIEVED_MIN_BYTES)
        served.reactor.turn()
        assert (connection.out_bytes, connection.held_bytes() > RELIEVED_MIN_BYTES) == (0, True)
        member.sendall(encode.pub_ack(0x04, 5, 1, 0))
        served.reactor.turn()
        assert connection.held_bytes() == 0


def test_what_many_clients_were_allowed_is_forgotten_and_nobody_disconnected_for_it() -> None:
    with Served() as served:
        connection, _ = served.client("c", 5)
        few = {b"%d" % number for number in range(RELIEVED_MIN_BYTES // ALLOWED_HEAD_MAX_BYTES - 1)}
        connection.allowed = few.copy()
        assert not served.reactor.relieve(1)
        connection.allowed.add(b"one more")
        assert served.reactor.relieve(1)
        assert (connection.allowed, connection.state == CLOSED) == (set(), False)
