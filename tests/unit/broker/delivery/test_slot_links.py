"""The slot sender of a core that was purged and goes on as another incarnation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import pytest

from flockmq.delivery.batch_queue import size_of
from flockmq.delivery.frames import ADDRESSED, BATCH, batch_frame
from flockmq.delivery.slot_links import SlotLinks
from flockmq.delivery.slot_receiver import SlotReceiver
from flockmq.membership.frames import SlotAck
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link
from flockmq.membership.reachability import new_incarnation
from flockmq.mqtt.message import publication
from flockmq.rlog.entry import StreamId
from flockmq.rlog.schema import NodeInfo
from flockmq.routing.sink import Sink
from flockmq.routing.slots import SlotMessage
from flockmq.routing.targets import SlotSet
from unit.broker.membership.lone_cluster import lone_cluster


class Receiver:
    """What came to it: (sender, number, payloads)."""

    is_holding = False

    def __init__(self) -> None:
        self.batches: list[tuple[str, int, list[bytes]]] = []
        self.gone: list[str] = []

    def received(
        self,
        sender: str,
        back: Callable[[int, int], None],
        number: int,
        epoch: int,
        messages: Sequence[SlotMessage],
        size_bytes: int,
    ) -> None:
        self.batches.append((sender, number, [message.packet[-1:] for message in messages]))

    def advance(self) -> None:
        """Nothing waits."""

    def reset(self) -> None:
        self.batches.clear()

    def node_gone(self, incarnation: str) -> None:
        self.gone.append(incarnation)

    def held_bytes(self, sender: str) -> int:
        return 0


class Core:
    """It owns slot 0."""

    def __init__(self) -> None:
        self.cluster = lone_cluster()
        self.me = self.cluster.incarnation
        self.turn: list[Sink] = []
        self.epoch = 1
        self.receiver = Receiver()
        self.links: dict[str, Link] = {}
        self.cluster.mesh.link_of = self.links.get  # type: ignore[method-assign]
        self.slot_links = SlotLinks(self.turn, self.cluster)
        self.slot_links.receiver = self.receiver

    def noted(self, owner: str) -> None:
        """The log says who owns the slot."""
        self.epoch += 1
        self.cluster.slots.put(0, owner, None)
        self.cluster.slots.entry_applied(StreamId(0, self.epoch))

    def put(self, payload: bytes) -> None:
        slots = SlotSet([0])
        assert self.slot_links.sender.put_acknowledged(slots, publication(4, 1, False, b"t", payload, b""), list) == 1
        turn, self.turn[:] = list(self.turn), []
        for sink in turn:
            sink.flush()


@pytest.fixture
async def core() -> Core:
    return Core()


async def test_what_waits_for_the_slots_of_a_former_life_goes_to_whoever_gets_them(core: Core) -> None:
    core.noted(core.me)
    core.put(b"1")
    assert core.receiver.batches == [(core.me, 1, [b"1"])]
    later = new_incarnation("a", core.me)
    core.slot_links.rename(later)
    core.put(b"2")
    assert core.receiver.batches == [], "as another incarnation it has no slots yet, and its numbers begin at one"
    core.noted(later)
    assert core.receiver.batches == [(later, 1, [b"1", b"2"])]
    core.slot_links.stop()


async def test_who_is_no_member_yet_counts_anew_when_its_last_link_ends(core: Core) -> None:
    """With another it goes on where it was, and sends nothing again."""
    first, second = (cast(Link, MagicMock(peer=Identity("b@1", "core"))) for _ in range(2))
    core.links["b@1"] = second
    core.slot_links.link_down(first)
    assert core.receiver.gone == []
    del core.links["b@1"]
    core.cluster.nodes_table["b@1"] = NodeInfo("b", "core", "", 0, 0, "1")
    core.slot_links.link_down(second)
    assert core.receiver.gone == []
    del core.cluster.nodes_table["b@1"]
    core.slot_links.link_down(second)
    assert core.receiver.gone == ["b@1"]


class Sessions:
    """They take what comes, but nothing whose log position isn't reached yet."""

    is_holding = False

    def __init__(self) -> None:
        self.reached = 1
        self.taken: list[bytes] = []

    def epoch(self) -> int:
        return self.reached

    def view(self) -> int:
        return 1

    def is_loading(self) -> bool:
        return False

    def is_changing(self) -> bool:
        return False

    def take(self, messages: Sequence[SlotMessage], epoch: int, sender: str, done: Callable[[bool], None]) -> None:
        self.taken += [message.packet for message in messages]
        done(True)

    def advance(self) -> None:
        """Nothing waits."""

    def take_runs(self, messages: Sequence[SlotMessage]) -> None:
        raise AssertionError("there are none")


async def test_of_who_is_no_member_for_a_moment_nothing_is_accepted_that_was_not_taken(core: Core) -> None:
    """In a generation of the log that lacks its row, which it writes again. Its link was up all the time, so it sends
    nothing again."""
    sessions, members = Sessions(), core.cluster.nodes_table
    answers = MagicMock()
    link = cast(Link, MagicMock(peer=Identity("b@1", "core"), control=answers))
    core.links["b@1"] = link
    core.slot_links.receiver = SlotReceiver(
        sessions, members.__contains__, asyncio.get_running_loop().call_soon, lambda: 0.0
    )
    receive = core.cluster.handlers.frames[BATCH]

    def come(number: int, epoch: int, payload: bytes) -> None:
        message = SlotMessage(b"b" * 8, number, b"", 4, payload, [])
        receive(link, b"".join(batch_frame(number, epoch, [message], size_of(message)))[5:])

    members["b@1"] = NodeInfo("b", "core", "", 0, 0, "1")
    come(1, 2, b"1")
    del members["b@1"]
    core.slot_links.node_gone("b@1")
    members["b@1"] = NodeInfo("b", "core", "", 0, 0, "1")
    come(2, 1, b"2")
    await asyncio.sleep(0)
    answers.assert_not_called()
    sessions.reached = 2
    core.slot_links.receiver.advance()
    await asyncio.sleep(0)
    assert sessions.taken == [b"1", b"2"]
    answers.assert_called_once_with(SlotAck(2, 1))
    core.slot_links.stop()


async def test_messages_say_for_which_slots_they_are_once_all_nodes_understand_it(core: Core) -> None:
    kinds: list[int] = []
    link = SimpleNamespace(
        peer=SimpleNamespace(incarnation="b@1"),
        data_bytes=0,
        send_data=lambda parts, size_bytes: kinds.append(parts[0][4]),
    )
    core.links["b@1"] = cast(Link, link)
    assert not core.cluster.version.at_least(2)
    core.noted("b@1")
    core.put(b"1")
    core.cluster.version.raised(2)
    core.put(b"2")
    core.slot_links.sender.put_run(SlotSet([0]), 4, b"run", b"")
    for sink in core.turn:
        sink.flush()
    assert kinds == [BATCH, ADDRESSED, BATCH], "runs of QoS 0 need no answer"
