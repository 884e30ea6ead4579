"""A client: how it comes, goes, and comes back, and what is written down of that."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from conformance import wire
from load import habits
from load.history import Asked, Closed, Connected, Disconnected, Refused, Will
from load.link import SILENT_MAX_S
from load.player import CLEAN, CLEAN_311, DURABLE, DURABLE_311, RETRY_S, Player, Terms
from load.scripted import NODES, Connection, Play, Took
from load.subscribing import Wish


@pytest.mark.parametrize("terms", [CLEAN, DURABLE, CLEAN_311, DURABLE_311])
def test_who_is_cut_off_comes_back(play: Play, terms: Terms) -> None:
    player = Player(play.stage, "ann", terms)

    async def work() -> None:
        await play.connected(player)
        play.node.present = terms.lasts
        play.node.last.end()
        await asyncio.sleep(0.1)

    play(work())
    assert [(asked.client, asked.connection, asked.lasts, asked.version) for asked in play.all(Asked)] == [
        ("ann", 1, terms.lasts, terms.version),
        ("ann", 2, terms.lasts, terms.version),
    ]
    assert [(event.connection, event.present) for event in play.all(Connected)] == [(1, False), (2, terms.lasts)]
    assert [(event.connection, event.by_server) for event in play.all(Closed)] == [(1, True)]


def test_connections_are_numbered_by_their_stage(play: Play) -> None:
    another = replace(play.stage, connections=itertools.count(1))

    async def work() -> None:
        for stage in (play.stage, play.stage, another):
            await play.connected(Player(stage, "ann"))

    play(work())
    assert [asked.connection for asked in play.all(Asked)] == [1, 2, 1]


def test_who_is_refused_says_why_and_tries_again(play: Play) -> None:

    def busy(_: Connection, packet: Took) -> bytes:
        return wire.packet(0x20, b"\0\x89", b"\0") if packet.kind == wire.CONNECT else b""

    async def work() -> None:
        play.node.answer = busy
        task = asyncio.create_task(Player(play.stage, "ann").run())
        await asyncio.sleep(RETRY_S)
        play.node.answer = play.node.yes
        await asyncio.sleep(2 * RETRY_S)
        task.cancel()

    play(work())
    assert [(event.connection, event.reason) for event in play.all(Refused)] == [(1, 0x89)]
    assert [event.connection for event in play.all(Connected)] == [2]


def test_a_node_that_says_nothing_is_given_up(play: Play) -> None:

    async def work() -> None:
        play.node.answer = lambda *_: b""
        task = asyncio.create_task(Player(play.stage, "ann").run())
        await asyncio.sleep(SILENT_MAX_S + 1.0)
        task.cancel()

    play(work())
    assert not play.all(Connected)
    assert not play.all(Refused)
    assert [(event.connection, event.by_server) for event in play.all(Closed)] == [(1, False)]
    assert len(play.all(Asked)) == 2


def test_a_node_that_falls_silent_is_left(play: Play) -> None:
    player = Player(play.stage, "ann")

    def only_b(connection: Connection, packet: Took) -> bytes:
        return play.node.yes(connection, packet) if connection.name == "b" else b""

    async def work() -> None:
        await play.connected(player)
        await asyncio.sleep(2 * SILENT_MAX_S)
        assert not play.all(Closed)
        play.node.answer = only_b
        play.stage.nodes = lambda: NODES[1:]
        await asyncio.sleep(2 * SILENT_MAX_S)

    play.stage.nodes = lambda: NODES[:1]
    play(work())
    assert [(event.connection, event.by_server) for event in play.all(Closed)] == [(1, False)]
    assert [asked.node for asked in play.all(Asked)] == ["a", "b"]


def test_a_will_has_a_number_for_each_connect(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)
    player.will = Will(0, "gone", 1, delay_s=2.0)

    async def work() -> None:
        await play.connected(player)
        player.drop()
        await asyncio.sleep(0.1)

    play(work())
    assert [asked.will for asked in play.all(Asked)] == [
        Will(1, "gone", 1, delay_s=2.0),
        Will(2, "gone", 1, delay_s=2.0),
    ]
    (first,), (second,) = (connection.took(wire.CONNECT) for connection in play.node.connections)
    assert b"ann! 1" in first.rest
    assert b"ann! 2" in second.rest


def test_each_way_to_go_is_what_it_is_called(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    async def work() -> None:
        await play.connected(player)
        player.drop()
        player.disconnect()  # it is gone already
        await asyncio.sleep(0.1)
        for ways in ({}, {"with_will": True}, {"ends": True}):
            player.disconnect(**ways)
            await asyncio.sleep(0.1)

    play(work())
    said = [[packet.rest for packet in connection.took(wire.DISCONNECT)] for connection in play.node.connections]
    assert said[:4] == [[], [b""], [b"\x04"], [b"\0\x05\x11\0\0\0\0"]]
    assert [(event.connection, event.with_will, event.ends) for event in play.all(Disconnected)] == [
        (2, False, False),
        (3, True, False),
        (4, False, True),
    ]
    assert not any(event.by_server for event in play.all(Closed))


def test_who_goes_away_comes_back_when_told_to(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    async def work() -> None:
        await play.connected(player)
        habits.go(player)
        await asyncio.sleep(5.0)
        assert len(play.all(Asked)) == 1
        player.come_back()
        await asyncio.sleep(0.1)
        assert player.is_connected

    play(work())


def test_who_moves_comes_to_another_node(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    async def work() -> None:
        await play.connected(player)
        for _ in range(4):
            await habits.move(player)

    play(work())
    nodes = [asked.node for asked in play.all(Asked)]
    assert all(before != after for before, after in itertools.pairwise(nodes))


def test_who_roves_leaves_its_older_connection_to_the_node(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("t")])

    async def work() -> None:
        await play.connected(player)
        play.node.present = True
        assert await player.connect(anew=True)
        older, newer = play.node.connections
        older.say(wire.publish(wire.V5, "t", b"bob 1", qos=1, packet_id=1))
        await asyncio.sleep(0.1)
        assert not older.took(wire.PUBACK)
        assert not play.all(Closed)
        newer.say(wire.publish(wire.V5, "t", b"bob 1", qos=1, packet_id=1))
        older.end()
        await asyncio.sleep(0.1)
        assert newer.took(wire.PUBACK)
        assert player.is_connected

    play(work())
    assert [(event.connection, event.by_server) for event in play.all(Closed)] == [(1, True)]
    assert len({asked.node for asked in play.all(Asked)}) == 2


def test_of_a_rush_it_goes_on_with_the_connection_that_is_left(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("t")])

    async def work() -> None:
        await play.connected(player)
        play.node.present = True
        rush = asyncio.create_task(player.rush(3))
        await asyncio.sleep(0.01)
        first, *others, last = play.node.connections
        last.say(wire.publish(wire.V5, "t", b"bob 1", qos=1, packet_id=1))  # before it is known who is left
        for connection in (first, *others):
            connection.end()
        assert await rush
        await asyncio.sleep(0.1)
        assert last.took(wire.PUBACK)

    play(work())
    assert player.link is not None
    assert player.link.number == 4
    assert sorted(event.connection for event in play.all(Closed)) == [1, 2, 3]


def test_who_leaves_ends_its_session(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE_311)

    async def work() -> None:
        (await play.connected(player)).cancel()
        await player.leave()
        await asyncio.sleep(0.1)

    play(work())
    assert [asked.clean_start for asked in play.all(Asked)] == [False, True]
    assert len(play.all(Disconnected)) == 2
    assert {event.connection for event in play.all(Closed)} == {1, 2}


def test_a_client_says_whether_it_begins_anew_and_what_it_allows(play: Play) -> None:
    turns = [
        (DURABLE, False),
        (DURABLE._replace(begins_anew=True), True),
        (DURABLE._replace(goes_on=True, expiry_s=0.0, packet_max=99, aliases=3), False),
        (CLEAN, True),
        (CLEAN_311, True),
    ]

    async def work() -> None:
        for terms, _ in turns:
            await Player(play.stage, "ann", terms).connect()

    play(work())
    connects = [packet for connection in play.node.connections for packet in connection.took(wire.CONNECT)]
    assert [packet.raw[9] & 2 == 2 for packet in connects] == [clean for _, clean in turns]
    assert [asked.clean_start for asked in play.all(Asked)] == [clean for _, clean in turns]
    assert [asked.packet_max for asked in play.all(Asked)] == [0, 0, 99, 0, 0]
    assert b"\x27\0\0\0\x63\x22\0\x03" in connects[2].raw


def test_who_disconnects_may_say_for_how_long_its_session_lasts(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    async def work() -> None:
        await play.connected(player)
        player.disconnect(expiry_s=7)

    play(work())
    (packet,) = play.node.connections[0].took(wire.DISCONNECT)
    assert packet.rest == b"\0\x05\x11\0\0\0\x07"
    assert [event.expiry_s for event in play.all(Disconnected)] == [7]


@pytest.mark.parametrize(("terms", "delay_s"), [(DURABLE, 2.0), (DURABLE_311, 0.0)])
def test_before_mqtt_5_a_will_has_no_delay(play: Play, terms: Terms, delay_s: float) -> None:
    player = Player(play.stage, "ann", terms)
    player.will = Will(0, "gone", 1, delay_s=2.0)

    async def work() -> None:
        await play.connected(player)

    play(work())
    (asked,) = play.all(Asked)
    assert asked.will is not None
    assert asked.will.delay_s == delay_s
