"""What a client takes: once, in order, and written down in the moment in which it answers."""

from __future__ import annotations

import asyncio
import math

from conformance import wire
from load.history import KEPT, Delivered, Message, Overstepped
from load.player import DURABLE, Player, Terms
from load.scripted import Play
from load.subscribing import Wish


def message(number: int, packet_id: int, qos: int = 1, **more: object) -> bytes:
    return wire.publish(wire.V5, "t", f"bob {number}".encode(), qos=qos, packet_id=packet_id, **more)  # type: ignore[arg-type]


def subscriber(play: Play, *wishes: Wish, terms: Terms = DURABLE) -> Player:
    return Player(play.stage, "ann", terms, wishes or [Wish("t")])


def heard(play: Play, *packets: bytes, terms: Terms = DURABLE, answers_after_s: float = 0.0) -> None:
    player = subscriber(play, terms=terms)
    player.taking.answers_after_s = answers_after_s

    async def work() -> None:
        await play.connected(player)
        play.node.last.say(*packets)
        await asyncio.sleep(0.1)

    play(work())


def numbers(play: Play) -> list[int]:
    return [event.number for event in play.all(Delivered)]


def test_a_qos_2_message_comes_once_until_it_is_released(play: Play) -> None:
    player = subscriber(play)

    async def work() -> None:
        await play.connected(player)
        play.node.last.say(message(1, 7, 2))
        await asyncio.sleep(0.1)
        play.node.present = True
        play.node.last.end()
        await asyncio.sleep(0.1)
        play.node.last.say(message(1, 7, 2, dup=True), wire.acknowledgement(wire.PUBREL, 7), message(2, 7, 2))
        await asyncio.sleep(0.1)

    play(work())
    assert numbers(play) == [1, 2]
    assert [packet.kind for packet in play.node.last.packets if packet.packet_id == 7] == [
        wire.PUBREC,
        wire.PUBCOMP,
        wire.PUBREC,
    ]


def test_a_new_session_knows_no_packet_ids(play: Play) -> None:
    player = subscriber(play)

    async def work() -> None:
        await play.connected(player)
        play.node.last.say(message(1, 7, 2))
        await asyncio.sleep(0.1)
        play.node.last.end()
        await asyncio.sleep(0.1)
        play.node.last.say(message(2, 7, 2))
        await asyncio.sleep(0.1)

    play(work())
    assert numbers(play) == [1, 2]


def test_who_takes_its_time_answers_in_order(play: Play) -> None:
    player = subscriber(play)
    player.taking.answers_after_s = 1.0

    async def work() -> None:
        await play.connected(player)
        play.node.last.say(message(1, 3), message(2, 2, 2), message(3, 1))
        await asyncio.sleep(0.5)
        assert numbers(play) == []
        assert player.taking.held == 3
        await asyncio.sleep(1.0)

    play(work())
    assert numbers(play) == [1, 2, 3]
    answers = [packet for packet in play.node.last.packets if packet.kind in (wire.PUBACK, wire.PUBREC)]
    assert [packet.packet_id for packet in answers] == [3, 2, 1]


def test_what_was_not_answered_when_the_connection_ended_never_came(play: Play) -> None:
    player = subscriber(play)
    player.taking.answers_after_s = 1.0

    async def work() -> None:
        await play.connected(player)
        play.node.last.say(message(1, 1))
        await asyncio.sleep(0.1)
        play.node.present = True
        player.drop()
        await asyncio.sleep(5.0)
        assert numbers(play) == []
        play.node.last.say(message(1, 1, dup=True))
        await asyncio.sleep(5.0)

    play(work())
    assert [(event.number, event.connection, event.dup) for event in play.all(Delivered)] == [(1, 2, True)]


def test_who_never_answers_does_when_it_settles(play: Play) -> None:
    player = subscriber(play)
    player.taking.answers_after_s = math.inf

    async def work() -> None:
        await play.connected(player)
        play.node.last.say(message(1, 1), message(2, 2))
        await asyncio.sleep(60.0)
        assert numbers(play) == []
        player.settle()
        await asyncio.sleep(0.1)

    play(work())
    assert numbers(play) == [1, 2]


def test_identifiers_name_their_filters(play: Play) -> None:
    player = subscriber(play, Wish("t", identifier=1), Wish("#", identifier=2))

    async def work() -> None:
        await play.connected(player)
        for identifiers in ((2, 1), (3,), ()):
            named = [(wire.SUBSCRIPTION_ID, identifier) for identifier in identifiers]
            play.node.last.say(message(1, 1, properties=named))
        await asyncio.sleep(0.1)

    play(work())
    assert [event.filters for event in play.all(Delivered)] == [("#", "t"), ("?3",), ()]


def test_an_empty_message_is_answered_and_names_nobody(play: Play) -> None:
    player = subscriber(play)

    async def work() -> None:
        await play.connected(player)
        play.node.last.say(wire.publish(wire.V5, "t", b"", qos=1, packet_id=1))
        await asyncio.sleep(0.1)

    play(work())
    assert numbers(play) == []
    assert len(play.node.last.took(wire.PUBACK)) == 1


def test_what_a_packet_says_is_written_down(play: Play) -> None:
    its = Message("bob", 1).properties()
    expiry: wire.Properties = [(wire.MESSAGE_EXPIRY, 7)]
    heard(
        play,
        message(1, 1, properties=[*its, *expiry]),
        message(1, 2, properties=[*its[1:], its[0]]),
        wire.publish(wire.V5, "t", Message("bob", 1).payload(50), qos=0),
        wire.publish(wire.V5, "t", b"bob 1 and more", qos=0),
    )
    events = play.all(Delivered)
    assert [(event.expiry_s, event.properties == KEPT, event.size) for event in events] == [
        (7, True, 5),
        (-1, False, 5),
        (-1, False, 50),
        (-1, False, -1),
    ]
    assert events[1].properties
    assert not events[2].properties


def test_what_a_node_may_not_send_is_written_down(play: Play) -> None:
    few = DURABLE._replace(receive_maximum=2, packet_max=30)
    heard(play, message(1, 1), message(2, 1), message(3, 2, 2), message(4, 3), terms=few, answers_after_s=1.0)
    heard(play, wire.publish(wire.V5, "t", b"bob 5".ljust(30), qos=0), terms=few)
    heard(play, wire.publish(wire.V5, "", b"bob 6", qos=0, properties=[(wire.TOPIC_ALIAS, 1)]), terms=few)
    assert [event.what for event in play.all(Overstepped)] == [
        "packet id 1, which is in use",
        "3 messages at once, of 2 that are allowed",
        "36 bytes, of 30 that are allowed",
        "a topic alias that it hasn't set",
    ]


def test_an_alias_is_the_topic_that_set_it(play: Play) -> None:
    named = [(wire.TOPIC_ALIAS, 1)]
    heard(play, message(1, 1, properties=named), wire.publish(wire.V5, "", b"bob 2", properties=named))
    assert [(event.topic, event.number) for event in play.all(Delivered)] == [("t", 1), ("t", 2)]
    assert not play.all(Overstepped)


def test_what_was_not_answered_is_a_repeat_when_it_comes_again(play: Play) -> None:
    player = subscriber(play)
    player.taking.answers_after_s = 1.0

    async def work() -> None:
        await play.connected(player)
        play.node.present = True
        play.node.last.say(message(1, 1))
        await asyncio.sleep(0.1)
        player.drop()
        await asyncio.sleep(1.0)
        play.node.last.say(message(1, 1, dup=True), message(2, 2))
        await asyncio.sleep(2.0)

    play(work())
    assert [(event.number, event.is_repeat) for event in play.all(Delivered)] == [(1, True), (2, False)]


def test_it_says_for_how_long_it_held_a_message(play: Play) -> None:
    heard(play, message(1, 7), answers_after_s=0.05)
    heard(play, message(2, 8))
    assert [round(event.held_s, 2) for event in play.all(Delivered)] == [0.05, 0.0]
