"""What a client publishes: what it sends again, what it forgets, and what is written down."""

from __future__ import annotations

import asyncio

import pytest

from conformance import wire
from load.history import Acknowledged, Published, PublishRefused
from load.player import CLEAN, DURABLE, Player, Terms
from load.scripted import Connection, Play, Took
from load.sending import WINDOW_MESSAGES, Publication
from load.subscribing import Wish

DUP = 8


def unanswered(play: Play, *kinds: int) -> None:
    """From now on, packets of these kinds."""

    def answer(connection: Connection, packet: Took) -> bytes:
        return b"" if packet.kind in kinds else play.node.yes(connection, packet)

    play.node.answer = answer


async def cut_off(play: Play) -> None:
    play.node.last.end()
    await asyncio.sleep(0.1)


def test_what_is_not_acknowledged_is_sent_again_in_order_where_the_session_is_there(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    async def work() -> None:
        await play.connected(player)
        unanswered(play, wire.PUBLISH)
        for qos in (1, 2, 0, 1):
            player.sending.publish(Publication("t", qos))
        play.node.present = True
        await cut_off(play)

    play(work())
    came = [connection.took(wire.PUBLISH) for connection in play.node.connections]
    first, second = ([(packet.packet_id, packet.flags & DUP, packet.rest) for packet in each] for each in came)
    assert first == [(1, 0, b"ann 1"), (2, 0, b"ann 2"), (0, 0, b"ann 3"), (3, 0, b"ann 4")]
    assert second == [(1, DUP, b"ann 1"), (2, DUP, b"ann 2"), (3, DUP, b"ann 4")]
    assert [(event.connection, event.number, event.again) for event in play.all(Published)] == [
        *((1, number, False) for number in (1, 2, 3, 4)),
        *((2, number, True) for number in (1, 2, 4)),
    ]
    assert not player.sending.is_idle


@pytest.mark.parametrize("terms", [CLEAN, DURABLE])
def test_without_its_session_it_forgets(play: Play, terms: Terms) -> None:
    player = Player(play.stage, "ann", terms)

    async def work() -> None:
        await play.connected(player)
        unanswered(play, wire.PUBLISH)
        player.sending.publish(Publication("t"))
        await cut_off(play)

    play(work())
    assert not play.node.last.took(wire.PUBLISH)
    assert player.sending.is_idle


def test_of_qos_2_that_was_received_the_release_is_sent_again(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    async def work() -> None:
        await play.connected(player)
        unanswered(play, wire.PUBREL)
        player.sending.publish(Publication("t", 2))
        await asyncio.sleep(0.1)
        play.node.present = True
        play.node.answer = play.node.yes
        await cut_off(play)

    play(work())
    assert not play.node.last.took(wire.PUBLISH)
    assert [packet.packet_id for packet in play.node.last.took(wire.PUBREL)] == [1]
    assert [event.number for event in play.all(Acknowledged)] == [1]
    assert player.sending.is_idle


def test_what_is_refused_is_over(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    def refuse(connection: Connection, packet: Took) -> bytes:
        if packet.kind != wire.PUBLISH:
            return play.node.yes(connection, packet)
        return wire.acknowledgement(wire.PUBACK if packet.qos == 1 else wire.PUBREC, packet.packet_id, 0x97)

    async def work() -> None:
        await play.connected(player)
        play.node.answer = refuse
        assert not await player.sending.published(Publication("t", 1), 1.0)
        assert not await player.sending.published(Publication("t", 2), 1.0)

    play(work())
    assert [(event.number, event.reason) for event in play.all(PublishRefused)] == [(1, 0x97), (2, 0x97)]
    assert not play.all(Acknowledged)
    assert player.sending.is_idle


def test_no_more_is_under_way_than_its_window(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    async def publish_forever() -> None:
        while True:
            await player.sending.room()
            player.sending.publish(Publication("t"))

    async def work() -> None:
        await play.connected(player)
        unanswered(play, wire.PUBLISH)
        task = asyncio.create_task(publish_forever())
        await asyncio.sleep(0.1)
        assert len(play.all(Published)) == WINDOW_MESSAGES
        play.node.last.say(wire.acknowledgement(wire.PUBACK, 1))
        await asyncio.sleep(0.1)
        assert len(play.all(Published)) == WINDOW_MESSAGES + 1
        task.cancel()

    play(work())


def test_an_acknowledgement_that_is_awaited_may_be_given_up(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)

    async def work() -> None:
        await play.connected(player)
        assert await player.sending.published(Publication("t"), 1.0)
        unanswered(play, wire.PUBLISH)
        assert not await player.sending.published(Publication("t"), 1.0)
        play.node.last.say(wire.acknowledgement(wire.PUBACK, 2))
        await asyncio.sleep(0.1)

    play(work())
    assert [event.number for event in play.all(Acknowledged)] == [1, 2]


def test_all_that_a_message_can_be_is_sent_and_written_down(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE)
    publication = Publication("t", 1, retain=True, expiry_s=2, delay_s=3, size=100, has_properties=True)

    async def work() -> None:
        await play.connected(player)
        player.sending.publish(publication)
        player.sending.publish(Publication("t", retain=True, clears=True))

    play(work())
    message, clear = play.node.last.took(wire.PUBLISH)
    assert message.topic == "$delayed/3/t"
    assert (message.flags & 1, len(message.rest), message.rest.split()) == (1, 100, [b"ann", b"1"])
    assert b"\x02\0\0\0\x02" in message.raw
    assert message.raw.count(b"unit") == 2
    assert clear.rest == b""
    first, second = play.all(Published)
    assert (first.topic, first.retain, first.expiry_s, first.delay_s, first.size) == ("t", True, 2, 3, 100)
    assert first.has_properties
    assert (second.clears, second.expiry_s, second.delay_s, second.has_properties) == (True, -1, -1, False)


def test_who_uses_aliases_says_a_topic_once_on_each_connection(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE._replace(aliases=1))

    def answer(connection: Connection, packet: Took) -> bytes:
        if packet.kind == wire.CONNECT:
            return wire.packet(0x20, bytes((0, 0)), wire.properties(wire.V5, [(wire.TOPIC_ALIAS_MAXIMUM, 1)]))
        return play.node.yes(connection, packet)

    async def work() -> None:
        play.node.answer = answer
        await play.connected(player)
        for topic in ("a", "a", "b"):
            player.sending.publish(Publication(topic, 0))
        await cut_off(play)
        player.sending.publish(Publication("a", 0))

    play(work())
    assert [[each.topic for each in one.took(wire.PUBLISH)] for one in play.node.connections] == [["a", "", "b"], ["a"]]
    assert [event.topic for event in play.all(Published)] == ["a", "a", "b", "a"]


def test_packet_ids_are_of_one_question_each(play: Play) -> None:
    player = Player(play.stage, "ann", DURABLE, [Wish("t")])

    async def work() -> None:
        await play.connected(player)
        player.sending.publish(Publication("t"))

    play(work())
    kinds = (wire.PUBLISH, wire.SUBSCRIBE)
    (published,), (subscribed,) = (play.node.last.took(kind) for kind in kinds)
    assert published.packet_id != subscribed.packet_id
