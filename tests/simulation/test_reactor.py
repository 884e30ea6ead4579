"""Real routers and channels over the simulated network: turns, slow readers, and how clients end."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from conformance import wire
from flockmq.bounds import LAGGING_MAX_S, SINK_CONGESTED_BYTES, SINK_CONGESTED_MAX_S, SWEEP_INTERVAL_S, SWEEP_TICKS
from flockmq.clock import SYSTEM
from flockmq.mqtt.reason import Reason
from flockmq.protocol.clean_session_end import CleanSessionEnd
from flockmq.routing.router import Router
from flockmq.routing.sink import SinkHost
from flockmq.session.limits import Limits
from flockmq.telemetry.counters import Counters
from flockmq.time_slices import TimeSlices
from simulation.loop import Process, SimulatedLoop
from simulation.network import BUFFERED_MAX_BYTES, DELAY_S, Network
from simulation.reactor import SimulatedReactor
from unit.broker.protocol.harness import Port, split

AT = "10.0.0.9", 1883
SOON_S = 5 * DELAY_S[1]
LARGE = bytes(64 * 1024)
SWEPT_S = SWEEP_INTERVAL_S * (SWEEP_TICKS + 1)


class Served:
    """A reactor whose port says yes at once."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.network = self.loop.network = Network(self.loop, Random(1))
        self.limits = Limits(idle_timeout=5.0)
        self.router = Router(SinkHost(Counters()), self.limits.max_packet_size)
        self.port = Port()
        self.port.router = self.router
        self.port.sessions = CleanSessionEnd(
            self.router, self.port.session_ends, TimeSlices(self.loop.call_soon, SYSTEM)
        )
        self.defects: list[str] = []
        self.reactor = SimulatedReactor(self.router, self.limits, self.loop.time, self.defects.append)
        self.reactor.port = self.port
        self.process = Process("node", AT[0])
        self.process.context.run(self.reactor.start, self.loop)
        self.network.listen(AT, self.process, self.reactor.accept)

    def pass_time(self, seconds: float) -> None:
        self.loop.run(asyncio.sleep(seconds), Process("observer"))

    def dialled(self) -> Client:
        client = Client(self)
        self.pass_time(SOON_S)
        return client

    def client(self, name: str, keep_alive_s: int = 0) -> Client:
        """Connected, its CONNACK taken."""
        client = self.dialled()
        client.send(wire.connect(wire.V5, name, keep_alive_s=keep_alive_s))
        assert [packet[0] >> 4 for packet in client.packets()] == [wire.CONNACK]
        return client

    def subscriber(self, name: str, filter: str = "t") -> Client:
        client = self.client(name)
        client.send(wire.subscribe(wire.V5, 1, (filter, 0)))
        assert [packet[0] >> 4 for packet in client.packets()] == [wire.SUBACK]
        return client


class Client:
    """What a client does, and what came to it: `chunks`, as they came."""

    def __init__(self, served: Served) -> None:
        self.chunks: list[bytes] = []
        self.is_ended = False
        self._served = served
        self.end = served.loop.run(served.network.dial(AT), Process("client", "10.0.0.1"))
        self.end.serve(self.chunks.append, self._ended)

    def _ended(self) -> None:
        self.is_ended = True

    def send(self, *packets: bytes) -> None:
        """In one write; returns when the node has answered."""
        data = b"".join(packets)
        self.end.send(data, len(data))
        self._served.pass_time(SOON_S)

    def packets(self) -> list[bytes]:
        """Since it was last asked."""
        taken = split(b"".join(self.chunks))
        self.chunks.clear()
        return taken


def publish(payload: bytes, topic: str = "t") -> bytes:
    return wire.publish(wire.V5, topic, payload)


@pytest.fixture
def served() -> Served:
    return Served()


# --- turns ------------------------------------------------------------------------------------------------------------


def test_what_a_turn_put_is_flushed_when_it_ends_in_one_piece(served: Served) -> None:
    one, other, publisher = served.subscriber("one"), served.subscriber("other"), served.client("publisher")
    publisher.send(publish(b"1"), wire.PING, publish(b"2"), wire.PING)
    assert one.chunks == other.chunks == [publish(b"1") + publish(b"2")]
    assert [packet[0] >> 4 for packet in publisher.packets()] == [wire.PINGRESP, wire.PINGRESP]
    assert served.router.turn == []


def test_a_packet_may_come_in_pieces(served: Served) -> None:
    subscriber, publisher = served.subscriber("subscriber"), served.client("publisher")
    packet = publish(b"whole")
    for byte in packet:
        assert subscriber.chunks == []
        publisher.send(bytes([byte]))
    assert subscriber.chunks == [packet]


def test_what_the_node_puts_outside_a_turn_is_flushed_soon(served: Served) -> None:
    subscriber = served.subscriber("subscriber")
    connection = served.reactor.connections[0]
    assert connection is not None
    connection.put(publish(b"later"))
    served.process.context.run(served.reactor.soon)
    served.pass_time(SOON_S)
    assert subscriber.chunks == [publish(b"later")]


# --- slow readers -----------------------------------------------------------------------------------------------------


def congested(served: Served) -> tuple[Client, Client, int]:
    """A subscriber that stopped reading, its publisher, which is paused, and how many messages it took."""
    subscriber, publisher = served.subscriber("subscriber"), served.client("publisher")
    subscriber.end.pause()
    sent = 0
    while not served.router.pauses.slow:
        publisher.send(publish(LARGE))
        sent += 1
    assert sent * len(LARGE) == pytest.approx(BUFFERED_MAX_BYTES + SINK_CONGESTED_BYTES, abs=2 * len(LARGE))
    return subscriber, publisher, sent


def test_whoever_publishes_to_a_client_that_does_not_read_is_paused_until_it_does(served: Served) -> None:
    subscriber, publisher, sent = congested(served)
    publisher.send(publish(LARGE), wire.PING)
    publisher.send(publish(b"last"), wire.PING)
    waiting = served.reactor.connections[1]
    assert waiting is not None
    assert waiting.paused
    subscriber.end.go_on()
    served.pass_time(SOON_S)
    assert not waiting.paused
    assert subscriber.packets() == [publish(LARGE)] * (sent + 1) + [publish(b"last")]
    assert len(publisher.packets()) == 2


def test_a_client_that_does_not_read_is_not_listened_to_either(served: Served) -> None:
    subscriber, _, _ = congested(served)
    subscriber.send(wire.PING)
    connection = served.reactor.connections[0]
    assert connection is not None
    assert connection.reading_stopped
    subscriber.end.go_on()
    served.pass_time(SOON_S)
    assert subscriber.packets()[-1][0] >> 4 == wire.PINGRESP


def test_it_holds_its_publishers_for_a_while_only_and_is_cut_off_in_the_end(served: Served) -> None:
    subscriber, publisher, _ = congested(served)
    served.pass_time(SINK_CONGESTED_MAX_S + SWEPT_S)
    publisher.send(wire.PING)
    assert len(publisher.packets()) == 1
    served.pass_time(LAGGING_MAX_S + SWEPT_S)
    subscriber.end.go_on()
    served.pass_time(SOON_S)
    assert subscriber.is_ended
    assert served.router.counters.connections == 1


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_client_that_is_silent_for_longer_than_it_promised_is_ended(served: Served) -> None:
    silent, lively = served.client("silent", keep_alive_s=10), served.client("lively", keep_alive_s=10)
    for _ in range(14):
        served.pass_time(1.0)
        lively.send(wire.PING)
    assert not silent.is_ended
    served.pass_time(1.0 + SWEPT_S)
    assert silent.is_ended
    assert silent.packets() == [wire.disconnect(wire.V5, Reason.KEEP_ALIVE_TIMEOUT)]
    assert not lively.is_ended


def test_a_client_that_never_says_who_it_is_is_ended(served: Served) -> None:
    client = served.dialled()
    served.pass_time(served.limits.idle_timeout + SWEPT_S)
    assert client.is_ended


@pytest.mark.parametrize("how", ["goes", "says goodbye"])
def test_the_session_of_a_client_that_went_is_ended_and_its_place_is_free(served: Served, how: str) -> None:
    gone, stays = served.client("gone"), served.client("stays")
    if how == "goes":
        gone.end.close()
        served.pass_time(SOON_S)
    else:
        gone.send(wire.disconnect(wire.V5))
        assert gone.is_ended
    assert served.port.sessions_gone == [b"gone"]
    assert served.reactor.connections[0] is None
    served.client("next")
    assert len(served.reactor.connections) == 2
    assert not stays.is_ended


def test_a_defect_ends_its_connection_and_no_other(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsubscribe(*_: object) -> list[int]:
        raise RuntimeError("nobody foresaw it")

    monkeypatch.setattr(served.port, "unsubscribe", unsubscribe)
    unlucky, other = served.client("unlucky"), served.client("other")
    unlucky.send(wire.unsubscribe(wire.V5, 1, "t"))
    assert [text.splitlines()[-1] for text in served.defects] == ["RuntimeError: nobody foresaw it"]
    assert unlucky.is_ended
    other.send(wire.PING)
    assert len(other.packets()) == 1


def test_a_reactor_that_stops_ends_all_and_takes_nobody(served: Served) -> None:
    client = served.client("client")
    served.process.context.run(served.reactor.stop_accepting)
    refused = served.dialled()
    assert refused.is_ended
    client.send(wire.PING)
    assert len(client.packets()) == 1
    served.process.context.run(served.reactor.stop)
    served.pass_time(SOON_S)
    assert client.is_ended
    assert served.router.counters.connections == 0
