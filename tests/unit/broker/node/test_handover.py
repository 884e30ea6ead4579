"""A lasting session moves between two nodes: what arrives, what is lost on the way, what comes behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flockmq.bounds import FILTER_SHAPES_MAX, TAKEN_WAIT_S
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.node import handover
from flockmq.node.handover import Handovers
from flockmq.session.channel import CLOSED
from flockmq.session.limits import Limits
from flockmq.session.session import Session
from unit.broker.session.harness import Client, Node, publish

CLIENT = b"c"
LASTING = Connect(4, CLIENT, clean_start=False)


class Home:
    """Relays at once, but what `loses` says."""

    def __init__(self, name: str, nodes: dict[str, Host]) -> None:
        self.detached: list[tuple[bytes, int]] = []
        self.heard = asyncio.Event()
        self.loses: Callable[[bytes], bool] = lambda said: False
        self._name = name
        self._nodes = nodes

    def relay(self, to: str, client_id: bytes, said: bytes) -> bool:
        if not self.loses(said):
            self._nodes[to].handovers.heard(self._name, client_id, said)
        return True

    def detach(self, client_id: bytes, token: int) -> None:
        self.detached.append((client_id, token))
        self.heard.set()


class Host(Node):
    """A node that gives and takes sessions; `route_reason` is what the log says to their routes."""

    def __init__(self, name: str, nodes: dict[str, Host], limits: Limits | None = None) -> None:
        super().__init__(limits)
        nodes[name] = self
        self.sessions = self.port.sessions
        self.route_reason: int = Reason.SUCCESS
        self.home = Home(name, nodes)
        self.handovers = Handovers(self.home, self.sessions, self.router, self.limits, self.route, lambda: None)

    def route(self, client_id: bytes, filters: list[bytes], done: Callable[[int], None]) -> None:
        done(self.route_reason)

    def left_by(self, *packets: bytes) -> Session:
        """A session that waits for these."""
        client = self.client("c", connect=LASTING)
        self.subscribe(client, ("a", 2))
        client.lost()
        self.send(*packets)
        return self.sessions.by_id[CLIENT]

    def send(self, *packets: bytes) -> None:
        publisher = self.client("p")
        for packet in packets:
            self.feed(publisher, packet)

    def comes(self, token: int = 2, *, clean: bool = False) -> tuple[int, Client]:
        """The client, here: whether its session was present."""
        self.handovers.take(CLIENT, token, clean, lambda: None)
        client = self.opened()
        connack, *rest = self.feed(client, encode.connect(Connect(4, CLIENT, clean_start=clean)))
        client.written = b"".join(rest)
        return connack[2], client


@pytest.fixture
def nodes() -> dict[str, Host]:
    return {}


@pytest.fixture
def old(nodes: dict[str, Host], monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(handover, "HANDOVER_TAIL_WAIT_S", 0.0)
    return Host("old", nodes)


@pytest.fixture
def new(nodes: dict[str, Host]) -> Host:
    return Host("new", nodes)


async def given(host: Host, to: str = "new") -> None:
    """Its pieces are on their way when it returns."""
    host.home.heard.clear()
    host.handovers.give(host.sessions.away[CLIENT].session, 1, to)
    await host.home.heard.wait()


async def settled(host: Host) -> None:
    await asyncio.gather(*host.handovers._tasks)


def payloads(client: Client) -> list[bytes]:
    return [packet[-1:] for packet in client.packets()]


def message(payload: str, qos: int = 1) -> bytes:
    return publish(4, "a", payload, qos=qos, packet_id=1 if qos else 0)


async def test_what_waited_and_what_came_meanwhile_is_there_once(old: Host, new: Host) -> None:
    old.left_by(message("1"))
    await given(old)
    old.send(message("2"))
    present, client = new.comes()
    await settled(old)
    new.turn()
    assert present == 1
    assert payloads(client) == [b"1", b"2"]
    assert old.home.detached == [(CLIENT, 1)]
    assert old.router.counters.subscriptions == 0


async def test_a_session_whose_pieces_are_not_all_here_costs_no_room(
    old: Host, new: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "HANDOVER_PIECE_BYTES", 50)
    old.left_by(message("1"), message("2"), message("3"))
    old.home.loses = lambda said: said[1] == handover.LAST_PIECE
    await given(old)
    assert new.comes()[0] == 0
    assert new.handovers._arriving_bytes == 0


async def test_a_session_with_a_gap_is_not_taken(old: Host, new: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "HANDOVER_PIECE_BYTES", 20)
    old.left_by(message("1"), message("2"), message("3"))
    heard = 0

    def loses(said: bytes) -> bool:
        nonlocal heard
        heard += 1
        return heard == 2

    old.home.loses = loses
    await given(old)
    assert new.comes()[0] == 0


async def test_pieces_of_an_attempt_that_was_given_up_do_not_mix_with_the_next(
    old: Host, new: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "HANDOVER_PIECE_BYTES", 20)
    old.left_by(message("1"))
    old.home.loses = lambda said: said[1] == handover.LAST_PIECE
    await given(old)
    old.home.loses = lambda said: False
    old.home.detached.clear()
    old.left_by(message("2"))
    await given(old)
    present, client = new.comes()
    assert present == 1
    assert payloads(client) == [b"2"]


@pytest.mark.parametrize("why", ["a clean start", "it is too old"])
async def test_a_session_that_nobody_came_for_does_not_come_back_later(
    old: Host, new: Host, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.left_by(message("1"))
    await given(old)
    if why == "a clean start":
        _, client = new.comes(clean=True)
        client.lost()
    else:
        monkeypatch.setattr(handover, "TAKEN_WAIT_S", -TAKEN_WAIT_S)
    assert new.comes()[0] == 0


async def test_a_session_with_wildcards_in_one_place_too_many_leaves_nothing_behind(old: Host, new: Host) -> None:
    client = old.client("c", connect=LASTING)
    old.subscribe(client, ("x", 1), ("y/" * 100 + "+", 1))
    client.lost()
    for number in range(FILTER_SHAPES_MAX):
        new.router.local.add(b"+/" * (number % 50) + b"z/" * (number // 50) + b"+", number)
    await given(old)
    assert new.comes()[0] == 0
    assert not new.router.has_local(b"x")
    assert new.router.counters.subscriptions == 0


async def test_a_session_without_routes_ends_rather_than_miss_messages(old: Host, new: Host) -> None:
    old.left_by(message("1"))
    await given(old)
    new.route_reason = Reason.UNSPECIFIED_ERROR
    assert new.comes()[0] == 0
    assert new.port.sessions_gone == [CLIENT]
    assert not new.router.has_local(b"a")


async def test_a_client_without_room_for_what_comes_behind_its_session_is_cut_off(
    old: Host, nodes: dict[str, Host]
) -> None:
    new = Host("new", nodes, Limits(max_inflight=1, max_mqueue_len=2))
    old.left_by(message("1"))
    await given(old)
    old.send(*(message(str(number)) for number in range(2, 6)))
    _, client = new.comes()
    await settled(old)
    assert client.state == CLOSED
    assert new.router.counters.dropped_queue_full


async def test_what_comes_behind_a_session_that_moved_on_follows_it(
    old: Host, new: Host, nodes: dict[str, Host]
) -> None:
    third = Host("third", nodes)
    old.left_by(message("1"))
    await given(old)
    old.send(message("2"))
    _, client = new.comes()
    client.lost()
    await given(new, "third")
    await settled(old)
    _, client = third.comes(3)
    await settled(new)
    third.turn()
    assert payloads(client) == [b"1", b"2"]


async def test_pieces_beyond_all_bounds_are_not_kept(old: Host, new: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "HANDOVERS_MAX_BYTES", 10)
    old.left_by(message("1"))
    await given(old)
    assert new.comes()[0] == 0
