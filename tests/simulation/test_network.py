"""What arrives over simulated connections: in which order, when, or not before the path is whole again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from simulation.loop import Process, SimulatedLoop
from simulation.network import BUFFERED_MAX_BYTES, DELAY_S, RESEND_MAX_S, RESEND_MIN_S, End, Network, Transport

ONE, OTHER = "10.0.0.1", "10.0.0.2"
PORT = 7
AT = OTHER, PORT
MANY = 50
SOON_S = 3 * DELAY_S[1]
LONG_S = 60.0


class Host:
    """A process, and what came to it."""

    def __init__(self, loop: SimulatedLoop, address: str) -> None:
        self.process = Process(address, address)
        self.got: list[tuple[float, object]] = []
        self._loop = loop

    def serve(self, end: End) -> None:
        end.serve(self.took, lambda: self.took("end"))

    def took(self, item: object) -> None:
        self.got.append((self._loop.time(), item))

    def items(self) -> list[object]:
        return [item for _, item in self.got]


class Pair:
    """`one` has dialled `other`, and both listen."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimulatedLoop()
        self.network = self.loop.network = Network(self.loop, Random(seed))
        self.one, self.other = Host(self.loop, ONE), Host(self.loop, OTHER)
        self.accepted: list[End] = []
        self.network.listen(AT, self.other.process, self.accepted.append)
        self.near = self.dial()
        self.pass_time(SOON_S)
        self.far = self.accepted[0]
        self.one.serve(self.near)
        self.other.serve(self.far)

    def dial(self) -> End:
        return self.loop.run(self.network.dial(AT), self.one.process)

    def pass_time(self, seconds: float) -> None:
        self.loop.run(asyncio.sleep(seconds), Process("observer"))


@pytest.fixture
def pair() -> Pair:
    return Pair()


# --- items ------------------------------------------------------------------------------------------------------------


def test_what_is_sent_arrives_a_little_later_in_order_and_once(pair: Pair) -> None:
    began_s = pair.loop.time()
    for number in range(MANY):
        pair.near.send(number)
    assert pair.other.got == []
    pair.pass_time(SOON_S)
    assert pair.other.items() == list(range(MANY))
    assert all(DELAY_S[0] <= at - began_s <= DELAY_S[1] for at, _ in pair.other.got)
    assert pair.one.got == []


def test_what_came_before_anybody_listened_is_kept(pair: Pair) -> None:
    again = pair.dial()
    again.send("early")
    again.close()
    pair.pass_time(SOON_S)
    pair.other.serve(pair.accepted[1])
    assert pair.other.items() == ["early", "end"]


def test_an_end_is_heard_behind_what_was_sent_and_nothing_comes_after_it(pair: Pair) -> None:
    pair.far.send("under way")
    pair.near.send("last")
    pair.near.close()
    pair.near.send("too late")
    pair.pass_time(SOON_S)
    assert pair.other.items() == ["last", "end"]
    assert pair.one.items() == []
    assert pair.far.is_closed


def test_whoever_does_not_read_gets_it_when_it_reads_again(pair: Pair) -> None:
    pair.far.pause()
    for item in ("a", "b"):
        pair.near.send(item)
    pair.near.close()
    pair.pass_time(LONG_S)
    assert pair.other.got == []
    pair.far.go_on()
    assert pair.other.items() == ["a", "b", "end"]


def test_a_process_that_stands_still_gets_it_when_it_goes_on(pair: Pair) -> None:
    pair.other.process.stop()
    for number in range(MANY):
        pair.near.send(number)
    pair.near.close()
    pair.pass_time(LONG_S)
    assert pair.other.got == []
    pair.other.process.go_on()
    pair.pass_time(SOON_S)
    assert pair.other.items() == [*range(MANY), "end"]


def test_the_same_seed_gives_the_same_times(pair: Pair) -> None:
    same, another = Pair(), Pair(seed=2)
    for each in (pair, same, another):
        each.near.send("a")
        each.pass_time(SOON_S)
    assert pair.other.got == same.other.got != another.other.got
    assert pair.network.trace == same.network.trace != another.network.trace


# --- connections ------------------------------------------------------------------------------------------------------


def test_nobody_listens_and_the_connection_is_refused(pair: Pair) -> None:
    with pytest.raises(ConnectionRefusedError):
        pair.loop.run(pair.network.dial((OTHER, PORT + 1)), pair.one.process)


def test_an_address_has_one_listener_and_then_none(pair: Pair) -> None:
    with pytest.raises(OSError, match="already in use"):
        pair.network.listen(AT, pair.other.process, lambda _: None)
    pair.network.listeners[AT].close()
    with pytest.raises(ConnectionRefusedError):
        pair.dial()
    assert not pair.far.is_closed
    pair.network.listen(AT, pair.other.process, lambda _: None)


@pytest.mark.parametrize("path", [(ONE, OTHER), (OTHER, ONE)])
def test_a_connection_over_a_cut_path_waits_until_it_is_whole(pair: Pair, path: tuple[str, str]) -> None:
    pair.network.cut(*path)
    dialling = pair.loop.create_task(pair.network.dial(AT), context=pair.one.process.context)
    pair.pass_time(LONG_S)
    assert not dialling.done()
    pair.network.mend(*path)
    pair.pass_time(2.0)
    assert dialling.result().peer_address == AT


def test_a_crash_ends_connections_and_listeners(pair: Pair) -> None:
    pair.far.send("last")
    pair.other.process.kill()
    pair.network.died(pair.other.process)
    pair.pass_time(SOON_S)
    assert pair.one.items() == ["last", "end"]
    with pytest.raises(ConnectionRefusedError):
        pair.dial()


def test_whoever_wasaccepted_by_nobody_when_its_node_died_hears_of_it(pair: Pair) -> None:
    pair.other.process.stop()
    early = pair.dial()
    pair.one.serve(early)
    pair.other.process.kill()
    pair.network.died(pair.other.process)
    pair.pass_time(SOON_S)
    assert early.is_closed


# --- cuts -------------------------------------------------------------------------------------------------------------


def test_a_path_that_is_cut_one_way_is_whole_the_other_way(pair: Pair) -> None:
    pair.near.send("before")
    pair.network.cut(ONE, OTHER)
    pair.near.send("there")
    pair.far.send("back")
    pair.pass_time(LONG_S)
    assert (pair.one.items(), pair.other.items()) == (["back"], ["before"])


def test_what_was_sent_on_a_cut_path_arrives_once_and_in_order_when_it_is_whole(pair: Pair) -> None:
    for path in ((ONE, OTHER), (OTHER, ONE)):
        pair.network.cut(*path)
    for number in range(MANY):
        pair.near.send(number)
        pair.far.send(-number)
    pair.pass_time(LONG_S)
    assert pair.one.got == pair.other.got == []
    for path in ((ONE, OTHER), (OTHER, ONE)):
        pair.network.mend(*path)
    pair.near.send("behind")
    pair.pass_time(2 * RESEND_MAX_S)
    assert pair.other.items() == [*range(MANY), "behind"]
    assert pair.one.items() == [-number for number in range(MANY)]


def test_a_path_that_was_cut_twice_must_be_mended_twice(pair: Pair) -> None:
    for _ in range(2):
        pair.network.cut(ONE, OTHER)
    pair.near.send("a")
    pair.network.mend(ONE, OTHER)
    pair.pass_time(LONG_S)
    assert pair.other.got == []
    pair.network.mend(ONE, OTHER)
    pair.pass_time(2 * RESEND_MAX_S)
    assert pair.other.items() == ["a"]


@pytest.mark.parametrize(("cut_s", "within_s"), [(0.0, RESEND_MIN_S), (2.0, 2.0), (600.0, RESEND_MAX_S)])
def test_the_longer_a_cut_was_the_later_it_is_noticed_that_it_is_over(cut_s: float, within_s: float) -> None:
    late_s = [_late_s(Pair(seed), cut_s) for seed in range(100)]
    assert 0.8 * within_s < max(late_s) < within_s + SOON_S
    assert min(late_s) < 0.2 * within_s


def _late_s(pair: Pair, cut_s: float) -> float:
    """How long after the mend it arrives."""
    pair.network.cut(ONE, OTHER)
    pair.near.send("a")
    pair.pass_time(cut_s)
    pair.network.mend(ONE, OTHER)
    mended_s = pair.loop.time()
    pair.pass_time(2 * RESEND_MAX_S)
    return pair.other.got[0][0] - mended_s


@pytest.mark.parametrize("how", ["close", "crash"])
def test_over_a_cut_path_nobody_hears_of_an_end_before_it_is_whole(pair: Pair, how: str) -> None:
    pair.network.cut(ONE, OTHER)
    pair.near.send("last")
    if how == "close":
        pair.near.close()
    else:
        pair.one.process.kill()
        pair.network.died(pair.one.process)
    pair.pass_time(LONG_S)
    assert pair.other.got == []
    pair.network.mend(ONE, OTHER)
    pair.pass_time(2 * RESEND_MAX_S)
    assert pair.other.items() == ["last", "end"]


# --- slow, lossy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [ONE, OTHER, (ONE, OTHER)])
def test_a_slow_path_takes_longer_until_it_does_not_any_more(pair: Pair, which: str | tuple[str, str]) -> None:
    pair.network.slow_down(which, 0.4)
    pair.near.send("slow")
    pair.network.slow_down(which, 0.0)
    pair.near.send("behind")
    pair.pass_time(0.4)
    assert pair.other.got == []
    pair.pass_time(SOON_S)
    assert pair.other.items() == ["slow", "behind"]
    assert _takes_s(pair) < SOON_S


def test_a_path_of_one_direction_is_slow_in_that_one_only(pair: Pair) -> None:
    pair.network.slow_down((OTHER, ONE), 0.4)
    assert _takes_s(pair) < SOON_S


@pytest.mark.parametrize("host", [ONE, OTHER])
def test_on_a_lossy_path_some_is_late_and_all_comes_in_order(pair: Pair, host: str) -> None:
    pair.network.lose(host, 30.0)
    took_s = [_takes_s(pair) for _ in range(200)]
    assert 0.2 < sum(took > RESEND_MIN_S for took in took_s) / len(took_s) < 0.4
    for number in range(MANY):
        pair.near.send(number)
    pair.pass_time(LONG_S)
    assert pair.other.items()[-MANY:] == list(range(MANY))
    pair.network.lose(host, 0.0)
    assert all(_takes_s(pair) < SOON_S for _ in range(100))


def _takes_s(pair: Pair) -> float:
    began_s, before = pair.loop.time(), len(pair.other.got)
    pair.near.send("a")
    pair.pass_time(LONG_S)
    return pair.other.got[before][0] - began_s


# --- what asyncio's protocols see of it -------------------------------------------------------------------------------


class Spoken(asyncio.Protocol):
    """Writes down what it was told."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.transport: Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard.append(len(data))

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.heard.append("lost")


@pytest.fixture
def spoken(pair: Pair) -> tuple[Spoken, Spoken]:
    """Over a listening socket whose connections are asked for."""
    loop = pair.loop

    async def accept() -> Any:
        bound = await pair.network.bind("", PORT + 1)
        assert bound.getsockname() == (OTHER, PORT + 1)
        accepted, address = await loop.sock_accept(bound)
        assert address[0] == ONE
        return await loop.connectaccepted_socket(Spoken, accepted)

    accepting = loop.create_task(accept(), context=pair.other.process.context)
    pair.pass_time(SOON_S)
    _, near = loop.run(loop.create_connection(Spoken, OTHER, PORT + 1), pair.one.process)
    pair.pass_time(SOON_S)
    return near, accepting.result()[1]


@pytest.mark.parametrize("finish", [Transport.close, Transport.abort])
def test_who_ends_a_connection_hears_of_it_once_as_the_other_does(
    pair: Pair, spoken: tuple[Spoken, Spoken], finish: Callable[[Transport], None]
) -> None:
    near, far = spoken
    near.transport.write(b"last")
    finish(near.transport)
    near.transport.write(b"too late")
    finish(near.transport)
    assert near.transport.is_closing()
    pair.pass_time(SOON_S)
    assert (near.heard, far.heard) == (["lost"], [4, "lost"])
    assert near.transport.get_extra_info("peername") == (OTHER, PORT + 1)


def test_a_writer_waits_for_a_peer_that_does_not_read(pair: Pair, spoken: tuple[Spoken, Spoken]) -> None:
    near, far = spoken
    far.transport.pause_reading()
    near.transport.set_write_buffer_limits(high=1000)
    near.transport.writelines([bytes(BUFFERED_MAX_BYTES), bytes(1000)])
    assert near.heard == []
    near.transport.write(b"x")
    near.transport.write(b"x")
    assert near.heard == ["pause"]
    assert near.transport.get_write_buffer_size() == 1002
    pair.pass_time(LONG_S)
    assert near.heard == ["pause"]
    far.transport.resume_reading()
    pair.pass_time(SOON_S)
    assert near.heard == ["pause", "resume"]
    assert far.heard == [BUFFERED_MAX_BYTES + 1000, 1, 1]


def test_who_ended_a_connection_is_not_told_to_write_again(pair: Pair, spoken: tuple[Spoken, Spoken]) -> None:
    near, far = spoken
    far.transport.pause_reading()
    near.transport.write(bytes(2 * BUFFERED_MAX_BYTES))
    pair.pass_time(SOON_S)
    far.transport.resume_reading()
    near.transport.close()
    pair.pass_time(SOON_S)
    assert near.heard == ["pause", "lost"]


def test_a_socket_that_listens_no_more_ends_who_was_not_asked_for(pair: Pair) -> None:
    bound = pair.loop.run(pair.network.bind("", PORT + 1), pair.other.process)
    end = pair.loop.run(pair.network.dial((OTHER, PORT + 1)), pair.one.process)
    pair.one.serve(end)
    pair.pass_time(SOON_S)
    bound.close()
    pair.pass_time(SOON_S)
    assert pair.one.items() == ["end"]
