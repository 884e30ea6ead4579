"""What a client subscribes to, whatever becomes of its questions."""

from __future__ import annotations

import asyncio

import pytest

from conformance import wire
from load.history import Overstepped, Subscribed, SubscribeRefused, SubscribeSent, Unsubscribed, UnsubscribeDone
from load.player import CLEAN_311, DURABLE, Player, Terms
from load.scripted import Connection, Play, Took
from load.subscribing import RESUBSCRIBE_S, Wish

NO_LOCAL_AND_NEW_ONLY = 0x14


def unanswered(play: Play, kind: int) -> None:
    def answer(connection: Connection, packet: Took) -> bytes:
        return b"" if packet.kind == kind else play.node.yes(connection, packet)

    play.node.answer = answer


@pytest.mark.parametrize("terms", [DURABLE, CLEAN_311])
def test_it_asks_for_what_it_wants_and_gives_up_the_rest(play: Play, terms: Terms) -> None:
    player = Player(play.stage, "ann", terms, [Wish("a"), Wish("b", 1)], wanted=("a",))

    async def work() -> None:
        await play.connected(player)
        player.subscribing.want(("b",))
        assert not player.is_settled
        await asyncio.sleep(0.1)
        assert player.is_settled
        player.settle()
        await asyncio.sleep(0.1)

    play(work())
    assert player.is_settled
    assert [(event.filter, event.qos) for event in play.all(SubscribeSent)] == [("a", 2), ("b", 1), ("a", 2)]
    assert [event.filter for event in play.all(Subscribed)] == ["a", "b", "a"]
    assert [event.filter for event in play.all(Unsubscribed)] == ["a", "b"]
    assert [event.filter for event in play.all(UnsubscribeDone)] == ["a", "b"]


def test_options_are_sent_and_written_down(play: Play) -> None:
    wish = Wish("a", 1, no_local=True, retain_handling=1, identifier=5)

    async def work() -> None:
        await play.connected(Player(play.stage, "ann", DURABLE, [wish]))

    play(work())
    (asked,) = play.node.last.took(wire.SUBSCRIBE)
    assert asked.raw[-1] == 1 | NO_LOCAL_AND_NEW_ONLY
    assert b"\x0b\x05" in asked.raw
    (event,) = play.all(Subscribed)
    assert (event.qos, event.no_local, event.retain_handling) == (1, True, 1)


def test_who_is_refused_asks_again(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("a")])

    def refuse(connection: Connection, packet: Took) -> bytes:
        if packet.kind != wire.SUBSCRIBE:
            return play.node.yes(connection, packet)
        return wire.packet(0x90, packet.packet_id.to_bytes(2, "big"), b"\0\x97")

    async def work() -> None:
        play.node.answer = refuse
        await play.connected(player)
        play.node.answer = play.node.yes
        await asyncio.sleep(RESUBSCRIBE_S)

    play(work())
    assert [(event.filter, event.reason) for event in play.all(SubscribeRefused)] == [("a", 0x97)]
    assert player.is_settled


def test_what_was_asked_and_not_answered_is_asked_again(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("a")])

    async def work() -> None:
        unanswered(play, wire.SUBSCRIBE)
        await play.connected(player)
        play.node.answer = play.node.yes
        play.node.present = True
        play.node.last.end()
        await asyncio.sleep(0.1)

    play(work())
    assert [event.connection for event in play.all(SubscribeSent)] == [1, 2]
    assert player.is_settled


def test_what_a_session_may_have_and_nobody_wants_is_given_up(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("a")], wanted=())

    async def work() -> None:
        await play.connected(player)
        unanswered(play, wire.SUBSCRIBE)
        player.subscribing.want(("a",))
        play.node.present = True
        player.drop()
        player.subscribing.want(())
        await asyncio.sleep(0.1)

    play(work())
    assert [packet.topic for packet in play.node.last.took(wire.UNSUBSCRIBE)] == ["a"]
    assert player.is_settled


def test_a_new_session_has_nothing(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("a")])

    async def work() -> None:
        await play.connected(player)
        player.drop()
        await asyncio.sleep(0.1)

    play(work())
    assert [event.connection for event in play.all(Subscribed)] == [1, 2]


def test_what_a_node_grants_at_another_qos_or_never_had_is_written_down(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("a", 1), Wish("b", 2)])

    def answer(connection: Connection, packet: Took) -> bytes:
        if packet.kind == wire.UNSUBSCRIBE:
            return wire.packet(0xB0, packet.packet_id.to_bytes(2, "big"), b"\0\x11")
        if packet.kind == wire.SUBSCRIBE:
            return wire.packet(0x90, packet.packet_id.to_bytes(2, "big"), b"\0\x01")
        return play.node.yes(connection, packet)

    async def work() -> None:
        play.node.answer = answer
        await play.connected(player)
        player.subscribing.want(("a",))
        await asyncio.sleep(0.1)

    play(work())
    assert [event.what for event in play.all(Overstepped)] == ["a SUBACK of b at QoS 1, asked for at 2"]
    assert [(event.filter, event.is_missed) for event in play.all(UnsubscribeDone)] == [("b", True)]


def test_who_has_something_may_ask_for_it_at_another_qos(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("a", 1)])

    async def work() -> None:
        await play.connected(player)
        player.subscribing.ask_otherwise("a", qos=2)
        player.subscribing.ask_otherwise("a", qos=0)  # one question at a time
        await asyncio.sleep(0.1)

    play(work())
    assert [event.qos for event in play.all(Subscribed)] == [1, 2]


def test_what_comes_by_an_identifier_of_before_is_named_by_its_filter(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("a", 1, identifier=1), Wish("b", 1, identifier=2)])

    async def work() -> None:
        await play.connected(player)
        player.subscribing.ask_otherwise("a", identifier=player.subscribing.fresh_identifier(), as_published=True)
        await asyncio.sleep(0.1)

    play(work())
    assert player.subscribing.named([1, 3, 2, 4]) == ("a", "a", "b", "?4")
    assert [(event.identifier, event.as_published) for event in play.all(SubscribeSent)] == [
        (1, False),
        (2, False),
        (3, True),
    ]
